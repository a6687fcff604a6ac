"""The command line in this process: arguments in, exit code and output out."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.telemetry import log

APP = "tests.faces.app:hf"


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """``run("jobs", "count", db=url)``: without *app*, only commands that need no application."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def run(*arguments: str, db: str | None = None, app: str | None = None) -> Ran:
        # A separate process would import the application again.
        monkeypatch.delitem(sys.modules, "tests.faces.app", raising=False)
        given = ["--db", db] if db else []
        given += ["--app", app] if app else []
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*given, *arguments])
        printed = capsys.readouterr()
        return Ran(int(ended.value.code or 0), printed.out, printed.err)

    yield run
    for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
        signal.signal(number, handler)
    log.uninstall()
