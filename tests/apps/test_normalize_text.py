# ruff: noqa: RUF001 — letters that look like others are what these tests are about
"""One form for every way to write a text, and what a disguise hides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_rewrite.normalize_text import disguises, normalize_text, plain


def words_behind(text: str, letters: frozenset[str] = frozenset()) -> set[str]:
    found = list(disguises(normalize_text(text), letters))
    return {word for disguise in found for word in (*disguise.words, disguise.run)}


def matches(text: str, word: str) -> bool:
    return any(
        disguise.starred is not None and disguise.starred.fullmatch(word)
        for disguise in disguises(normalize_text(text))
    )


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("The KITCHEN", "the kitchen"),
        ("Straße", "strasse"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ("𝓼𝓬𝓻𝓲𝓹𝓽", "script"),
        ("cafe\u0301", "café"),
        ("you\u2019re", "you're"),
        ("k\u200bi\u200dt\u00adc\ufeffhen", "kitchen"),
        ("k\u0336i\u0336t\u0336", "kit"),
        ("k\u064bi\u05b0t\ufe0f\u0e31c\U000e0100h", "kitch"),
        ("k\ufdfai", "k i"),
        ("кitсhеn is кухня", "kitchen is кухня"),
        ("k\u0578\u0585ck i\u057d", "knock iu"),
        ("🅺🅸🆃🅲🅷🅴🅽 🅚🅘🅣", "kitchen kit"),
        ("to the \u202enehctik\u202c please", "to the kitchen please"),
        ("\u2066kitchen\u2069", "kitchen"),
        ("wait…", "wait..."),
    ],
)
def test_a_text_folds_to_what_its_reader_sees(text: str, folded: str) -> None:
    assert normalize_text(text) == folded


@given(st.text())
def test_folding_a_folded_text_changes_nothing_but_what_reads_backwards(text: str) -> None:
    assert normalize_text(normalize_text(text)) == normalize_text(text)


@given(st.text())
def test_looking_for_disguises_never_fails_and_stays_inside_the_text(text: str) -> None:
    folded = normalize_text(text)

    assert all(0 <= found.start < found.end <= len(folded) for found in disguises(folded))


def test_letters_without_a_decomposition_lose_their_diacritics_too() -> None:
    assert plain("łódź, æther, ığdır, señor") == "lodz, aether, igdir, senor"


@pytest.mark.parametrize(
    "text",
    [
        "k1tchen",
        "k!tchen",
        "kitch3n",
        "KITCH€N",
        "kiiiitchennnn",
        "kiiitttchen",
        "k i t c h e n",
        "k.i.t.c.h.e.n",
        "k-i-t-c-h-e-n",
        "kit.chen",
        "kit_chen",
        "kïtchèn",
        "«k1tchen!!!»",
        "k 1 t c h 3 n",
    ],
)
def test_a_disguised_word_is_read_as_the_plain_word(text: str) -> None:
    assert "kitchen" in words_behind(text)


def test_an_eszett_set_apart_is_two_letters_of_its_word() -> None:
    assert "strasse" in words_behind("S t r a ß e")


@pytest.mark.parametrize("text", ["k*tchen", "k**chen", "kitch*n", "k#tchen", "k******"])
def test_a_starred_word_matches_every_word_it_may_mean(text: str) -> None:
    assert matches(text, "kitchen")
    assert not matches(text, "bathroom")


@pytest.mark.parametrize(
    "text",
    [
        "Could you clean the kitchen?",
        "*please*",
        "See the note*",
        "It is fifty-fifty, isn't it?",
        "Meet me at 10:30 or 22:00.",
        "A. B. and I",
    ],
)
def test_an_ordinary_text_hides_no_kitchen(text: str) -> None:
    assert "kitchen" not in words_behind(text)
    assert not matches(text, "kitchen")


def test_an_ordinary_text_is_not_even_looked_at_closely() -> None:
    assert list(disguises("could you clean the kitchen, please? it would help me a lot.")) == []


def test_the_letters_of_a_language_are_no_disguise() -> None:
    assert "ano" in words_behind("año")
    assert "ano" not in words_behind("año", frozenset("ñ"))


@pytest.mark.parametrize(
    "text",
    ["1!|" * 500, "x" + "aaabbbccc" * 160, "a " * 750, "f*" + "k" * 1_400, "*a" * 750, "a.b" * 500],
)
def test_a_long_row_of_tricks_costs_no_more_than_its_length(text: str) -> None:
    found = list(disguises(normalize_text(text)))

    assert sum(len(word) for disguise in found for word in disguise.words) < 300 * len(text)
