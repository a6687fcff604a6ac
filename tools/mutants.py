"""Plant known bugs one at a time and check that the tests fail for each of them.

    python tools/mutants.py                    every planted bug
    python tools/mutants.py 'settle-*' outbox  only these names or subjects

tools/planted_bugs lists the bugs. Each one replaces one fragment of one file and names the tests
that cover the behaviour it breaks. The tool works on copies of the tree and never writes to the
tree itself. It first runs all named tests on an unchanged copy, because a test that fails there
says nothing about a planted bug.

A bug counts as caught when a test fails in its body, on every database that the entry names. A
failing fixture, a collection error or a syntax error does not count: the entry itself is wrong
then. The exit code is 0 if every bug is caught, 1 if one escaped, 2 if the result is invalid.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fnmatch
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "tools/planted_bugs"
DATABASES = ("sqlite", "postgres")
KEYS = {"name", "file", "within", "find", "replace", "breaks", "tests", "databases"}
NOT_COPIED = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis")
# The copies take a few megabytes, the databases of the tests some hundred.
MEMORY = Path("/dev/shm")  # noqa: S108
ROOM_BYTES = 4 * 1024**3
# One planted bug takes 2 to 15 seconds. A machine under load may need ten times as long.
LIMIT_SECONDS = 300.0


class Wrong(Exception):
    """The list, or one of its entries, is invalid."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug: what it replaces, what that breaks, and which tests cover the behaviour."""

    name: str
    subject: str
    file: str
    find: str
    replace: str
    breaks: str
    tests: tuple[str, ...]
    databases: tuple[str, ...] = DATABASES
    # The SQL statement or the Python function that contains the fragment.
    within: str | None = None


@dataclass(slots=True)
class Verdict:
    """The result for one planted bug."""

    mutant: Mutant
    caught: dict[str, str] = field(default_factory=dict)
    problem: str | None = None
    seconds: float = 0.0

    @property
    def missed(self) -> list[str]:
        return [name for name in self.mutant.databases if name not in self.caught]

    @property
    def is_caught(self) -> bool:
        return self.problem is None and not self.missed

    def line(self, width: int) -> str:
        name = f"{self.mutant.name:{width}}"
        seconds = f"{self.seconds:5.1f} s"
        if self.problem is not None:
            return f"ERROR    {seconds}  {name}  {self.problem}"
        tests = list(dict.fromkeys(test.partition("tests/")[2] for test in self.caught.values()))
        by = " and ".join(_unparametrized(tests))
        if self.is_caught:
            return f"caught   {seconds}  {name}  {by}"
        where = "" if len(self.missed) == len(DATABASES) else f" on {' and '.join(self.missed)}"
        also = f" (caught on {', '.join(self.caught)} by {by})" if self.caught else ""
        return f"ESCAPED  {seconds}  {name}  {self.mutant.breaks}{where}{also}"


def _unparametrized(tests: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(test.partition("[")[0] for test in tests))


# -- the list


def read_bugs(folder: Path) -> list[Mutant]:
    """Read the entries of every file. Raises Wrong for an incomplete or duplicate one."""
    mutants = [
        _read(entry, path.stem)
        for path in sorted(folder.glob("*.toml"))
        for entry in tomllib.loads(path.read_text()).get("mutant", [])
    ]
    names = [mutant.name for mutant in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Wrong(f"named twice: {', '.join(twice)}")
    return mutants


def _read(entry: dict[str, Any], subject: str) -> Mutant:
    name = entry.get("name", "an entry without a name")
    if unknown := sorted(entry.keys() - KEYS):
        raise Wrong(f"{name}: unknown keys: {', '.join(unknown)}")
    if missing := sorted(KEYS - {"within", "databases"} - entry.keys()):
        raise Wrong(f"{name}: missing keys: {', '.join(missing)}")
    databases = tuple(entry.pop("databases", DATABASES))
    if not databases or set(databases) - set(DATABASES):
        raise Wrong(f"{name}: databases must be some of {', '.join(DATABASES)}")
    return Mutant(**{**entry, "tests": tuple(entry["tests"])}, subject=subject, databases=databases)


def choose(mutants: Sequence[Mutant], wanted: Sequence[str]) -> list[Mutant]:
    """Return the entries whose name or subject matches one of *wanted*; all if it is empty."""
    if not wanted:
        return list(mutants)
    for pattern in wanted:
        if not any(_matches(mutant, pattern) for mutant in mutants):
            raise Wrong(f"no planted bug matches {pattern!r}; see {FOLDER}")
    return [mutant for mutant in mutants if any(_matches(mutant, one) for one in wanted)]


def _matches(mutant: Mutant, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in (mutant.name, mutant.subject))


# -- planting


def planted(mutant: Mutant, root: Path) -> str:
    """Return the text of the file with the bug in it. Raises Wrong if the entry is stale."""
    path = root / mutant.file
    if not path.is_file():
        raise Wrong(f"{mutant.name}: stale, {mutant.file} does not exist")
    text = path.read_text()
    begin, end = _section(mutant, text)
    part = text[begin:end]
    if (times := part.count(mutant.find)) != 1:
        place = mutant.file if mutant.within is None else f"{mutant.within} of {mutant.file}"
        raise Wrong(f"{mutant.name}: stale, its fragment occurs {times} times in {place}")
    changed = text[:begin] + part.replace(mutant.find, mutant.replace) + text[end:]
    if changed == text:
        raise Wrong(f"{mutant.name}: changes nothing")
    if path.suffix == ".py":
        try:
            ast.parse(changed)
        except SyntaxError as exc:
            raise Wrong(f"{mutant.name}: line {exc.lineno} of the result is no Python") from exc
    return changed


def _section(mutant: Mutant, text: str) -> tuple[int, int]:
    """Return start and end of the statement or function that *within* names."""
    if mutant.within is None:
        return 0, len(text)
    find = _functions if mutant.file.endswith(".py") else _statements
    found = [(begin, end) for name, begin, end in find(text) if name == mutant.within]
    if len(found) != 1:
        raise Wrong(f"{mutant.name}: stale, {mutant.within} is in {mutant.file} {len(found)} times")
    return found[0]


def _statements(text: str) -> Iterator[tuple[str, int, int]]:
    heads = list(re.finditer(r"^-- (\w+) :(?:one|maybe|many|affected)\b", text, re.M))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=True):
        yield head[1], head.start(), end


def _functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield every function by name, and every method by Class.method."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert child.end_lineno is not None
                yield prefix + child.name, starts[child.lineno - 1], starts[child.end_lineno]
            if isinstance(child, ast.ClassDef):
                yield from walk(child, f"{child.name}.")

    yield from walk(ast.parse(text), "")


# -- running


class Workshop:
    """Copies of the tree, one for each worker, in memory if they fit."""

    def __init__(self, root: Path, workers: int) -> None:
        self.root = root
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-mutants-", dir=_roomy()))
        # Under root, PostgreSQL runs as another user and needs access.
        self.folder.chmod(0o755)
        self.free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(workers):
            copy = self.folder / f"copy{number}"
            shutil.copytree(root, copy, ignore=_left_out)
            self.free.put(copy)
        # The running test processes, so that an interrupt can end them.
        self.running: set[subprocess.Popen[str]] = set()

    @contextlib.contextmanager
    def copy(self) -> Iterator[Path]:
        copy = self.free.get()
        try:
            yield copy
        finally:
            self.free.put(copy)

    def interrupt(self) -> None:
        for process in list(self.running):
            _end(process)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Exclude caches and virtual environments of any name."""
    environments = {name for name in names if (Path(folder) / name / "pyvenv.cfg").exists()}
    return environments | NOT_COPIED(folder, names)


def _roomy() -> str | None:
    with contextlib.suppress(OSError):
        if shutil.disk_usage(MEMORY).free >= ROOM_BYTES:
            return str(MEMORY)
    return None


def environment(copy: Path) -> dict[str, str]:
    """Return an environment that imports from the copy, not from the installed tree."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    packages = sorted(str(path) for path in (copy / "packages").glob("*"))
    return {**kept, "PYTHONPATH": os.pathsep.join([str(copy), *packages])}


def check_clean(workshop: Workshop, tests: Sequence[str], workers: int) -> None:
    """Run the named tests on an unchanged copy. Raises Wrong if they do not all pass."""
    with workshop.copy() as copy:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [
            "-n",
            str(workers if workers > 1 else 0),
            "--dist",
            "worksteal",
            "--basetemp",
            f"{copy}-clean",
        ]
        done = subprocess.run(  # noqa: S603
            [*command, *tests],
            cwd=copy,
            env=environment(copy),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        shutil.rmtree(f"{copy}-clean", ignore_errors=True)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-40:])
        raise Wrong(f"{tail}\nmutants: the tests do not pass without a planted bug")


def try_mutant(workshop: Workshop, mutant: Mutant) -> Verdict:
    """Plant one bug in a copy, run its tests there, and restore the copy."""
    began = time.monotonic()
    verdict = Verdict(mutant)
    with workshop.copy() as copy:
        path = copy / mutant.file
        original = path.read_text()
        path.write_text(planted(mutant, copy))
        try:
            _forget_bytecode(path)
            _run_tests(workshop, copy, verdict)
        finally:
            path.write_text(original)
            _forget_bytecode(path)
    verdict.seconds = time.monotonic() - began
    return verdict


def _forget_bytecode(path: Path) -> None:
    """Delete bytecode: Python compares whole seconds and sizes, which may not change."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def _run_tests(workshop: Workshop, copy: Path, verdict: Verdict) -> None:
    mutant, answer = verdict.mutant, copy.with_suffix(".json")
    answer.unlink(missing_ok=True)
    command = [sys.executable, str(copy / "tools" / "mutants_watch.py"), str(answer)]
    command += [",".join(mutant.databases), *mutant.tests]
    process = subprocess.Popen(  # noqa: S603
        command,
        cwd=copy,
        env=environment(copy),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    workshop.running.add(process)
    try:
        _, said = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        verdict.problem = f"its tests took longer than {LIMIT_SECONDS:.0f} s"
        return
    finally:
        _end(process)
        workshop.running.discard(process)
        shutil.rmtree(copy.with_suffix(".tmp"), ignore_errors=True)
    if not answer.exists():
        last = said.strip().splitlines()[-1:] or ["no output"]
        verdict.problem = f"pytest ended with {process.returncode}: {last[0]}"
        return
    found = json.loads(answer.read_text())
    verdict.caught = found["caught"]
    verdict.problem = found["problem"]


def _end(process: subprocess.Popen[str]) -> None:
    """End a process, first by an interrupt so that pytest stops its servers."""
    for how, patience in ((signal.SIGINT, 20.0), (signal.SIGKILL, 20.0)):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=patience)


# -- the command


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("only", nargs="*", help="names or subjects, with * as in a shell")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree; default: this one")
    parser.add_argument("--workers", type=int, default=2, help="how many run at once")
    given = parser.parse_args()
    try:
        return run(given.root.resolve(), given.only, given.workers)
    except Wrong as exc:
        print(f"mutants: {exc}", file=sys.stderr)
        return 2


def run(root: Path, only: Sequence[str], workers: int) -> int:
    """Try the selected bugs and print a line for each."""
    mutants = read_bugs(root / FOLDER)
    problems = [problem for mutant in mutants if (problem := stale(mutant, root))]
    if problems:
        raise Wrong("\nmutants: ".join(problems))
    chosen = choose(mutants, only)
    workshop = Workshop(root, workers)
    try:
        tests = sorted({test for mutant in chosen for test in mutant.tests})
        began = time.monotonic()
        check_clean(workshop, tests, workers)
        print(f"clean    {time.monotonic() - began:5.1f} s  the named tests pass", flush=True)
        verdicts = _try_all(workshop, chosen, workers)
    finally:
        workshop.close()
    caught = sum(verdict.is_caught for verdict in verdicts)
    print(f"mutants: {caught} of {len(chosen)} caught")
    if any(verdict.problem for verdict in verdicts):
        return 2
    return 0 if caught == len(chosen) else 1


def _try_all(workshop: Workshop, chosen: Sequence[Mutant], workers: int) -> list[Verdict]:
    width = max(len(mutant.name) for mutant in chosen)
    verdicts = []
    with ThreadPoolExecutor(workers) as pool:
        try:
            for verdict in pool.map(lambda mutant: try_mutant(workshop, mutant), chosen):
                print(verdict.line(width), flush=True)
                verdicts.append(verdict)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workshop.interrupt()
            raise
    return verdicts


def stale(mutant: Mutant, root: Path) -> str | None:
    """Return why an entry cannot be planted; None if it can."""
    try:
        planted(mutant, root)
    except Wrong as exc:
        return str(exc)
    return None


if __name__ == "__main__":
    sys.exit(main())
