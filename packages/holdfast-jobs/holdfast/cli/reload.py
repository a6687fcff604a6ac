"""Restarts a command when source files change, for development."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

import click

from holdfast.operate.processes import start_process

POLL_SECONDS = 0.5
# Running jobs may finish; then the process is killed, and their leases expire.
STOP_SECONDS = 30.0
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
_SUFFIXES = (".py", ".toml")


class Child(Protocol):
    """A started process."""

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class SourceWatch:
    """The modification times of the source files below some folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._seen = self._look()

    def changed(self) -> list[Path]:
        """The files that were changed, added or removed since the last call."""
        before, self._seen = self._seen, self._look()
        every = {**before, **self._seen}
        return sorted(path for path in every if before.get(path) != self._seen.get(path))

    def _look(self) -> Mapping[Path, int]:
        found: dict[Path, int] = {}
        for path in self._files():
            try:
                found[path] = path.stat().st_mtime_ns
            except OSError:
                # It was removed meanwhile.
                continue
        return found

    def _files(self) -> Iterator[Path]:
        for folder in self.folders:
            for place, folders, names in os.walk(folder):
                folders[:] = [one for one in folders if one not in _SKIPPED and one[0] != "."]
                yield from (Path(place, name) for name in names if name.endswith(_SUFFIXES))


class Reloader:
    """Runs a process, and another one after each change of the sources."""

    def __init__(
        self,
        start: Callable[[], Child],
        changed: Callable[[], Sequence[Path]],
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._start = start
        self._changed = changed
        self._wait = wait
        self._stopping = False
        self._child: Child | None = None

    def run(self) -> int:
        """Run until it is stopped, or the process ends by itself without an error."""
        while True:
            child = self._child = self._start()
            code = self._watch(child)
            if code is not None:
                return code

    def _watch(self, child: Child) -> int | None:
        """Wait for a change or the end; return the exit code, or None to start again."""
        said = False
        while True:
            code = child.poll()
            if code is not None and (self._stopping or code == 0):
                return code
            if code is not None and not said:
                said = True
                click.echo(f"The worker exited with {code}. Waiting for a change.", err=True)
            changed = self._changed()
            if changed:
                click.echo(f"{changed[0].name} changed: the worker is restarted.", err=True)
                if code is None:
                    self._end(child)
                return None
            self._wait(POLL_SECONDS)

    def _end(self, child: Child) -> None:
        child.terminate()
        try:
            child.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def stop(self) -> None:
        """Pass a signal on; the end of the process then ends the run. Signal-safe."""
        self._stopping = True
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()


def run_reloading(arguments: Sequence[str]) -> int:
    """Run ``holdfast`` with *arguments* as a process that follows the sources below here."""
    command = [sys.executable, "-m", "holdfast", *arguments]
    watched = SourceWatch([Path.cwd()])
    reloader = Reloader(lambda: start_process(command), watched.changed)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        reloader.stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return reloader.run()
