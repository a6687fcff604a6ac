"""Every link of the documentation leads to a file and to an anchor that exist."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.docs.page import anchors_of, links_of, name_of, pages

anchors = cache(anchors_of)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_the_links_of_a_page_lead_to_a_file_and_an_anchor(page: Path) -> None:
    broken = [link for link in links_of(page) if not exists(page, link)]

    assert broken == []


def exists(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)
