# ruff: noqa: RUF001 — disguises are written with letters that look like others
"""The lexicon of a language, and the phrases it is written in."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast_rewrite import lexicon as module
from holdfast_rewrite import phrase_matcher
from holdfast_rewrite.enums import Code, Mark
from holdfast_rewrite.lexicon import BadLexicon, Lexicon, check_text

DATA = sorted((Path(module.__file__).parent / "lexicons").glob("??.toml"))
LOCALES = [path.stem for path in DATA]


def made(**sections: Any) -> Lexicon:
    return Lexicon({"version": "7", "locale": "xx", **sections}, locale="xx")


def finds(wanted: str, text: str) -> bool:
    return bool(made(preference_disclosure={"phrases": [wanted]}).check(text).codes)


# -- phrases


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("your fault", "It is YOUR  fault."),
        ("your fault", "your, fault"),
        ("your fault", "your... fault"),
        ("messy*", "a messyish room"),
        ("*idiot", "du Vollidiot"),
        ("*shot*", "the moonshots"),
        ("(my|the house) rules", "those are the house rules"),
        ("it (really)? hurts", "it hurts"),
        ("it (really)? hurts", "it really hurts"),
        ("you ... always", "you do it here always"),
        ("you ... always", "you always"),
        ("^* your", "Sort your room."),
        ("you're late", "you’re late"),
        ("half-baked", "a half baked idea"),
        ("^clean", "Clean it."),
        ("^clean", "Well, clean it."),
        ("^clean", "I am back.\nclean it"),
        ("año", "un ano"),
        ("año", "un año"),
        ("🖕", "and then 🖕🏽"),
    ],
)
def test_a_phrase_is_found(wanted: str, text: str) -> None:
    assert finds(wanted, text)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("your fault", "your faults"),
        ("your fault", "I like your. Fault lines are deep."),
        ("ass", "the class has passed its assessment"),
        ("messy*", "unmessy"),
        ("you ... always", "you do it every day always"),
        ("^clean", "I clean it."),
        ("^clean", "Could you sweep, clean and dry it?"),
        ("ano", "un año"),
        ("^* your", "I tidied your room."),
        ("you * always", "you always"),
        ("(my|the house) rules", "the rules"),
    ],
)
def test_a_phrase_is_not_found_where_it_is_not(wanted: str, text: str) -> None:
    assert not finds(wanted, text)


def test_a_command_may_follow_an_opener_at_the_beginning_but_not_a_list() -> None:
    lexicon = made(openers=["and", "so"], preference_disclosure={"phrases": ["^clean it"]})

    assert lexicon.check("So clean it.").codes
    assert not lexicon.check("I wash and clean it.").codes


def test_nothing_inside_an_exception_is_a_hit_and_everything_outside_is() -> None:
    lexicon = made(preference_disclosure={"phrases": ["your fault"], "except": ["not your fault"]})

    assert not lexicon.check("It is not your fault.").codes
    assert lexicon.check("It is not your fault, it is your fault.").codes


def test_an_exception_excuses_only_its_own_code() -> None:
    lexicon = made(
        preference_disclosure={"phrases": ["your fault"], "except": ["not your fault"]},
        slur={"words": ["fault"]},
    )

    assert lexicon.check("not your fault").codes == (Code.SLUR,)


def test_another_spelling_of_a_letter_is_the_same_word() -> None:
    lexicon = made(spellings={"ö": "oe"}, vulgarity={"words": ["blöd*"]})

    assert all(lexicon.check(text).codes for text in ("blöd", "blod", "bloed", "BLÖDER"))


@pytest.mark.parametrize(
    "wanted",
    ["", "(a|b", "a)", "a?", "()", "(a|)", "{nobody}", "*", "... *", "a.b", "a ^b"],
)
def test_a_phrase_that_cannot_be_read_is_refused(wanted: str) -> None:
    with pytest.raises(BadLexicon, match="xx"):
        made(preference_disclosure={"phrases": [wanted]})


@pytest.mark.parametrize(
    "document",
    [
        {"version": "1", "locale": "yy"},
        {"locale": "xx"},
        {"version": "1", "locale": "xx", "preference_disclosure": {"words": ["a"]}},
        {"version": "1", "locale": "xx", "vulgarity": {"phrases": ["a"]}},
        {"version": "1", "locale": "xx", "new_fact": {"phrases": ["a"]}},
        {"version": "1", "locale": "xx", "rudeness": {"phrases": ["a"]}},
        {"version": "1", "locale": "xx", "preference_disclosure": {"phrases": 3}},
    ],
)
def test_data_that_says_something_else_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(BadLexicon):
        Lexicon(document, locale="xx")


def test_data_that_is_no_toml_is_refused() -> None:
    with pytest.raises(BadLexicon, match="not valid TOML"):
        Lexicon.read("version = ", locale="xx")


# -- disguises


@pytest.mark.parametrize(
    "text",
    [
        "what a darn mess",
        "d4rn",
        "d@rn it",
        "d*rn",
        "d**n!!!",
        "d***",
        "daaaarn",
        "d a r n",
        "d.a.r.n",
        "I d a r n",
        "da.rn",
        "dаrn",
        "dàrn",
        "d\u200barn",
        "\u202enrad\u202c",
        "D4RNED",
        "d*rned thing",
    ],
)
def test_a_vulgar_word_is_found_behind_its_disguise(text: str) -> None:
    assert made(vulgarity={"words": ["darn*"]}).check(text).codes == (Code.VULGARITY,)


@pytest.mark.parametrize("text", ["d@wn", "barn", "yarn", "d*wnstairs", "dar na", "d. and a. rn"])
def test_another_word_is_not(text: str) -> None:
    assert not made(vulgarity={"words": ["darn*"]}).check(text).codes


def test_only_vulgar_words_and_slurs_are_looked_for_behind_disguises() -> None:
    assert not made(preference_disclosure={"phrases": ["fault"]}).check("f4ult").codes
    assert made(slur={"words": ["fault"]}).check("f4ult").codes == (Code.SLUR,)


# -- what is found


def test_a_code_fails_the_text() -> None:
    lexicon = made(preference_disclosure={"phrases": ["your fault"]})
    found = lexicon.check("Well, your fault.")
    clean = lexicon.check("Thank you.")

    assert (found.lexicon_pass, found.tone_safety) == (False, Mark.FAIL)
    assert (clean.lexicon_pass, clean.tone_safety, clean.hits) == (True, Mark.PASS, ())


def test_findings_hold_places_and_never_words() -> None:
    findings = made(preference_disclosure={"phrases": ["your fault"]}).check(
        "It is your fault, Rosalind."
    )

    assert [(hit.start, hit.end) for hit in findings.hits] == [(6, 16)]
    assert "fault" not in repr(findings)
    assert "Rosalind" not in repr(findings)


def test_what_a_lexicon_remembers_of_a_text_is_its_own_words_alone() -> None:
    lexicon = made(preference_disclosure={"phrases": ["your ... fault", "messy*"]})
    lexicon.check("It is your neighbour Rosalind's fault, messyness and all.")
    moves = [seen for state in lexicon._phrases._states.values() for seen in state.moves]
    remembered = {text for word, *ends in moves for text in (word, *sum(ends, ())) if text}

    assert remembered
    assert remembered <= {"your", "fault", "messy"}


def test_a_lexicon_forgets_before_it_remembers_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phrase_matcher, "MOST_REMEMBERED", 10)
    lexicon = made(preference_disclosure={"phrases": [f"word{at} again" for at in range(100)]})

    assert all(lexicon.check(f"It is word{at} again.").codes for at in range(100))
    assert sum(len(state.moves) for state in lexicon._phrases._states.values()) <= 10
    assert len(lexicon._phrases._states) <= 12


@pytest.mark.parametrize(
    "text",
    ["f~u~c~k", "f·u·c·k", "(f)(u)(c)(k)", "f'u'c'k", "ꜰᴜᴄᴋ", "sh\U000e0100it", "f\u064buck"],
)
def test_no_sign_between_or_on_the_letters_hides_a_word(text: str) -> None:
    assert check_text("en", text)["violations"] == ["vulgarity"]


def test_letters_of_another_script_hide_no_insult() -> None:
    assert check_text("en", "You sh\u0456t.")["violations"] == ["vulgarity"]


@pytest.mark.parametrize(
    "text", ["It is bus 4 5 5.", "We live in flat 4-5-5.", "Could you push-it?", "I wish.It helps."]
)
def test_numbers_and_words_side_by_side_hide_nothing(text: str) -> None:
    assert check_text("en", text)["violations"] == []


# -- the languages


@pytest.mark.parametrize("locale", ["de", "en", "es", "fr", "it", "nl", "pl", "pt"])
def test_a_supported_language_has_its_lexicon_with_a_version(locale: str) -> None:
    lexicon = Lexicon.for_locale(locale)

    assert lexicon is not None
    assert lexicon.locale == locale
    assert lexicon.version.startswith(f"{locale}-")
    assert Lexicon.for_locale(locale) is lexicon


@pytest.mark.parametrize("path", DATA, ids=LOCALES)
def test_a_lexicon_names_its_sources_and_fills_every_section(path: Path) -> None:
    document = tomllib.loads(path.read_text("utf-8"))

    assert all({"name", "licence", "use"} == set(source) for source in document["sources"])
    assert "CC-BY-4.0" in {source["licence"] for source in document["sources"]}
    assert set(module.SECTIONS) <= set(document)


def test_where_there_is_no_lexicon_nothing_passes_and_nothing_fails() -> None:
    assert check_text("sv", "din fuck jävel") == {
        "lexicon_pass": None,
        "violations": [],
        "tone_safety": None,
        "lexicon_version": "none",
    }


@pytest.mark.parametrize("locale", ["", "EN", "../lexicons/en", "en-US", "e", "english", "en.toml"])
def test_only_a_plain_language_can_name_a_lexicon(locale: str) -> None:
    assert Lexicon.for_locale(locale) is None


@pytest.mark.parametrize(
    ("locale", "text", "code"),
    [
        ("de", "S c h e i ß e, schon wieder", "vulgarity"),
        ("en", "oh f\u057dck", "vulgarity"),
        ("en", "oh 🅵🆄🅲🅺", "vulgarity"),
        ("en", "oh fcuk", "vulgarity"),
        ("en", "Since you like gentle messages, I am asking softly.", "preference_disclosure"),
    ],
)
def test_what_hides_in_the_packaged_languages_is_found(locale: str, text: str, code: str) -> None:
    assert check_text(locale, text)["violations"] == [code]


@pytest.mark.req("V-02")
def test_a_text_is_checked_in_its_own_language_only() -> None:
    assert check_text("de", "Die Kuh ist dick.")["violations"] == []
    assert check_text("en", "What a dick.")["violations"] == ["vulgarity"]
    assert check_text("en", "Mach deine Scheißmusik leiser.")["violations"] == []


def test_the_answer_names_pass_codes_tone_and_version() -> None:
    answer = check_text("en", "You bitch.")

    assert answer == {
        "lexicon_pass": False,
        "violations": ["vulgarity"],
        "tone_safety": "fail",
        "lexicon_version": "en-3",
    }


@pytest.mark.parametrize(
    "text",
    [
        "I have been crazy busy.",
        "It is not your fault.",
        "My brother has ADHD.",
        "Dick Van Dyke is on television.",
        "You must be tired, I can cook.",
        "Maybe we could talk.",
        "My cousin lives in Scunthorpe, in Essex.",
        "Take your time.",
    ],
)
def test_a_word_that_is_rude_elsewhere_is_no_hit_in_a_kind_sentence(text: str) -> None:
    assert check_text("en", text)["tone_safety"] == "pass"


@pytest.mark.parametrize("text", ["", " ", "😀😀", "1234", "\u200b", "(((", "你好", "a" * 5_000])
def test_a_text_without_words_of_the_language_is_clean(text: str) -> None:
    assert all(check_text(locale, text)["violations"] == [] for locale in ("en", "de"))
