"""A newcomer's hour: the first pages, followed literally with built wheels in a new environment."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docs.page import ROOT, Block, blocks_of
from tests.docs.reader import Command, Differs, Reader, Shell
from tests.docs.test_blocks import NEWCOMER
from tests.packaging.environment import VARIABLES, Environment


class NewcomerShell(Shell):
    """Runs every command as a process of an environment that has only the packages of a page."""

    def __init__(self, folder: Path, installed: Environment) -> None:
        super().__init__(folder)
        self.installed = installed
        self.exported: dict[str, str] = {}

    def environment(self) -> dict[str, str]:
        known = super().environment()
        kept = {name: known[name] for name in VARIABLES if name in known and name != "PATH"}
        path = f"{self.installed.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        return {**kept, "PATH": path, **self.exported}

    def run(self, command: Command) -> str:
        match command.words:
            case ["pip", "install", *names]:
                for name in names:
                    self.installed.install(Requirement(name))
                return ""
            case ["export", assignment]:
                name, _, value = assignment.partition("=")
                self.exported[name] = value
                return ""
            case ["python", "-m", "venv", _] | [".", _]:
                return ""
        return self.run_process(command)


# One Python session: executes each line of JSON, and answers with its output.
SESSION = """
import contextlib, io, json, sys, traceback
for line in sys.stdin:
    printed, problem = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(json.loads(line), "<page>", "exec"), globals())
        except Exception:
            problem = traceback.format_exc()
    print(json.dumps([printed.getvalue(), problem]), flush=True)
"""


class NewcomerReader(Reader):
    """Runs the Python blocks of a page in one session of the environment."""

    shell: NewcomerShell
    session: subprocess.Popen[str] | None = None

    def run_python(self, block: Block) -> str:
        if self.session is None:
            self.session = subprocess.Popen(
                [str(self.shell.installed.folder / "bin" / "python"), "-c", SESSION],
                cwd=self.folder,
                env=self.shell.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self.session.stdin is not None
        assert self.session.stdout is not None
        self.session.stdin.write(f"{json.dumps(block.text)}\n")
        self.session.stdin.flush()
        printed, problem = json.loads(self.session.stdout.readline())
        if problem is not None:
            raise Differs(f"{block.place}\n{problem}")
        return str(printed)

    def close(self) -> None:
        super().close()
        if self.session is not None:
            with self.session:
                self.session.kill()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", sorted(NEWCOMER))
def test_a_newcomer_can_follow_the_page(
    page: str, wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    installed = Environment.create(tmp_path / "env", wheels)
    shell = NewcomerShell(folder, installed)

    reader = NewcomerReader(folder, shell, postgres=lambda: "")
    with contextlib.closing(reader):
        reader.follow(list(blocks_of(ROOT / page)))

    assert (
        (installed.site_packages / "holdfast")
        .resolve()
        .is_relative_to(wheels["holdfast-jobs"].resolve())
    )
