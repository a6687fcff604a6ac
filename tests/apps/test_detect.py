"""Language detection of short texts: measured, and undetermined instead of guessed."""

from __future__ import annotations

import sys
import threading
import unicodedata
from pathlib import Path

import pytest

from holdfast import Holdfast, Settings
from holdfast.errors import ConfigError
from holdfast_rewrite import Rewrites, detect
from holdfast_rewrite.detect import (
    _WRITTEN_AS,
    KNOWN,
    Detected,
    LocalDetector,
    is_left_in,
    is_told_apart,
    local_detector,
)
from holdfast_rewrite.enums import Level
from holdfast_rewrite.language import normalize
from holdfast_rewrite.settings import RewriteSettings
from tests.apps.household import ROUTE

LANGUAGES = ("de", "en", "es", "fr", "it", "nl", "pl", "pt", "sv", "tr")
EVAL = Path(__file__).resolve().parents[2] / "eval" / "language"
SENTENCES = [
    (language, sentence)
    for language in LANGUAGES
    for sentence in (EVAL / f"{language}.txt").read_text("utf-8").splitlines()
]
UNTOLD = Detected("und", Level.LOW)


def test_the_set_is_sixty_sentences_of_twenty_to_two_hundred_characters() -> None:
    assert len(SENTENCES) == 600
    assert len(set(SENTENCES)) == 600
    assert [text for _, text in SENTENCES if not 20 <= len(text) <= 200] == []


def test_ninety_eight_of_a_hundred_are_detected_and_under_one_is_wrong() -> None:
    detect = local_detector().detect
    told = [(language, detect(text)) for language, text in SENTENCES]
    right = [said for language, said in told if said.language == language]
    wrong = [said for language, said in told if said.language not in (language, "und")]

    assert Level.LOW not in {said.confidence for said in right}
    assert len(right) / len(told) >= 0.98
    assert sum(said.confidence is Level.HIGH for said in wrong) / len(told) < 0.01
    assert len(wrong) / len(told) < 0.01


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_language_is_detected_worse_than_nine_of_ten(language: str) -> None:
    said = [local_detector().detect(text).language for of, text in SENTENCES if of == language]

    assert said.count(language) >= 54


def test_short_portuguese_is_distinguished_from_galician() -> None:
    polite = (EVAL.parent / "polite" / "pt.txt").read_text("utf-8").splitlines()
    said = [local_detector().detect(text).language for text in polite if len(text) >= 20]

    assert set(said) == {"pt", "und"}
    assert said.count("pt") / len(said) >= 0.95


@pytest.mark.parametrize(
    "text",
    [
        "Poderías baixar un pouco a música pola noite? Cústame durmir.",
        "Quen vai sacar o lixo hoxe? A min tócame a semana que vén.",
        "A cociña está chea de migallas e non o limpou ninguén.",
        "Cando me vas devolver os cartos do aluguer?",
        "O baño quedou cheo de pelos outra vez.",
    ],
)
def test_galician_is_not_called_portuguese(text: str) -> None:
    assert local_detector().detect(text).language in ("gl", "und")


@pytest.mark.parametrize(
    "disguise",
    [
        str.upper,
        str.title,
        lambda text: "\u200b".join(text),
        lambda text: "\u202a" + text + "\u202c",
        lambda text: unicodedata.normalize("NFD", text),
        lambda text: text + " 😡😡😡 https://example.com/the/kitchen/is/ours",
    ],
    ids=["capitals", "headline", "zero-width", "direction", "decomposed", "emoji-and-link"],
)
def test_how_it_is_written_does_not_change_the_language(disguise: object) -> None:
    assert callable(disguise)
    sample = SENTENCES[::6]
    told = [(language, local_detector().detect(disguise(text))) for language, text in sample]

    assert sum(said.language == language for language, said in told) >= 0.93 * len(sample)
    assert [said for language, said in told if said.language not in (language, "und")] == []


@pytest.mark.parametrize(
    "text",
    ["", " \n", "lol", "ok", "Kevin", "👍👍", "12:30", "hahaha hahaha haha", "Marta, Jonas, Ahmed",
     "Pizza Hummus Wifi", "asdf jkl qwer uiop", "????", "\0\0", "\ud800 \udfff"],
)  # fmt: skip
def test_what_has_no_language_is_left_open(text: str) -> None:
    assert local_detector().detect(text) == UNTOLD


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("今晩ゴミを出してくれますか", "ja"),
        ("오늘 저녁에 쓰레기 좀 버려 줄래?", "ko"),
        ("คืนนี้ช่วยเอาขยะไปทิ้งได้ไหม", "th"),
        ("Можешь вынести мусор сегодня вечером?", "ru"),
        ("האם תוכל להוציא את הזבל הערב?", "he"),
        ("هل يمكنك إخراج القمامة الليلة؟", "ar"),
        ("Voisitko viedä roskat ulos tänä iltana?", "fi"),
        ("p l e a s e clean the kitchen tonight", "en"),
    ],
)
def test_other_scripts_and_spaced_letters_are_detected(text: str, language: str) -> None:
    said = local_detector().detect(text)

    assert said.language == language
    assert said.confidence is not Level.LOW


def test_three_words_are_left_open_rather_than_detected_wrong() -> None:
    cut = [(language, " ".join(text.split()[:3])) for language, text in SENTENCES]
    told = [(language, text, local_detector().detect(text).language) for language, text in cut]

    assert [one for one in told if one[2] not in (one[0], "und")] == []


def test_many_threads_share_one_model_that_is_read_once() -> None:
    detector = LocalDetector()
    together = threading.Barrier(4)
    said: list[list[str]] = []

    def ask() -> None:
        together.wait()
        said.append([detector.detect(text).language for _, text in SENTENCES[::60]])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(said) == 4
    assert all(one == said[0] for one in said)
    assert local_detector() is local_detector()


def test_the_known_languages_are_those_of_the_model() -> None:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    labels = LanguageIdentifier.from_model_file(MODEL_FILE).labels

    assert {normalize(_WRITTEN_AS.get(label, label)) for label in labels if label != "zxx"} == KNOWN


def test_only_supported_languages_are_distinguished() -> None:
    assert is_told_apart("en", "es")
    assert not is_told_apart("es", "es")
    assert not is_told_apart("hr", "bs")
    # Swiss German can only ever be called German.
    assert not is_told_apart("de", "gsw")


@pytest.mark.parametrize("target", ["mi", "ceb", "yi", "ti", "haw", "wo", "fi"])
def test_a_text_in_its_original_language_is_distinguished_from_an_unknown_one(target: str) -> None:
    assert is_left_in("en", source="en", target=target)
    # Whatever else it is called says nothing of a language that the detector does not know.
    assert not is_left_in("es", source="en", target=target)


def test_related_languages_are_not_distinguished() -> None:
    assert not is_left_in("de", source="de", target="gsw")
    assert not is_left_in("de", source="de", target="yi")
    assert not is_left_in("en", source="en", target="en")
    assert not is_left_in("hr", source="hr", target="sr")
    # Nobody listed what is near Russian.
    assert not is_left_in("ru", source="ru", target="rue")


def test_rewrites_do_not_start_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="pip install holdfast-rewrite"):
        Rewrites(Holdfast(settings=Settings(rewrite=RewriteSettings(routes=(ROUTE,)))))


def test_every_detector_requires_langcodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langcodes", None)
    normalize.cache_clear()

    with pytest.raises(ConfigError, match="pip install holdfast-rewrite"):
        Rewrites(
            Holdfast(settings=Settings(rewrite=RewriteSettings(routes=(ROUTE,)))),
            detector=LocalDetector(),
        )
