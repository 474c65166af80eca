"""README and docs: links lead somewhere, named tests and numbers exist, commands are complete, examples run."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from covey.__main__ import main
from covey.bench.cli import COMMANDS as BENCH_COMMANDS
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.protocol.settings import ZAI_BASE_URL
from covey.supervisor.cli.main import COMMANDS as FLEET_COMMANDS

CHECKOUT: Final = Path(__file__).parents[1]
PAGES: Final = (CHECKOUT / "README.md", CHECKOUT / "CHANGELOG.md", *sorted((CHECKOUT / "docs").glob("*.md")))
SEMANTICS: Final = (CHECKOUT / "docs" / "semantics.md").read_text(encoding="utf-8")
PROMISES: Final = SEMANTICS.partition("## Bounds and defaults")[0]
CLI: Final = (CHECKOUT / "docs" / "cli.md").read_text(encoding="utf-8")

OPENING: Final = (
    "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/covey demo",
    "python3 -m venv .venv && .venv/bin/pip install -q '.[dev]' && .venv/bin/python -P -m pytest",
)

_FENCED = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.M | re.S)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_TEST = re.compile(r"`(?P<path>tests/[\w/]+\.py)::(?P<name>\w+)`")
_CONSTANT = re.compile(r"`(?P<module>[\w.]+):(?P<name>[A-Z_]+)`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


# --- links -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    prose = _FENCED.sub("", page.read_text(encoding="utf-8"))
    targets = [found["target"] for found in _LINK.finditer(prose) if "://" not in found["target"]]

    assert [target for target in targets if not leads_somewhere(page, target)] == []


def test_every_page_is_reached_from_the_readme() -> None:
    readme = PAGES[0].read_text(encoding="utf-8")

    assert [page.name for page in (CHECKOUT / "docs").glob("*.md") if f"(docs/{page.name})" not in readme] == []


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, heading = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not heading or heading in headings(file))


def headings(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# --- promises --------------------------------------------------------------------------------------------------------


def promises() -> list[str]:
    return [line for line in PROMISES.splitlines() if line.startswith("- ")]


def test_every_promise_names_a_test() -> None:
    assert len(promises()) > 50
    assert [line for line in promises() if not _TEST.search(line)] == []


def test_every_named_test_exists() -> None:
    named = {(found["path"], found["name"]) for found in _TEST.finditer(SEMANTICS)}

    assert sorted(f"{path}::{name}" for path, name in named if name not in names_of_tests(CHECKOUT / path)) == []


def names_of_tests(file: Path) -> set[str]:
    """Names that pytest may collect from a file: test functions and methods, and test classes, made or assigned."""
    if not file.exists():
        return set()
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                names.add(name)
            case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("Test"):
                names.add(name)
    return names


def bounds() -> list[str]:
    """The rows of the table of bounds that name a constant."""
    table = SEMANTICS.partition("## Bounds and defaults")[2]
    return [line for line in table.splitlines() if line.startswith("| ") and _CONSTANT.search(line)]


def test_there_are_bounds() -> None:
    assert len(bounds()) > 10


@pytest.mark.parametrize("row", bounds(), ids=lambda row: row.split("|")[1].strip())
def test_a_bound_is_what_the_code_says(row: str) -> None:
    stated = row.split("|")[2]

    values = [
        getattr(importlib.import_module(f"covey.{found['module']}"), found["name"])
        for found in _CONSTANT.finditer(row)
    ]  # fmt: skip

    assert re.findall(r"\d+(?:\.\d+)?", stated) == [str(value) for value in values]


# --- commands --------------------------------------------------------------------------------------------------------


def help_of(command: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main([*command.split(), "--help"]) == 0
    return said.getvalue()


def actions_of(command: str) -> list[str]:
    """What may follow a command that is a door to others, as its help lists it."""
    listed = re.search(r"^  (?:ACTION|COMMAND)\n((?:    .*\n)+)", help_of(command), re.M)
    return re.findall(r"^    ([a-z][a-z-]*)\b", listed[1], re.M) if listed else []


def commands() -> list[str]:
    """Every command there is, as it is typed after `covey`."""
    return [
        command
        for name in (*FLEET_COMMANDS, *BENCH_COMMANDS)
        for command in (name, *(f"{name} {action}" for action in actions_of(name)))
    ]


def test_the_page_of_commands_has_all_of_them_and_no_others() -> None:
    assert sorted(re.findall(r"^##+ `covey ([a-z -]+)`$", CLI, re.M)) == sorted(commands())


@pytest.mark.parametrize("command", [command for command in commands() if not actions_of(command)])
def test_the_options_of_a_command_are_all_described(command: str) -> None:
    section = CLI.partition(f"# `covey {command}`\n")[2].partition("\n#")[0]
    listed = " ".join(section.split()).rpartition("Options: ")[2] if "Options:" in section else ""

    assert set(_OPTION.findall(listed)) == set(_OPTION.findall(help_of(command))) - {"--help"}


# --- the README ------------------------------------------------------------------------------------------------------


def test_the_readme_opens_with_the_two_commands_for_a_new_machine() -> None:
    shell = [found["body"] for found in _FENCED.finditer(PAGES[0].read_text(encoding="utf-8")) if found["kind"] == "sh"]

    assert shell[:2] == [f"{command}\n" for command in OPENING]


def test_the_readme_has_its_five_parts() -> None:
    readme = PAGES[0].read_text(encoding="utf-8")

    parts = ["Try it", "What is guaranteed", "What it is not for", "Where to go next"]
    assert re.findall(r"^## (.+)$", readme, re.M) == parts


# --- examples --------------------------------------------------------------------------------------------------------


def examples() -> Iterator[tuple[str, str]]:
    """Every Python program on the pages that shows the library, with a name."""
    for page in (PAGES[0], CHECKOUT / "docs" / "client.md"):
        programs = [
            found["body"] for found in _FENCED.finditer(page.read_text(encoding="utf-8")) if found["kind"] == "python"
        ]
        yield from ((f"{page.stem} {number}", program) for number, program in enumerate(programs, 1))


def test_there_are_examples() -> None:
    assert [name for name, _ in examples()] == ["README 1", "client 1", "client 2", "client 3"]


@pytest.mark.kill
@pytest.mark.parametrize("program", [pytest.param(program, id=name) for name, program in examples()])
def test_an_example_runs_as_it_stands_and_its_calls_are_in_the_books(program: str) -> None:
    """Against the simulated provider instead of Z.AI, in a home of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="cvd-", dir="/tmp") as folder,
        ProviderProcess(ProviderOptions(think_s=0.05)) as provider,
    ):
        home = Path(folder)
        (home / "config.yaml").write_text(
            f"providers:\n  sim:\n    base_url: {provider.base_url}\n    max_concurrent: 2\n"
            "model:\n  provider: sim\n  name: sim-1\n"
        )
        environ = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        environ |= {"COVEY_HOME": folder, "ZAI_API_KEY": "sk-sim"}
        here = program.replace(ZAI_BASE_URL, provider.base_url)
        try:
            done = run("-c", here, environ=environ, cwd=folder)
            status = json.loads(run("-m", "covey", "status", "--json", environ=environ, cwd=folder).stdout)
            stats = provider.stats()
        finally:
            run("-m", "covey", "down", environ=environ, cwd=folder)

    assert done.returncode == 0, done.stderr
    assert (stats.calls, stats.completed) == (1, 1)
    assert sum(budget["granted"] for budget in status["budgets"] if budget["provider"] == "sim") == 1
    # Each ends by printing the prompt tokens that the fleet has of it.
    assert re.search(rf"\b{stats.prompt_tokens}\b", done.stdout)


def run(*words: str, environ: dict[str, str], cwd: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", *words]
    return subprocess.run(command, env=environ, cwd=cwd, capture_output=True, text=True, timeout=60)


# --- what must not be in any file ------------------------------------------------------------------------------------

# Written so that this file does not contain what it looks for.
_FORBIDDEN: Final = re.compile(r"/wor[k]/|/roo[t]/|/tmp/[v]/|\.interna[l]\b|pyp[i]\.org")
_SKIPPED: Final = frozenset({"__pycache__", "build", "dist", "venv"})


def tracked() -> Iterator[Path]:
    """Files a commit of everything would hold, as far as that can be told without git."""
    for folder, below, files in os.walk(CHECKOUT):
        below[:] = [
            name
            for name in below
            if name not in _SKIPPED and not name.endswith(".egg-info") and (name == ".ci" or not name.startswith("."))
        ]
        yield from (Path(folder, name) for name in files)


def test_no_file_names_a_machine() -> None:
    seen = 0
    found = []
    for file in tracked():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        seen += 1
        found += [f"{file.relative_to(CHECKOUT)}: {hit[0]}" for hit in _FORBIDDEN.finditer(text)]

    assert seen > 100
    assert found == []
