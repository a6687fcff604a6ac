"""The example extension is a distribution like any other: built, installed beside ours, tested."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.packaging.environment import ROOT, Environment, build_wheel

EXAMPLE = ROOT / "examples" / "extension"


def test_the_tests_of_the_example_pass_beside_the_built_wheels(
    wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    built = {**wheels, "holdfast-pager": build_wheel(EXAMPLE, tmp_path)}
    together = Environment.create(tmp_path / "env", built, "holdfast-pager", "pytest")

    done = together.run(
        "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = together.run("holdfast", "pager", "4711")
    assert shown.stdout == "4711 can be paged\n", shown.stderr
