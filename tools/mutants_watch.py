"""Run the tests of one planted bug in a separate process, and record which ones fail.

    python tools/mutants_watch.py ANSWER.json sqlite,postgres TEST…

tools/mutants.py starts this in the copy of the tree with the bug.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

DATABASES = ("sqlite", "postgres")
TEST_SECONDS = 60
# An entry with one of these errors does not run at all; any test would fail.
NONSENSE = re.compile(
    r"syntax error|SyntaxError|IndentationError|NameError|no such column|UndefinedColumn"
    r"|no such table|UndefinedTable|UnboundLocalError"
)


class Watcher:
    """A pytest plugin that stops once a test has failed on each requested database."""

    def __init__(self, databases: Sequence[str]) -> None:
        self.databases = databases
        self.caught: dict[str, str] = {}
        self.problem: str | None = None
        self._running_on: Sequence[str] = ()

    def pytest_runtest_protocol(self, item: Any) -> bool | None:
        self._running_on = [one for one in databases_of(item) if one in self.databases]
        if all(name in self.caught for name in self._running_on):
            # The test adds no information: report it as run.
            return True
        return None

    def pytest_runtest_logreport(self, report: Any) -> None:
        # Teardown errors of a failed test add no information.
        if not report.failed or report.when == "teardown":
            return
        text = str(report.longreprtext)
        if report.when != "call" or _is_nonsense(text):
            self._refuse(f"{report.nodeid} broke at {report.when}: {_reason(text)}")
            return
        for name in self._running_on:
            self.caught.setdefault(name, report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._refuse(f"{report.nodeid} could not be collected: {_reason(report.longreprtext)}")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._session is not None and not set(self.databases) - self.caught.keys():
            self._session.shouldstop = "caught"

    def pytest_sessionstart(self, session: Any) -> None:
        self._session = session

    def _refuse(self, problem: str) -> None:
        self.problem = self.problem or problem
        if self._session is not None:
            self._session.shouldstop = problem

    _session: Any = None


def _is_nonsense(text: str) -> bool:
    """Return whether an error line of the report says that the planted text cannot run."""
    return any(NONSENSE.search(line) for line in text.splitlines() if line.startswith("E  "))


def _reason(text: str) -> str:
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E  ")]
    return (errors or text.splitlines() or ["no reason given"])[-1][:200]


def databases_of(item: Any) -> Sequence[str]:
    """Return the databases of a test: both if it needs none."""
    values = list(item.callspec.params.values()) if hasattr(item, "callspec") else []
    named = [name for name in DATABASES if name in values]
    if not named:
        named = [name for name in DATABASES if any(name in one for one in item.fixturenames)]
    return named or DATABASES


def watch(answer: Path, databases: Sequence[str], tests: Sequence[str]) -> int:
    """Run *tests* and write the results to *answer*."""
    watcher = Watcher(databases)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", f"timeout={TEST_SECONDS}"]
    options += ["--basetemp", str(answer.with_suffix(".tmp"))]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = pytest.main([*options, *tests], plugins=[watcher])
    if code == pytest.ExitCode.USAGE_ERROR:
        watcher.problem = watcher.problem or output.getvalue().strip().splitlines()[-1]
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        watcher.problem = watcher.problem or f"pytest ended with {code!r}"
    for module in list(sys.modules.values()):
        # Modules from the installed tree were tested without the planted bug.
        path = getattr(module, "__file__", None) or ""
        if module.__name__.partition(".")[0] == "holdfast" and Path.cwd() not in Path(path).parents:
            watcher.problem = f"{module.__name__} was imported from {path}"
    answer.write_text(json.dumps({"caught": watcher.caught, "problem": watcher.problem}))
    return 0


if __name__ == "__main__":
    sys.exit(watch(Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]))
