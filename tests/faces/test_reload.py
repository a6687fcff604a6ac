"""--reload restarts the worker when the code changes, and a signal ends both."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.cli.reload import Reloader, SourceWatch


class Child:
    """A process that ends on request, or by itself with *code*."""

    def __init__(self, code: int | None = None, *, is_deaf: bool = False) -> None:
        self.code = code
        self.is_deaf = is_deaf
        self.heard: list[str] = []

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.heard.append("terminate")
        if not self.is_deaf:
            self.code = 0

    def kill(self) -> None:
        self.heard.append("kill")
        self.code = -9

    def wait(self, timeout: float | None = None) -> int:
        if self.code is None:
            raise subprocess.TimeoutExpired("worker", timeout or 0)
        return self.code


def run(children: Sequence[Child], changes: Sequence[bool]) -> tuple[int, Reloader]:
    started, seen = iter(children), iter(changes)

    def changed() -> list[Path]:
        return [Path("jobs.py")] if next(seen, False) else []

    reloader: Reloader

    def wait(_: float) -> None:
        if not any_left(seen):
            reloader.stop()

    reloader = Reloader(lambda: next(started), changed, wait)
    return reloader.run(), reloader


def any_left(seen: Iterator[bool]) -> bool:
    return bool(getattr(seen, "__length_hint__", lambda: 0)())


def test_a_change_ends_the_worker_and_starts_another(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = Child(), Child()

    code, _ = run([first, second], [False, True, False])

    assert (code, first.heard, second.heard) == (0, ["terminate"], ["terminate"])
    assert "jobs.py changed: the worker is restarted." in capsys.readouterr().err


def test_a_worker_that_does_not_end_is_killed() -> None:
    first, second = Child(is_deaf=True), Child(0)

    run([first, second], [True])

    assert first.heard == ["terminate", "kill"]


def test_a_worker_with_an_error_waits_for_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run([Child(1), Child(0)], [False, True])

    assert code == 0
    assert "The worker exited with 1. Waiting for a change." in capsys.readouterr().err


def test_changed_added_and_removed_sources_are_found(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / "app").mkdir()
    kept, gone = tmp_path / "app" / "jobs.py", tmp_path / "old.py"
    for path in (kept, gone):
        path.write_text("")
    watched = SourceWatch([tmp_path])
    assert watched.changed() == []

    os.utime(kept, ns=(1, 1))
    gone.unlink()
    (tmp_path / "new.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / ".venv" / "other.py").write_text("")

    assert watched.changed() == [kept, tmp_path / "new.py", gone]
    assert watched.changed() == []
