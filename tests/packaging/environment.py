"""Virtual environments that contain built wheels and what they require. Nothing is downloaded.

Each wheel is unpacked once, and linked into every environment that installs it, so that its
bytecode is compiled once. Third-party distributions are linked from the environment that runs the
tests, as the metadata of the wheels requires them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path, PurePath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
WHEELS = (
    "holdfast-jobs",
    "holdfast-llm",
    "holdfast-simulator",
    "holdfast-rewrite",
    "holdfast-review",
)
VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "SYSTEMROOT")


# The equivalent of ``python -m hatchling build -t wheel``, for several distributions in one
# process.
BUILD = """
import sys
from hatchling.builders.wheel import WheelBuilder
folder, *sources = sys.argv[1:]
for source in sources:
    list(WheelBuilder(source).build(directory=folder, versions=["standard"]))
"""


def build_wheels(folder: Path, *sources: Path) -> dict[str, Path]:
    """Build the wheels of distributions and return the folders that they are unpacked in."""
    command = [sys.executable, "-c", BUILD, str(folder), *map(str, sources)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    unpacked = {}
    for made in folder.glob("*.whl"):
        name = canonicalize_name(made.name.split("-")[0])
        unpacked[name] = folder / name
        with zipfile.ZipFile(made) as archive:
            archive.extractall(unpacked[name])
    assert len(unpacked) == len(sources)
    return unpacked


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of its own, and the wheels that may be installed into it."""

    folder: Path
    wheels: Mapping[str, Path]

    @classmethod
    def create(cls, folder: Path, wheels: Mapping[str, Path], *names: str) -> Environment:
        """An environment with the distributions *names*, such as ``holdfast-jobs[metrics]``."""
        venv.create(folder, with_pip=False, symlinks=True)
        made = cls(folder, wheels)
        for name in names:
            made.install(Requirement(name))
        return made

    @property
    def site_packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def install(self, required: Requirement) -> None:
        """Install a distribution and its requirements: a built wheel, or a link to ours."""
        name = canonicalize_name(required.name)
        found = self._find(name)
        if found is None and name in self.wheels:
            for entry in self.wheels[name].iterdir():
                (self.site_packages / entry.name).symlink_to(entry)
            found = self._find(name)
            assert found is not None
            self._write_scripts(found)
        elif found is None:
            found = distribution(name)
            for entry in _top_level(found):
                (self.site_packages / entry.name).symlink_to(entry)
        elif not required.extras:
            return
        for text in found.requires or ():
            needed = Requirement(text)
            if any(_applies(needed, extra) for extra in required.extras or {""}):
                self.install(needed)

    def run(
        self,
        *command: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment without our variables that could add a path."""
        kept = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        return subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            cwd=cwd or self.folder,
            env={**kept, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def _find(self, name: str) -> Distribution | None:
        for folder in self.site_packages.glob("*.dist-info"):
            if canonicalize_name(folder.name.split("-")[0]) == name:
                return PathDistribution(folder)
        return None

    def _write_scripts(self, installed: Distribution) -> None:
        for point in installed.entry_points:
            if point.group == "console_scripts":
                script = self.folder / "bin" / point.name
                script.write_text(
                    f"#!{self.folder}/bin/python\n"
                    f"from {point.module} import {point.attr}\n{point.attr}()\n"
                )
                script.chmod(0o755)


def _applies(needed: Requirement, extra: str) -> bool:
    return needed.marker is None or needed.marker.evaluate({"extra": extra})


def _top_level(installed: Distribution) -> Iterator[Path]:
    """The entries of site-packages that belong to an installed distribution."""
    names = {PurePath(file).parts[0] for file in installed.files or ()}
    for name in sorted(names - {"..", "__pycache__"}):
        yield Path(str(installed.locate_file(name)))
