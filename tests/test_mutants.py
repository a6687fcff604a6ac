"""The list of planted bugs matches the tree, and the tool distinguishes caught and escaped bugs."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from tests.tree import ROOT, without_garbage_collection


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their own module up.
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


mutants = _tool()
LISTED = mutants.read_bugs(ROOT / mutants.FOLDER)


def test_every_planted_bug_has_its_fragment_once_in_the_tree() -> None:
    with without_garbage_collection():
        stale = [mutants.stale(mutant, ROOT) for mutant in LISTED]

    assert [problem for problem in stale if problem] == []


def test_every_test_that_a_planted_bug_names_exists() -> None:
    named = sorted({test for mutant in LISTED for test in mutant.tests})

    assert [test for test in named if not _exists(*test.split("::"))] == []


def _exists(file: str, name: str) -> bool:
    return f"def {name}(" in (ROOT / file).read_text()


def test_every_part_of_the_promise_has_planted_bugs() -> None:
    subjects = {mutant.subject for mutant in LISTED}

    assert {"engine", "batch", "outbox", "tenancy", "audit"} <= subjects
    assert len(LISTED) >= 60


# -- the tool itself, on a tree of one function and one test

CODE = """
def half(number):
    return number // 2
"""
TESTS = """
from holdfast import half

def test_half_of_four_is_two():
    assert half(4) == 2
"""
ENTRY = """
[[mutant]]
name = "{name}"
file = "packages/holdfast-jobs/holdfast/__init__.py"
find = '{find}'
replace = '{replace}'
breaks = "Half of a number is another number."
tests = ["tests/test_half.py"]
"""


def make_tree(folder: Path, *entries: str, tests: str = TESTS) -> Path:
    for name, text in {
        "packages/holdfast-jobs/holdfast/__init__.py": CODE,
        # The pytest plugin of the installed project, which pytest looks for.
        "packages/holdfast-jobs/holdfast/testing.py": "",
        "tests/test_half.py": tests,
        f"{mutants.FOLDER}/arithmetic.toml": "".join(entries),
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for script in ("mutants.py", "mutants_watch.py"):
        shutil.copy(ROOT / "tools" / script, folder / "tools" / script)
    return folder


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run_tool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the tool in this process. The tests of a tree run in processes of their own."""
    # Only the plugins that the tool itself loads.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin,pytest_timeout")

    def run(folder: Path, *names: str) -> Done:
        given = ["mutants.py", "--root", str(folder), "--workers", "1", *names]
        monkeypatch.setattr(sys, "argv", given)
        code = mutants.main()
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return run


CAUGHT = ENTRY.format(name="thirds", find="// 2", replace="// 3")
ESCAPED = ENTRY.format(name="rounds-up", find="number // 2", replace="-(-number // 2)")


def test_the_tool_says_what_was_caught_and_what_escaped(tmp_path: Path, run_tool: Run) -> None:
    done = run_tool(make_tree(tmp_path, CAUGHT, ESCAPED))

    lines = [line.split() for line in done.out.splitlines()]
    assert [line[0] for line in lines] == ["clean", "caught", "ESCAPED", "mutants:"]
    assert lines[1][-1] == "test_half.py::test_half_of_four_is_two"
    assert done.out.endswith("mutants: 1 of 2 caught\n")
    assert done.code == 1
    assert (
        tmp_path / "packages" / "holdfast-jobs" / "holdfast" / "__init__.py"
    ).read_text() == CODE


def test_a_name_selects_one_planted_bug(
    tmp_path: Path, run_tool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The run without a bug is the subject of another test.
    monkeypatch.setattr(mutants, "check_clean", lambda *_: None)

    done = run_tool(make_tree(tmp_path, CAUGHT, ESCAPED), "thi*")

    assert done.out.endswith("mutants: 1 of 1 caught\n")
    assert done.code == 0


def test_a_planted_text_that_cannot_run_is_an_error_and_not_a_catch(
    tmp_path: Path, run_tool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "check_clean", lambda *_: None)
    broken = ENTRY.format(name="nonsense", find="number // 2", replace="unknown // 2")

    done = run_tool(make_tree(tmp_path, broken))

    assert "ERROR" in done.out
    assert "NameError" in done.out
    assert done.code == 2


def test_tests_that_fail_without_a_bug_prove_nothing(tmp_path: Path, run_tool: Run) -> None:
    done = run_tool(make_tree(tmp_path, CAUGHT, tests=TESTS.replace("== 2", "== 5")))

    assert "the tests do not pass without a planted bug" in done.err
    assert done.code == 2


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (CAUGHT.replace("// 2", "// 7"), "thirds: stale, its fragment occurs 0 times"),
        (CAUGHT.replace("// 2", "number"), "thirds: stale, its fragment occurs 2 times"),
        (
            CAUGHT.replace("__init__", "gone"),
            "thirds: stale, packages/holdfast-jobs/holdfast/gone.py does not exist",
        ),
        (CAUGHT.replace("// 3", "// 2"), "thirds: changes nothing"),
        (CAUGHT.replace("// 3", "/) 3"), "thirds: line 3 of the result is no Python"),
        (CAUGHT + CAUGHT, "named twice: thirds"),
        (CAUGHT + 'databases = ["mysql"]', "databases must be some of sqlite, postgres"),
        (CAUGHT.replace("breaks", "broken"), "thirds: unknown keys: broken"),
        (
            CAUGHT + 'within = "third"',
            "thirds: stale, third is in packages/holdfast-jobs/holdfast/__init__.py 0 times",
        ),
    ],
)
def test_an_entry_that_cannot_be_planted_is_an_error_before_anything_runs(
    tmp_path: Path, run_tool: Run, entry: str, says: str
) -> None:
    done = run_tool(make_tree(tmp_path, entry))

    assert says in done.err
    assert (done.out, done.code) == ("", 2)
