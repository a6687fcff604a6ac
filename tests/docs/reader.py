"""A reader of a page: writes its files, runs its code and its commands, compares their output.

Each page runs in a separate folder. Python blocks share a namespace. A block with
``title="jobs.py"`` is written to that file, one with ``title="jobs.py, at the end"`` is added to
it. In a ``console`` block, lines after ``$`` are commands and the others are their output; ``…``
stands for anything, alone on a line for any lines. A command that ends with ``^C`` runs until it
has printed the lines above. JOB_ID or WORKFLOW_ID in a command is the last id that another command
printed. A ``text`` block with ``title="Output"`` is the output of the Python block above it.

tests/docs/preparations.py contains the prerequisites of blocks, such as a server.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import io
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tomllib
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import distribution
from pathlib import Path

import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement

from holdfast.cli import main
from holdfast.config import Settings
from holdfast.telemetry import log
from tests.docs.page import ROOT, Block

ANYTHING = "…"
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A list shows the beginnings of ids.
_FIRST_COLUMN = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}[0-9a-f-]*", re.MULTILINE)
_REQUEST = re.compile(r'"rewrite_request_id": "([^"]+)"')
_PLACEHOLDER = re.compile(r"\b(?:JOB|WORKFLOW)_ID\b")
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))


class Differs(AssertionError):
    """A block has another result than the page shows."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line of a console, and its expected output: None if the page shows none."""

    line: str
    expected: str | None = None
    interrupted: bool = False

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line, comments=True)


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of a block: those after a prompt with their output, or a script's lines."""
    text = block.text.replace("\\\n", " ")
    if block.language != "console":
        yield from (Command(line) for line in text.splitlines() if line and line[0] != "#")
        return
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        line, _, printed = part.partition("\n")
        interrupted = printed.rstrip().endswith("^C")
        expected = printed.rstrip().removesuffix("^C").strip("\n")
        yield Command(line, expected or None, interrupted)


def check_output(block: Block, expected: str, printed: str) -> None:
    """Compare the output with that of the page; runs of blanks count as one."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == ANYTHING else _pattern(line) + r"\n"
        for line in map(_squeezed, expected.strip("\n").splitlines())
    )
    found = "".join(f"{_squeezed(line)}\n" for line in printed.strip("\n").splitlines())
    if not re.fullmatch(pattern, found):
        raise Differs(f"{block.place} should print\n{expected}\nbut prints\n{printed}")


def _squeezed(line: str) -> str:
    return re.sub(r"\s+", " ", line).rstrip()


def _pattern(line: str) -> str:
    return "[^\n]*?".join(map(re.escape, re.split(f" ?{ANYTHING} ?", line)))


class Shell:
    """Runs commands in a folder. Those of Holdfast run in this process, which is faster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last_code = 0

    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PATH": path, "PYTHONPATH": str(self.folder)}

    def run(self, command: Command) -> str:
        """Run one command and return what it prints; its exit code is kept."""
        match command.words:
            case ["echo", "$?"]:
                code, self.last_code = self.last_code, 0
                return f"{code}\n"
            case ["export", assignment]:
                name, _, value = assignment.partition("=")
                os.environ[name] = os.path.expandvars(value)
                return ""
            case ["holdfast", "demo"]:
                # Run by tests/faces/test_demo.py.
                return ""
            case ["make", *targets]:
                # Other tests run the commands of the targets.
                assert set(targets) <= TARGETS, f"no such target: {targets}"
                return ""
            case ["pip", "install", *names] | ["python", "-m", "pip", "install", *names]:
                self.install(names)
                return ""
            case ["python", file, *arguments] if file.endswith(".py") and file != "manage.py":
                return self.run_script(file, arguments)
            case ["python", "-m", "venv", _] | [".", _] | ["source", _]:
                return ""
            case ["holdfast", *arguments] if not command.interrupted and (
                "worker" not in arguments or ends(arguments)
            ):
                return self.run_here(arguments)
        return self.run_process(command)

    def install(self, names: list[str]) -> None:
        """Check that the named distributions, and their extras, are those of this environment."""
        for required in map(Requirement, (name for name in names if name[0] != "-")):
            found = distribution(required.name)
            offered = set(found.metadata.get_all("Provides-Extra") or ())
            assert required.extras <= offered, f"{required} offers only {offered}"

    def run_here(self, arguments: list[str]) -> str:
        forget_modules_below(self.folder)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        with CliRunner().isolation() as (_, _, output):
            try:
                main([os.path.expandvars(word) for word in arguments])
            except SystemExit as exc:
                self.last_code = exc.code if isinstance(exc.code, int) else 1
            finally:
                # A worker sets both, and the log configuration.
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                log.uninstall()
            return output.getvalue().decode()

    def run_script(self, file: str, arguments: list[str]) -> str:
        forget_modules_below(self.folder)
        printed, before = io.StringIO(), sys.argv
        sys.argv = [file, *arguments]
        try:
            with contextlib.redirect_stdout(printed):
                runpy.run_path(str(self.folder / file), run_name="__main__")
        except Exception:
            self.last_code = 1
            printed.write(traceback.format_exc())
        finally:
            sys.argv = before
        return printed.getvalue()

    def run_process(self, command: Command) -> str:
        process = subprocess.Popen(
            command.line,
            shell=True,
            executable="/bin/bash",
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        printed = ""
        if command.interrupted:
            wanted = (command.expected or "").strip().splitlines()[-1:]
            for line in process.stdout:
                printed += line
                if not wanted or re.search(_pattern(_squeezed(wanted[0])), _squeezed(line)):
                    break
            os.killpg(process.pid, signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
            self.last_code = 0
            return printed if wanted else printed + rest
        printed, _ = process.communicate(timeout=60)
        self.last_code = process.returncode
        return printed


def ends(arguments: list[str]) -> bool:
    """Whether a worker ends by itself, without a signal."""
    return "--until-idle" in arguments


def forget_modules_below(folder: Path) -> None:
    """Import the modules of a page again, as a new process does."""
    below = f"{folder}{os.sep}"
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "page" or (file and file.startswith(below)):
            del sys.modules[name]


class Reader:
    """Follows one page in a folder of its own."""

    def __init__(self, folder: Path, shell: Shell, postgres: Callable[[], str]) -> None:
        self.folder = folder
        self.shell = shell
        self.postgres = postgres
        self.module = types.ModuleType("page")
        self.printed = ""
        self.last_id = "JOB_ID"
        self.last_request = "REWRITE_REQUEST_ID"
        self.written: dict[str, Block] = {}
        self.commands: list[str] = []
        # The processes that a preparation started.
        self.started = contextlib.ExitStack()

    def close(self) -> None:
        self.started.close()

    def follow(self, blocks: list[Block]) -> None:
        """Execute the blocks of a page in their order."""
        for block in blocks:
            if block.reason is None:
                self.execute(block)
        idle = [block.place for name, block in self.written.items() if not self._was_run(name)]
        assert idle == [], "no command and no other block runs these files"

    def execute(self, block: Block) -> None:
        """Execute a block according to its language."""
        if block.preparation is not None:
            # Not at the top: it imports what only some pages need.
            from tests.docs import preparations

            getattr(preparations, block.preparation)(self)
        titled = block.title is not None and block.title != "Output"
        if titled:
            self.write(block)
        match block.language:
            case "python":
                self.printed = "" if titled else self.run_python(block)
            case "console" | "bash":
                self.run_commands(block)
            case "toml":
                self.read_toml(block)
            case "sql":
                self.run_sql(block)
            case "json":
                json.loads(block.text)
            case "yaml":
                yaml.safe_load(block.text)
            case "ini":
                configparser.ConfigParser(strict=False, interpolation=None).read_string(block.text)
            case "text":
                if block.title == "Output":
                    check_output(block, block.text, self.printed)
            case other:
                raise Differs(f"{block.place}: a block in {other or 'no language'} cannot be run")

    def write(self, block: Block) -> None:
        assert block.title is not None
        name, _, at_the_end = block.title.partition(", ")
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if at_the_end else ""
        path.write_text(before + block.text)
        if path.suffix == ".py":
            self.written[name] = block

    def run_python(self, block: Block) -> str:
        sys.modules["page"] = self.module
        tree = ast.parse(block.text, block.place)
        ast.increment_lineno(tree, block.line)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(tree, block.place, "exec"), vars(self.module))
            except Exception as exc:
                raise Differs(f"{block.place}\n{traceback.format_exc()}") from exc
        return printed.getvalue()

    def run_commands(self, block: Block) -> None:
        commands = list(commands_of(block))
        following = [command.line for command in commands[1:]] + [""]
        for command, after in zip(commands, following, strict=True):
            self.commands.append(command.line)
            line = _PLACEHOLDER.sub(self.last_id, command.line)
            line = line.replace("REWRITE_REQUEST_ID", self.last_request)
            command = replace(command, line=line)
            printed = self.shell.run(command)
            self.last_request = ([self.last_request, *_REQUEST.findall(printed)])[-1]
            # The first column of a list is the id of the row; others may be ids of its tenant.
            found = _FIRST_COLUMN.findall(printed) or _ID.findall(printed)
            if _PLACEHOLDER.search(self.commands[-1]):
                # The whole id of the same job.
                found = [each for each in found if each.startswith(self.last_id)][:1]
            self.last_id = (found or [self.last_id])[-1]
            if self.shell.last_code and after != "echo $?":
                raise Differs(f"{block.place}: {command.line} failed with\n{printed}")
            if command.expected is not None:
                check_output(block, command.expected, printed)

    def read_toml(self, block: Block) -> None:
        """Load settings; another file is parsed."""
        if block.title not in (None, "holdfast.toml"):
            tomllib.loads(block.text)
            return
        path = self.folder / (block.title or "untitled.toml")
        path.write_text(block.text)
        Settings.load(file=path, env={})

    def run_sql(self, block: Block) -> None:
        """Execute SQL on PostgreSQL, or on the SQLite file of the page if the block names it."""
        if "sqlite" in block.options.lower():
            import sqlite3

            with contextlib.closing(sqlite3.connect(self.folder / "holdfast.db")) as file:
                file.executescript(block.text)
            return
        import psycopg

        with psycopg.connect(self.postgres()) as connection:
            connection.execute(block.text.encode())
            connection.rollback()

    def _was_run(self, name: str) -> bool:
        path = self.folder / name
        if any(name in line for line in self.commands):
            return True
        return any((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")) or path.stem in (
            "__init__",
            "conftest",
        )
