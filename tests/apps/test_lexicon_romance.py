"""What angry housemates write in Spanish, Italian and Portuguese, and what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_rewrite.lexicon import SECTIONS, Findings, Lexicon

# One sentence a line: its language, the codes that a reader would give it, and the sentence.
SHARP = Path(__file__).with_name("sharp.tsv").read_text("utf-8").splitlines()


def found(locale: str, text: str) -> Findings:
    lexicon = Lexicon.for_locale(locale)
    assert lexicon is not None
    return lexicon.check(text)


@pytest.mark.parametrize("locale", ["es", "it", "pt"])
def test_a_sharp_sentence_has_the_codes_that_a_reader_would_give_it(locale: str) -> None:
    lines = [line.split("\t") for line in SHARP]
    said = {
        text: set(codes.split()) & set(SECTIONS)
        for language, codes, text in lines
        if language == locale
    }
    heard = {text: set(found(locale, text).codes) & set(SECTIONS) for text in said}
    assert len(said) > 100
    assert heard == said


@pytest.mark.parametrize(
    ("locale", "text"),
    [
        ("es", "qué m1erda"),
        ("es", "la p*ta música"),
        ("es", "p.u.t.o ruido"),
        ("es", "m i e r d a"),
        ("es", "mierdaaaa"),
        ("es", "m\u200bierda"),
        ("es", "gilip0llas"),
        ("it", "c4zzo"),
        ("it", "c.a.z.z.o"),
        ("it", "str*nzo"),
        ("it", "vaffan****"),
        ("it", "cazzoooo"),
        ("pt", "p0rra"),
        ("pt", "c@ralho"),
        ("pt", "fod4-se"),
        ("pt", "m#rda"),
        ("pt", "p u t a"),
        ("pt", "f.d.p."),
    ],
)
def test_a_disguised_word_is_vulgar(locale: str, text: str) -> None:
    assert [code.value for code in found(locale, text).codes] == ["vulgarity"]


@pytest.mark.parametrize(
    ("locale", "vulgar", "decent"),
    [
        ("es", "¿Dónde coño está?", "¿Dónde está el cono de tráfico?"),
        ("es", "Eres un capullo.", "Un capullo de rosa."),
        ("it", "Che due palle.", "Due palle di neve."),
        ("it", "Porca troia.", "La guerra di Troia."),
        ("it", "Che cazzo fai?", "Dov'è la cazzuola?"),
        ("pt", "Estou de saco cheio.", "Um saco cheio de lixo."),
        ("pt", "Pra cacete!", "Comprei um cacete na padaria."),
        ("pt", "Fiquei puto.", "O puto do vizinho faz anos."),
    ],
)
def test_the_same_letters_are_vulgar_in_one_place_and_decent_in_another(
    locale: str, vulgar: str, decent: str
) -> None:
    assert not found(locale, vulgar).lexicon_pass
    assert found(locale, decent).codes == ()
