"""What the whole run reports: a real model that was not tested is said so, last and loudly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """One line for each reason why tests marked `real_model` did not run, below everything else."""
    yield
    for reason in _untested(terminalreporter):
        terminalreporter.write_line(f"REAL MODEL NOT TESTED: {reason}", red=True, bold=True)


def _untested(reporter: pytest.TerminalReporter) -> list[str]:
    skipped = [report for report in reporter.stats.get("skipped", ()) if "real_model" in report.keywords]
    reasons = [str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped]
    # A name or a path on the command line asks for something else; an expression of marks turns tests off.
    marks = reporter.config.option.markexpr
    if marks and any(item.get_closest_marker("real_model") for item in reporter.stats.get("deselected", ())):
        reasons.append(f"turned off by -m {marks!r}")
    return list(dict.fromkeys(reasons))
