"""tools/structure.py measures both layouts: one package, and one distribution each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.structure import (
    Layout,
    bypassing_commands,
    core_size,
    failing_imports,
    only_blocks,
)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for folder in path.parents:
            if root in folder.parents and "-" not in folder.name and folder.name != "packages":
                (folder / "__init__.py").touch()


CORE = {
    "engine/worker.py": "import asyncio\n",
    "cli/jobs.py": "from holdfast.operate import jobs\n",
    "cli/queues.py": "def show():\n    from holdfast.engine import worker\n",
    "engine/job.sql": "SELECT 1 {only postgres}FOR UPDATE{end}\n",
}


@pytest.mark.parametrize(
    ("core", "llm", "package"),
    [
        ("holdfast", "holdfast/batch", "holdfast.batch"),
        ("packages/holdfast-jobs/holdfast", "packages/holdfast-llm/holdfast_llm", "holdfast_llm"),
    ],
)
def test_a_module_that_needs_a_removed_package_is_counted(
    tmp_path: Path, core: str, llm: str, package: str
) -> None:
    write(tmp_path, {f"{core}/{name}": text for name, text in CORE.items()})
    write(tmp_path, {f"{llm}/send.py": "", f"{core}/app.py": f"from {package} import send\n"})
    write(tmp_path, {f"{core}/testing.py": "from holdfast.app import Holdfast\n"})
    late = f"def send():\n    import {package}.send\n"
    write(tmp_path, {f"{core}/late.py": late})
    layout = Layout.find(tmp_path)

    # app imports it, testing imports app, late only when it is called.
    assert failing_imports(layout).split(", ")[0] == "2"
    assert bypassing_commands(layout) == "1 of 2 (queues)"
    assert only_blocks(layout) == 1


def test_the_core_is_counted_without_the_other_distributions(tmp_path: Path) -> None:
    write(tmp_path, {"packages/holdfast-jobs/holdfast/app.py": "a = 1\nb = 2\n"})
    write(tmp_path, {"packages/holdfast-llm/holdfast_llm/send.py": "c = 3\n"})

    assert core_size(Layout.find(tmp_path)) == "2 / 2"
