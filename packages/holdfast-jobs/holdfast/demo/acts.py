"""Acts: what the installed extensions add to the demo.

An extension names its acts in ``Extension.demo_acts``. An act is a function that takes an
:class:`ActReport`. All acts run one after the other in one child process, which writes a line of
JSON for each report, so loading an extension delays neither the picture nor the workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from holdfast.config.extensions import installed

TOTALS = ("lost", "doubled", "paid twice", "leaked")
"""Counts with these names are added up over the engine and all acts. They must be 0."""


@dataclass(frozen=True, slots=True)
class Count:
    """One row of the summary."""

    name: str
    count: int
    meaning: str


@dataclass(slots=True)
class ActState:
    """What one act reported so far. *captions* is empty until it starts."""

    title: str
    captions: list[str] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    has_ended: bool = False


class ActReport:
    """Passed to an act. *folder* is where the act keeps its database."""

    def __init__(self, title: str, folder: Path, lines: IO[str]) -> None:
        self.title = title
        self.folder = folder
        self._lines = lines

    def say(self, caption: str) -> None:
        """Show a sentence."""
        self._write(caption=caption)

    def count(self, name: str, count: int, meaning: str) -> None:
        """Add a row to the summary. A count that :data:`TOTALS` names must be 0."""
        self._write(count=[name, count, meaning])

    def require(self, rule: str, holds: bool) -> None:
        """Fail the demo with *rule* unless it holds."""
        if not holds:
            self._write(problem=rule)

    def end(self) -> None:
        """Report that the act is complete. The demo calls it."""
        self._write(ended=True)

    def _write(self, **fact: Any) -> None:
        self._lines.write(json.dumps({"act": self.title, **fact}) + "\n")
        self._lines.flush()


def find_acts() -> dict[str, str]:
    """The acts of the installed extensions in the order of their titles, with the function."""
    found = {
        title: path
        for extension in installed().values()
        for title, path in extension.demo_acts.items()
    }
    return dict(sorted(found.items()))


def clean_environment() -> dict[str, str]:
    """The environment without settings, so that the demo is the same everywhere."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return {**env, "HOLDFAST_CONFIG": ""}


class ActsProcess:
    """The child process that runs *acts*, and what it reported."""

    def __init__(self, acts: Mapping[str, str], folder: Path) -> None:
        self.acts = {title: ActState(title) for title in acts}
        self._log = folder / "acts.log"
        self._unread = b""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", __name__, str(folder), json.dumps(acts)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=clean_environment(),
                bufsize=0,
            )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def read_captions(self) -> Iterator[tuple[str, str]]:
        """Record the new reports; yield the title and the caption of those that have one."""
        self._unread += self._pipe.read() or b""
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            yield from self._record(json.loads(line))

    def _record(self, fact: dict[str, Any]) -> Iterator[tuple[str, str]]:
        act = self.acts[fact["act"]]
        match fact:
            case {"caption": str(caption)}:
                act.captions.append(caption)
                yield act.title, caption
            case {"count": [name, count, meaning]}:
                act.counts.append(Count(name, count, meaning))
            case {"problem": str(problem)}:
                act.problems.append(problem)
            case {"ended": True}:
                act.has_ended = True

    def complete(self) -> list[ActState]:
        """All acts, after the process ended. An act that did not complete has a problem."""
        for act in self.acts.values():
            if not act.has_ended:
                last = (self._log.read_text().splitlines() or ["nothing"])[-1]
                act.problems.append(f"the act {act.title} completes; its log ends with: {last}")
        return list(self.acts.values())

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._pipe.close()


def run_acts(acts: Mapping[str, str], folder: Path, lines: IO[str]) -> None:
    """Run every act. An act whose imports are not installed is left out."""
    for title, path in acts.items():
        report = ActReport(title, folder, lines)
        module, _, attribute = path.partition(":")
        try:
            act = getattr(import_module(module), attribute)
        except ModuleNotFoundError as exc:
            report.say(f"Left out, because {exc.name} is not installed.")
        else:
            act(report)
        report.end()


if __name__ == "__main__":
    # Reports only: what an act prints goes to the log.
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run_acts(json.loads(sys.argv[2]), Path(sys.argv[1]), reports)
