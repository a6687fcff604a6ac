"""The code on the pages about extending Holdfast runs.

The code of three pages is that of the example, which its own tests run. This file tests the lexicon
of the page about languages.
"""

from __future__ import annotations

import re

import pytest

from holdfast_rewrite.lexicon import Lexicon
from tests.packaging.environment import ROOT

EXAMPLE = ROOT / "examples" / "extension"
SUFFIXES = (".py", ".sql", ".toml")


def blocks_of(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```\w+[^\n]*\n(.*?)^```", text, re.M | re.S)


@pytest.mark.parametrize("page", ["adding-a-channel.md", "adding-a-provider.md", "extensions.md"])
def test_the_code_of_a_page_is_in_the_example(page: str) -> None:
    sources = [path.read_text() for path in EXAMPLE.rglob("*") if path.suffix in SUFFIXES]

    blocks = blocks_of(page)

    assert len(blocks) >= 4
    for block in blocks:
        assert any(block.strip("\n") in source for source in sources), block


def test_the_lexicon_of_the_page_about_languages_finds_what_it_says() -> None:
    (text,) = blocks_of("adding-a-language.md")

    lexicon = Lexicon.read(text, locale="sv")

    assert lexicon.check("Stäng av den jävla musiken!").codes == ("vulgarity",)
    assert lexicon.check("Jag vet att du helst föredrar lugna ord.").codes == (
        "preference_disclosure",
    )
    assert lexicon.check("Du diskar och städar här alltid.").codes == ()
