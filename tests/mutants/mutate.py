"""Mutation check: flips every decision of a module in a copy of the package, and requires that some test fails.

    python -P tests/mutants/mutate.py supervisor/strategy.py tests/supervisor/test_strategy.py …

Not collected by pytest: it takes minutes (`make mutants`). A mutant is one change: a condition negated, a comparison
turned round, `and` for `or`, `+` for `-`, a number off by one, a `case` that never matches, a statement left out.
Exits with 1 and names what survived. The checkout is only read.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".cache", "__pycache__", "*.egg-info", ".*", "build", "dist")

OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
"""An order is moved by its border: that it matters at all is what negating the whole condition shows."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed module."""

    line: int
    what: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for what in _ways(node):
            changed = copy.deepcopy(tree)
            target = _nth(changed, number)
            _Change(target, what).visit(changed)
            ast.fix_missing_locations(changed)
            yield Mutant(getattr(node, "lineno", 0), f"{what}: {_shown(node)}", ast.unparse(changed))


def _ways(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.If() | ast.While() | ast.IfExp() if not _is_true(node.test):
            yield "negated"
        case ast.Compare():
            yield "compared the other way"
        case ast.BoolOp():
            yield "and for or"
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            yield "plus for minus"
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            yield "one more"
        case ast.Constant(value=bool()):
            yield "not so"
        case ast.match_case() if not _is_wildcard(node):
            yield "never matches"
        case ast.match_case(guard=ast.expr()):
            yield "unguarded"
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return  # nobody comes here
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Return(value=None):
            yield "left out"
        # A name that is never set is no decision: any test would notice.
        case ast.Assign(targets=[ast.Attribute()]):
            yield "left out"
        case _:
            return
    if isinstance(node, ast.match_case) and node.guard is not None and not _is_wildcard(node):
        yield "unguarded"


def _is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant)


def _is_wildcard(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None


class _Change(ast.NodeTransformer):
    def __init__(self, target: ast.AST, what: str) -> None:
        self._target, self._what = target, what

    def visit(self, node: ast.AST) -> ast.AST:
        if node is not self._target:
            return super().generic_visit(node)
        return _changed(node, self._what)


def _changed(node: ast.AST, what: str) -> ast.AST:
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Compare():
            node.ops = [OPPOSITE[type(op)]() for op in node.ops]
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.BinOp():
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        case ast.Constant(value=bool() as value):
            return ast.Constant(not value)
        case ast.Constant(value=int() as value):
            return ast.Constant(value + 1)
        case ast.match_case():
            node.guard = ast.Constant(False) if what == "never matches" else None
        case ast.Return() | ast.stmt():
            return ast.Pass()
        case _:
            raise AssertionError(f"no way to change {node}")
    return node


def _nth(tree: ast.AST, number: int) -> ast.AST:
    return next(node for at, node in enumerate(ast.walk(tree)) if at == number)


def _shown(node: ast.AST) -> str:
    text = f"case {ast.unparse(node.pattern)}" if isinstance(node, ast.match_case) else ast.unparse(node)
    return text.splitlines()[0][:90]


def survives(package: Path, module: str, mutant: Mutant, tests: list[str]) -> bool:
    """Whether all tests pass with the mutant in place; the copy is as before afterwards."""
    file = package / module
    original = file.read_text(encoding="utf-8")
    file.write_text(mutant.source, encoding="utf-8")
    try:
        return _passes(package, tests)
    finally:
        file.write_text(original, encoding="utf-8")


def _passes(package: Path, tests: list[str]) -> bool:
    environ = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=package, env=environ, capture_output=True, timeout=300)
    except subprocess.TimeoutExpired:
        return False  # it went on for ever: noticed
    return done.returncode == 0


def check(module: str, tests: list[str], *, jobs: int, every: int) -> int:
    """Try all mutants (or every n-th); prints survivors as they are found and returns how many there are."""
    found = list(mutants((CHECKOUT / module).read_text(encoding="utf-8")))[::every]
    with tempfile.TemporaryDirectory(prefix="covey-mutants-") as folder:
        packages = [Path(folder) / str(job) / "covey" for job in range(jobs)]
        for package in packages:
            shutil.copytree(CHECKOUT, package, ignore=LEFT_OUT)
        if not _passes(packages[0], tests):
            print("the tests fail without a mutant: nothing can be said")
            return 1
        with ThreadPoolExecutor(jobs) as pool:
            lanes = [found[job::jobs] for job in range(jobs)]
            results = pool.map(lambda lane: _lane(packages[lane], module, lanes[lane], tests), range(jobs))
            survivors = sum(len(lane) for lane in results)
    print(f"{len(found)} mutants of {module}, {len(found) - survivors} were noticed")
    return survivors


def _lane(package: Path, module: str, lane: list[Mutant], tests: list[str]) -> list[Mutant]:
    survivors = []
    for mutant in lane:
        if survives(package, module, mutant, tests):
            survivors.append(mutant)
            print(f"{module}:{mutant.line}: survived: {mutant.what}", flush=True)
    return survivors


def main() -> int:
    """Run the check of the command line."""
    parser = argparse.ArgumentParser(description="flip every branch of a module; some test has to fail")
    parser.add_argument("module", help="relative to the checkout")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th mutant")
    parser.add_argument("--allow", type=int, default=0, metavar="N", help="survivors that change nothing one could see")
    args = parser.parse_args()
    return int(check(args.module, args.tests, jobs=args.jobs, every=args.every) > args.allow)


if __name__ == "__main__":
    sys.exit(main())
