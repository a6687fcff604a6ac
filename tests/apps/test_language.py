"""Which language a message is in, and which its recipient reads."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_rewrite.enums import Lane, Level
from holdfast_rewrite.language import BadLocale, Locales, normalize, resolve

SURE = (Level.MEDIUM, Level.HIGH)


@pytest.mark.req("L-05")
@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("en-US", "en"),
        ("es-MX", "es"),
        ("EN", "en"),
        ("pt-br", "pt"),
        ("es-419", "es"),
        ("zh-Hant-TW", "zh"),
        ("sr-Latn", "sr"),
        ("eng", "en"),
        ("ger", "de"),
        ("iw", "he"),
        ("tl", "fil"),
        ("cmn", "zh"),
        ("nb-NO", "no"),
        ("en-GB-oed", "en"),
        ("de-DE-u-co-phonebk", "de"),
        ("en-x-ours", "en"),
    ],
)
def test_a_tag_is_cut_to_its_language(tag: str, language: str) -> None:
    assert normalize(tag) == language
    assert normalize(language) == language


@pytest.mark.req("L-04")
@pytest.mark.parametrize(
    "tag",
    [
        *("", " ", "unknown", "und", "und-US", "mul", "zxx", "mis", "xx", "xx-YY", "qaa", "root"),
        *("x-klingon", "X-ours", "e", "en-", "en--US", "en_US", " en", "en\n", "english", "C"),
        *(
            "123",
            "de-DE-DE",
            "de-1901-1901",
            "\uff45\uff4e",
            "en\0",
            "en-" + "a" * 40,
            "🇩🇪",
            "en;drop",
        ),
    ],
)
def test_what_names_no_language_is_refused_and_not_repeated(tag: str) -> None:
    with pytest.raises(BadLocale) as caught:
        normalize(tag)

    assert len(tag.strip()) < 3 or tag not in str(caught.value)


@given(st.text(max_size=40))
def test_whatever_is_called_a_locale_is_a_language_or_refused(tag: str) -> None:
    try:
        language = normalize(tag)
    except BadLocale:
        return

    assert language.isascii()
    assert language.islower()
    assert 2 <= len(language) <= 3


@pytest.mark.req("L-07", "L-09")
@pytest.mark.parametrize("confidence", SURE)
def test_the_language_of_the_message_counts_before_the_profile(confidence: Level) -> None:
    found = resolve("es-MX", confidence, "de-AT", "en-GB")

    assert found == Locales("es", "en", "es-MX", "en-GB", Lane.CROSS_LANGUAGE)


@pytest.mark.req("L-07")
def test_an_unsure_detection_leaves_it_to_the_senders_profile() -> None:
    found = resolve("es", Level.LOW, "de-AT", "de-CH")

    assert found == Locales("de", "de", "de-AT", "de-CH", Lane.SAME_LANGUAGE)


@pytest.mark.req("L-07", "L-08", "K-12")
def test_without_profiles_it_is_english() -> None:
    assert resolve("und", Level.LOW, None, None) == Locales(
        "en", "en", "en", "en", Lane.SAME_LANGUAGE
    )


@pytest.mark.req("L-04", "L-07")
@pytest.mark.parametrize("nonsense", ["und", "unknown", "", "xx", "the language of love"])
def test_a_detected_tag_that_is_no_language_counts_as_unsure(nonsense: str) -> None:
    found = resolve(nonsense, Level.HIGH, "fr-CA", "fr")

    assert (found.source, found.source_raw) == ("fr", "fr-CA")


@pytest.mark.req("L-04")
@pytest.mark.parametrize("bad", ["", "und", "unknown", "en_US"])
def test_a_profile_that_is_needed_and_names_no_language_is_refused(bad: str) -> None:
    with pytest.raises(BadLocale):
        resolve("en", Level.HIGH, "en", bad)
    with pytest.raises(BadLocale):
        resolve("en", Level.LOW, bad, "en")

    assert resolve("it", Level.HIGH, bad, "en").source == "it"


@pytest.mark.req("L-05", "L-09", "L-13")
def test_two_regions_of_one_language_are_one_lane() -> None:
    assert resolve("en-US", Level.HIGH, None, "en-AU").lane is Lane.SAME_LANGUAGE
    assert resolve("no", Level.HIGH, None, "nb-NO").lane is Lane.SAME_LANGUAGE
    assert resolve("en", Level.HIGH, None, "es").lane is Lane.CROSS_LANGUAGE


@pytest.mark.req("L-06")
def test_the_tags_are_kept_as_they_were_given() -> None:
    found = resolve("pt-BR", Level.MEDIUM, None, "zh-Hant-TW")

    assert (found.source_raw, found.target_raw) == ("pt-BR", "zh-Hant-TW")
    assert (found.source, found.target) == ("pt", "zh")


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "sys.modules['langcodes'] = sys.modules['py3langid'] = None\n"
        "from holdfast_rewrite import detect, language\n"
        "from holdfast.errors import ConfigError\n"
        "for ask in (lambda: language.normalize('en'),\n"
        "            lambda: detect.local_detector().detect('where is the kitchen')):\n"
        "    try:\n"
        "        ask()\n"
        "    except ConfigError as error:\n"
        "        print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.count("pip install holdfast-rewrite") == 2
