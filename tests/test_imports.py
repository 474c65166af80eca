"""Imports run one way: protocol <- storage <- actors <- supervisor <- bench. Read from the source, not from a run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pykka
import pytest

CHECKOUT: Final = Path(__file__).parents[1]
ROOMS: Final = ("protocol", "storage", "actors", "supervisor", "bench")
IMPURE: Final = frozenset({
    "asyncio", "concurrent", "fcntl", "glob", "http", "io", "logging", "multiprocessing", "os", "pathlib",
    "queue", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver",
    "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "uuid", "apsw", "h11", "httpx",
    "psutil", "pykka", "rich", "ruamel", "yaml", "zmq",
})  # fmt: skip


@dataclass(frozen=True)
class Arrow:
    """`module` names `target` in an import statement on `line`."""

    module: str
    line: int
    target: str
    at_load: bool = True
    """False inside of functions and of `if TYPE_CHECKING`."""

    def __str__(self) -> str:
        return f"{self.module} line {self.line} imports {self.target}"


def source_files(root: Path = CHECKOUT) -> dict[str, Path]:
    """Every module of the package by its dotted name below it; a package's own name for its `__init__`."""
    files = [*root.glob("*.py"), *(path for room in ROOMS for path in root.joinpath(room).rglob("*.py"))]
    return {module_name(path.relative_to(root)): path for path in files}


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES: Final = source_files()
TREES: Final = {name: ast.parse(path.read_bytes()) for name, path in FILES.items()}
PACKAGES: Final = {name for name, path in FILES.items() if path.name == "__init__.py"}


def own_imports(name: str, tree: ast.AST, is_package: bool) -> Iterator[Arrow]:
    """Imports of our own modules, relative ones resolved; `from .package import module` counts as the module."""
    at_load = set(loaded(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = name.split(".") if name else []
            base = base[: len(base) - node.level + is_package]
            target = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            for alias in node.names:
                inner = f"{target}.{alias.name}".strip(".")
                yield Arrow(name, node.lineno, inner if inner in FILES else target, node in at_load)
        for other in outside(node):
            if other.split(".")[0] == "covey":
                yield Arrow(name, getattr(node, "lineno", 0), other)


def loaded(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run when the module is imported."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    for child in ast.iter_child_nodes(node):
        yield from loaded(child)


def outside(node: ast.AST) -> list[str]:
    """What an absolute import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level and node.module:
        return [node.module]
    return []


def room(module: str) -> int:
    """How far from the protocol; the front door and the public face stand outside of all rooms."""
    first = module.split(".", maxsplit=1)[0]
    return ROOMS.index(first) if first in ROOMS else len(ROOMS)


OWN: Final = [arrow for name, tree in TREES.items() for arrow in own_imports(name, tree, name in PACKAGES)]
LIBRARIES: Final = [
    Arrow(name, getattr(node, "lineno", 0), target)
    for name, tree in TREES.items()
    for node in ast.walk(tree)
    for target in outside(node)
]


def test_the_graph_was_read() -> None:
    assert len(FILES) > 20
    assert any(room(arrow.module) == 3 and room(arrow.target) == 0 for arrow in OWN)


def test_imports_run_one_way() -> None:
    assert not [str(arrow) for arrow in OWN if room(arrow.target) > room(arrow.module)]


def test_imports_of_our_own_are_relative() -> None:
    assert not [str(arrow) for arrow in OWN if arrow.target.split(".")[0] == "covey"]


def test_imports_of_our_own_lead_to_a_module() -> None:
    assert not [str(arrow) for arrow in OWN if arrow.target not in FILES and not arrow.target.startswith("covey")]


def test_no_module_imports_its_package_s_init() -> None:
    """Names from a package's `__init__` are for those outside of the package."""
    assert not [
        str(arrow)
        for arrow in OWN
        if arrow.target in PACKAGES and (f"{arrow.module}.").startswith(f"{arrow.target}." if arrow.target else "")
    ]


def test_no_two_modules_need_each_other_to_load() -> None:
    pairs = {(arrow.module, arrow.target) for arrow in OWN if arrow.at_load and arrow.module != arrow.target}

    assert not sorted(pair for pair in pairs if pair[::-1] in pairs and pair[0] < pair[1])


def test_the_protocol_does_nothing_to_the_world() -> None:
    found = [arrow for arrow in LIBRARIES if room(arrow.module) == 0]

    assert not [str(arrow) for arrow in found if arrow.target.split(".")[0] in IMPURE]


@pytest.mark.parametrize("library", ["apsw", "sqlite3"])
def test_only_storage_opens_databases(library: str) -> None:
    found = [arrow for arrow in LIBRARIES if arrow.target.split(".")[0] == library]

    assert not [str(arrow) for arrow in found if arrow.module.split(".")[0] != "storage"]


STATEMENT: Final = re.compile(
    r"\s*(select\s.+\sfrom\s|insert\s+(or\s+\w+\s+)?into\s|update\s+\w+\s+set\s|delete\s+from\s|"
    r"create\s+(unique\s+)?(table|index|trigger|view)\s|alter\s+table\s|drop\s+table\s|pragma\s+\w+|begin\s+immediate)",
    re.IGNORECASE | re.DOTALL,
)


def test_only_storage_speaks_sql() -> None:
    found = [
        f"{name} line {node.lineno}"
        for name, tree in TREES.items()
        if name.split(".")[0] != "storage"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value)
    ]

    assert not found


def test_only_one_file_touches_pykka_s_private_names() -> None:
    users = {arrow.module for arrow in LIBRARIES if arrow.target.split(".")[0] == "pykka"}
    private = pykka_private_names()

    found = [
        f"{name} line {node.lineno}: {node.attr}"
        for name in users - {"actors.runtime._pykka"}
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Attribute) and node.attr in private
    ]

    assert not found
    assert not [str(arrow) for arrow in LIBRARIES if re.match(r"pykka\..*\b_", arrow.target) and not is_wrapper(arrow)]


def is_wrapper(arrow: Arrow) -> bool:
    return arrow.module == "actors.runtime._pykka"


def pykka_private_names() -> set[str]:
    """Attributes and methods of pykka that begin with one underscore, from its own source."""
    names: set[str] = set()
    for path in Path(pykka.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
    return {name for name in names if re.match(r"_[a-z]", name)}


@pytest.mark.parametrize(
    ("module", "source", "target"),
    [
        pytest.param("actors.call", "from ..supervisor.home import Home", "supervisor.home", id="name of a module"),
        pytest.param("actors.call", "from ..supervisor import home", "supervisor.home", id="module of a package"),
        pytest.param("actors.call", "from .. import supervisor", "supervisor", id="package of the root"),
        pytest.param(
            "actors.call", "def late():\n    from ..supervisor.home import Home", "supervisor.home", id="late"
        ),
        pytest.param("actors.call", "from . import ports", "actors.ports", id="sibling"),
        pytest.param("actors.call", "from . import Name", "actors", id="name of the own package"),
        pytest.param("actors", "from .ports import Slots", "actors.ports", id="from an init"),
        pytest.param("actors.call", "import covey.bench", "covey.bench", id="absolute"),
        pytest.param("__main__", "from . import VERSION", "", id="name of the root"),
        pytest.param("", "from .supervisor.home import Home", "supervisor.home", id="from the root's init"),
    ],
)
def test_the_reader_sees_every_way_to_import(module: str, source: str, target: str) -> None:
    (arrow,) = own_imports(module, ast.parse(source), module in PACKAGES)

    assert arrow.target == target
