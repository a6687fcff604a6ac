"""Texts that are built to be slow to process; none may exceed its time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest

from holdfast_rewrite.detect import local_detector
from holdfast_rewrite.enums import LONGEST_MESSAGE
from holdfast_rewrite.foreign_content import contacts_in, links_in, markup_in
from holdfast_rewrite.lexicon import Lexicon
from holdfast_rewrite.likeness import is_copied, is_unrelated
from holdfast_rewrite.new_facts import invented
from holdfast_rewrite.normalize_text import normalize_text
from holdfast_rewrite.ruleset import Rules
from holdfast_rewrite.second_look import loaded_words

# They take up to 20 times as long as an ordinary message of the same length. Without the ends that
# the patterns have, most take 200 to 8,000 times as long.
MOST_TIMES = 100
# What is over sooner is too short to be measured.
SHORTEST = 0.001
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def made_of(pieces: str, size: int, between: str) -> str:
    random = Random(5)
    words = ("".join(random.choices(pieces, k=size)) for _ in range(LONGEST_MESSAGE))
    return between.join(words)[:LONGEST_MESSAGE]


TEXTS = {
    "symbols": made_of("1!|6abcd", 7, " "),
    "symbols_in_one": made_of("1!|6abcd", 7, ""),
    "symbols_joined": made_of("1|6abcd", 3, "-"),
    "stretched": "".join(letter * 3 for letter in made_of("1!|6abc", 1, ""))[:LONGEST_MESSAGE],
    "set_apart": made_of(LETTERS, 1, "."),
    "stars": made_of(LETTERS + "**", 4, " "),
    "two_scripts": made_of("аеорсух" + LETTERS, 6, ""),  # noqa: RUF001
    "joined": made_of(LETTERS, 3, "-"),
    "digits": "9" * LONGEST_MESSAGE,
    "addresses": "a@" * (LONGEST_MESSAGE // 2),
    "signs": "@" * LONGEST_MESSAGE,
    "requests": "please don't, " * (LONGEST_MESSAGE // 14),
    "names": "Ab " * (LONGEST_MESSAGE // 3),
    "one_word": "ﬃ" * LONGEST_MESSAGE,
    "sayings": "\ufdfa" * LONGEST_MESSAGE,
}


ORDINARY = ("Could you please turn the music down after ten? I have to get up early. " * 30)[
    :LONGEST_MESSAGE
]
READERS: dict[str, Callable[[str], object]] = {
    "normalize_text": normalize_text,
    "lexicon": lambda text: lexicon().check(text),
    "rules": lambda text: rules().read(text),
    "likeness": lambda text: (is_copied(text, text[::-1]), is_unrelated(text, text[::-1], ())),
    "content": lambda text: (list(links_in(text)), list(contacts_in(text)), list(markup_in(text))),
    "second look": lambda text: list(loaded_words(text, text, source="en", target="en")),
    "detector": lambda text: local_detector().detect(text),
    "delta of the rewrite": lambda text: invented("Turn it down at 10, Tom.", text, "en"),
    "delta of the original": lambda text: invented(text, "Could Tom turn it down at 11?", "en"),
}


def lexicon() -> Lexicon:
    found = Lexicon.for_locale("en")
    assert found
    return found


def rules() -> Rules:
    found = Rules.for_locale("en")
    assert found
    return found


@pytest.fixture(scope="module")
def ordinary() -> dict[str, float]:
    """How long each reader takes for an ordinary message; the first time also loads."""
    for read in READERS.values():
        read(ORDINARY)
    return {name: max(fastest(read, ORDINARY), SHORTEST) for name, read in READERS.items()}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_written_to_be_slow_is_hardly_slower(
    name: str, ordinary: dict[str, float]
) -> None:
    text = TEXTS[name]

    slow = {
        reader
        for reader, read in READERS.items()
        if fastest(read, text) > MOST_TIMES * ordinary[reader]
    }

    assert slow == set()


def fastest(read: Callable[[str], object], text: str) -> float:
    took = []
    for _ in range(3):
        began = time.process_time()
        read(text)
        took.append(time.process_time() - began)
    return min(took)
