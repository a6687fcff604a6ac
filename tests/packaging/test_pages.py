"""The pages about adding things show the code of the example, which its own tests run."""

from __future__ import annotations

import re

import pytest

from tests.packaging.environment import ROOT

EXAMPLE = ROOT / "examples" / "extension"


@pytest.mark.parametrize("page", ["adding-a-channel.md", "adding-a-provider.md"])
def test_the_code_of_a_page_is_in_the_example(page: str) -> None:
    sources = [path.read_text() for path in EXAMPLE.rglob("*") if path.suffix in (".py", ".toml")]

    blocks = re.findall(r"^```\w+\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)

    assert len(blocks) >= 2
    for block in blocks:
        assert any(block.strip() in source for source in sources), block
