"""The example extension is a distribution like any other: built, installed beside ours, tested."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.packaging.environment import ROOT, Environment, build_wheels

EXAMPLE = ROOT / "examples" / "extension"


def test_the_tests_of_the_example_pass_beside_the_built_wheels(
    wheels: Mapping[str, Path], postgres_url: str, tmp_path: Path
) -> None:
    built = {**wheels, **build_wheels(tmp_path, EXAMPLE)}
    together = Environment.create(tmp_path / "env", built, "holdfast-pager[test]")

    done = together.run(
        "python",
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", str(EXAMPLE / "tests")),
        env={"PAGER_POSTGRES_URL": postgres_url},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PAGER_POSTGRES_URL" not in done.stdout, done.stdout
    shown = together.run("holdfast", "pager", "4711")
    assert shown.stdout == "4711 can be paged\n", shown.stderr
