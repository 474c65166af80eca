"""A home for a benchmark: configured for one simulated provider, with a workspace that has something in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..supervisor.home import Home

MODEL: Final = "sim-1"


def furnish(folder: Path, *, base_url: str, limit: int, files: Mapping[str, str]) -> tuple[Home, Path]:
    """Make the home and the workspace inside `folder`."""
    home = Home.locate(folder / "home")
    home.create()
    home.config.write_text(
        f"providers:\n  sim:\n    base_url: {base_url}\n    max_concurrent: {limit}\n"
        f"model:\n  provider: sim\n  name: {MODEL}\n",
        encoding="utf-8",
    )
    workspace = folder / "workspace"
    workspace.mkdir()
    for name, text in files.items():
        (workspace / name).write_text(text, encoding="utf-8")
    return home, workspace
