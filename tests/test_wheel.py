"""The wheel: one top-level name, every package, and the marker that types are inside."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest

CHECKOUT: Final = Path(__file__).parents[1]
OUTSIDE: Final = frozenset({"tests", "examples", "docs", "build", "dist"})


def project() -> dict[str, Any]:
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())


def package_folders() -> set[str]:
    """Folders with Python modules in them, dotted; the checkout itself is the package."""
    found = {"covey"}
    for folder, below, files in os.walk(CHECKOUT):
        below[:] = [name for name in below if not name.startswith((".", "__")) and not name.endswith(".egg-info")]
        path = Path(folder).relative_to(CHECKOUT)
        if path == Path():
            below[:] = [name for name in below if name not in OUTSIDE and not CHECKOUT.joinpath(name, "bin").is_dir()]
        elif any(name.endswith(".py") for name in files):
            found.add(".".join(("covey", *path.parts)))
    return found


def test_every_package_folder_is_listed_and_nothing_else() -> None:
    assert set(project()["tool"]["setuptools"]["packages"]) == package_folders()


def test_every_package_folder_has_an_init() -> None:
    folders = [CHECKOUT.joinpath(*name.split(".")[1:]) for name in package_folders()]

    assert not [folder for folder in folders if not folder.joinpath("__init__.py").exists()]


@pytest.mark.slow
def test_the_wheel_installs_covey_and_nothing_else(tmp_path: Path) -> None:
    source = copy_source(tmp_path / "any name")

    wheel = build(source, tmp_path / "out")

    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"covey"}
    assert "covey/py.typed" in names
    assert not [name for name in names if name.startswith(("covey/tests/", "covey/examples/", "covey/docs/"))]
    packages = project()["tool"]["setuptools"]["packages"]
    assert not [name for name in packages if f"{name.replace('.', '/')}/__init__.py" not in names]
    assert {name for name in names if name.endswith(".py")} == {
        f"covey/{path.relative_to(source)}"
        for path in source.rglob("*.py")
        if not path.relative_to(source).parts[0].startswith(tuple(OUTSIDE))
    }
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_an_installed_wheel_has_the_command(tmp_path: Path) -> None:
    wheel = build(copy_source(tmp_path / "source"), tmp_path / "out")

    run_pip("install", "--no-deps", "--no-compile", "--target", str(tmp_path / "site"), str(wheel))

    command = [sys.executable, "-P", str(tmp_path / "site/bin/covey"), "--version"]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    ended = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=30, check=False)
    assert ended.stdout == f"covey {project()['project']['version']}\n"


def copy_source(target: Path) -> Path:
    """What a commit of everything would hold; outside of a repository, everything but build products."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=CHECKOUT, capture_output=True, check=False
    )
    if listed.returncode != 0:
        ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "venv")
        return Path(shutil.copytree(CHECKOUT, target, ignore=ignored))
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        if CHECKOUT.joinpath(name).is_file():
            target.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, target / name)
    return target


def build(source: Path, out: Path) -> Path:
    isolation = ["--no-build-isolation"] if has_setuptools() else []
    run_pip("wheel", "--no-deps", *isolation, "--wheel-dir", str(out), str(source))
    (wheel,) = out.glob("*.whl")
    return wheel


def has_setuptools() -> bool:
    """Whether the environment's own is new enough for our pyproject.toml."""
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    except importlib.metadata.PackageNotFoundError:
        return False


def run_pip(*words: str) -> None:
    command = [sys.executable, "-P", "-m", "pip", *words, "--quiet", "--disable-pip-version-check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, ended.stderr
