"""What a rewrite says that its original does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_rewrite.new_facts import Invented, invented
from tests.apps.test_detect import LANGUAGES

EVAL = Path(__file__).resolve().parents[2] / "eval"
# Line by line the files say the same thing in ten languages. In the fifth each calls another name.
PARALLEL = {
    language: (EVAL / "language" / f"{language}.txt").read_text("utf-8").splitlines()
    for language in LANGUAGES
}
NAMED = 4


@pytest.mark.parametrize("target", LANGUAGES)
def test_a_translation_invents_nothing(target: str) -> None:
    found = [
        (source, line)
        for source in LANGUAGES
        for line, text in enumerate(PARALLEL[target])
        if line != NAMED and invented(PARALLEL[source][line], text, target, source=source)
    ]

    assert found == []


@pytest.mark.parametrize("target", LANGUAGES)
def test_another_name_is_invented_in_every_language(target: str) -> None:
    text = PARALLEL[target][NAMED]
    original = "Lass meinen Joghurt in Ruhe, Bartholomäus."

    assert invented(original, text, target) == (Invented.NAME,)
    assert invented(text, text, target) == ()


@pytest.mark.parametrize(
    ("original", "rewrite", "locale"),
    [
        ("Turn it down.", "Could you turn it down after ten?", "en"),
        ("Mach leiser.", "Könntest du ab zwanzig Uhr leiser machen?", "de"),
        ("Baisse le son.", "Tu pourrais baisser le son pendant dix-sept minutes ?", "fr"),
        ("Sono 20 euro.", "Mi devi 40 euro.", "it"),
        ("You owe me 20 €.", "You owe me 8 €.", "en"),
        ("Owe me dollars.", "You owe me $1,500.", "en"),
        ("It has been 5 days.", "It has been five weeks and 12 days.", "en"),
        ("Ścisz to po dziesiątej.", "Mógłbyś to ściszyć po ósmej?", "pl"),
        ("Call me.", "Could you call me on 0171 5550199?", "en"),
    ],
)
def test_a_number_that_is_not_in_the_message_is_invented(
    original: str, rewrite: str, locale: str
) -> None:
    assert invented(original, rewrite, locale) == (Invented.NUMBER,)


@pytest.mark.parametrize(
    ("original", "rewrite", "locale"),
    [
        ("Turn it down.", "Could you turn it down at 9:30?", "en"),
        ("Baja la música.", "¿Podrías bajarla a partir de las 22:30?", "es"),
        ("Zet hem zachter na tienen.", "Zou je hem na half negen zachter zetten?", "nl"),
        ("I work at 7.", "I work at half past seven.", "en"),
        ("I work at 7.", "I work at quarter past seven.", "en"),
        ("Ich arbeite um 7.", "Ich arbeite um halb acht.", "de"),
        ("Trabajo a las 7.", "Trabajo a las siete y media.", "es"),
        ("Je finis à 8h45.", "Je finis à dix heures moins le quart.", "fr"),
        ("Wstaję o 5:45.", "Wstaję za kwadrans siódma.", "pl"),
    ],
)
def test_a_time_that_is_not_in_the_message_is_invented(
    original: str, rewrite: str, locale: str
) -> None:
    assert invented(original, rewrite, locale) == (Invented.TIME,)


@pytest.mark.parametrize(
    ("original", "rewrite", "locale"),
    [
        ("Dein Wecker klingelt um 5:30!", "Dein Wecker klingelt um halb sechs.", "de"),
        ("Um 23:30 noch bohren?", "Das Bohren um halb zwölf stört mich.", "de"),
        ("Zehn vor halb acht!", "Es war 7:20 Uhr.", "de"),
        ("om 6:30 op", "Ik moet om half zeven op.", "nl"),
        ("budzik o 7:30", "Budzik dzwoni o wpół do ósmej.", "pl"),
        ("around half nine", "Around 9:30, please.", "en"),
        ("às 9h15", "Às nove e um quarto, por favor.", "pt"),
        ("alle 6:45", "Alle sette meno un quarto, per favore.", "it"),
        ("at 10:45 pm", "At a quarter to eleven, please.", "en"),
        ("comes Wed at 10", "She comes on Wednesday at 10.", "en"),
        ("by Thurs", "Could it be done by Thursday?", "en"),
        ("bis Mi", "Geht es bis Mittwoch?", "de"),
        ("Do. ab 17 Uhr", "Am Donnerstag ab 17 Uhr?", "de"),
        ("el mié", "¿El miércoles?", "es"),
        ("since Sept 4", "Since 4 September.", "en"),
        ("od 16 paźdz.", "Od 16.10?", "pl"),
        ("since tusday, twise a day", "Since Tuesday, twice a day.", "en"),
    ],
)
def test_a_time_or_day_in_another_form_is_not_new(original: str, rewrite: str, locale: str) -> None:
    assert invented(original, rewrite, locale) == ()


@pytest.mark.parametrize(
    ("original", "rewrite", "locale", "is_new"),
    [
        ("You owe me 20.", "You owe me $20.", "en", True),
        ("You owe me 20 bucks.", "You owe me $20.", "en", False),
        ("Du schuldest mir 20.", "Du schuldest mir 20 €.", "de", False),
        ("Du schuldest mir 20.", "Du schuldest mir 20 Dollar.", "de", True),
        ("Me debes 15 pavos.", "Me debes 15 euros.", "es", False),
        ("Me debes 15 pavos.", "Me debes 15 dólares.", "es", True),
        ("Wisisz mi 50.", "Wisisz mi 50 zł.", "pl", False),
    ],
)
def test_a_sum_gets_no_currency_but_the_usual_one(
    original: str, rewrite: str, locale: str, is_new: bool
) -> None:
    assert invented(original, rewrite, locale) == ((Invented.CURRENCY,) if is_new else ())


@pytest.mark.parametrize(
    ("original", "rewrite", "locale"),
    [
        ("Quiet after 10 pm!", "Could it be quiet after 22:00?", "en"),
        ("Um halb elf ist Ruhe!", "Could it be quiet from 10:30?", "en"),
        ("Um halb elf ist Ruhe!", "¿Podría haber silencio desde las diez y media?", "es"),
        ("Viertel vor acht bin ich weg.", "I leave at 7:45.", "en"),
        ("Fünfundvierzig Minuten!", "It took 45 minutes.", "en"),
        ("Quarante-cinq minutes !", "It took forty-five minutes.", "en"),
        ("Veinticinco platos", "venticinque piatti", "it"),
        ("soixante-dix euros", "70 euros", "es"),
        ("o ósmej", "um acht Uhr", "de"),
        ("bis um drei", "until 3 a.m.", "en"),
        ("at 12", "at midnight", "en"),
        ("You owe me 1500.", "Me debes 1.500 €.", "es"),
        ("nobody cleans", "Could the two of us clean once more?", "en"),
        ("nobody cleans", "Grazie mille. Sei gentile.", "it"),
        ("at 8:00", "at eight, on the dot", "en"),
        ("two weeks", "dos semanas", "es"),
    ],
)
def test_the_same_number_written_otherwise_is_none(
    original: str, rewrite: str, locale: str
) -> None:
    assert invented(original, rewrite, locale) == ()


@pytest.mark.parametrize(
    ("rewrite", "locale", "kind"),
    [
        ("Could you do it by Friday?", "en", Invented.DATE),
        ("Kannst du es bis Freitag machen?", "de", Invented.DATE),
        ("Podes fazer isso na sexta?", "pt", Invented.DATE),
        ("Czy możesz to zrobić we wtorek?", "pl", Invented.DATE),
        ("Lütfen bunu cumartesi yap.", "tr", Invented.DATE),
        ("Could we sort it out in March?", "en", Invented.DATE),
        ("Could you stop at midnight?", "en", Invented.TIME),
        ("¿Puedes parar a medianoche?", "es", Invented.TIME),
        ("The neighbours complain too.", "en", Invented.THING),
        ("Les voisins se plaignent aussi.", "fr", Invented.THING),
        ("W kuchni są też myszy.", "pl", Invented.THING),
        ("Ik heb nachtdienst in het ziekenhuis.", "nl", Invented.THING),
        ("Otherwise I will call the landlord.", "en", Invented.THING),
        ("Please ask Marta to do it.", "en", Invented.NAME),
        ("Hallo Lena, kannst du es machen?", "de", Invented.NAME),
        ("Kannst du es machen, Lena?", "de", Invented.NAME),
        ("¿Puedes pedírselo a Lucía?", "es", Invented.NAME),
        ("As an AI language model I cannot help with that.", "en", Invented.MACHINE),
        ("Here is the rewritten message: could you do it?", "en", Invented.MACHINE),
        ("Lo siento, no puedo ayudar con esa solicitud.", "es", Invented.MACHINE),
        ("Das kann ich leider nicht umformulieren.", "de", Invented.MACHINE),
    ],
)
def test_days_things_names_and_the_machines_own_words_are_noticed(
    rewrite: str, locale: str, kind: Invented
) -> None:
    assert invented("do it now", rewrite, locale) == (kind,)
    assert invented(rewrite, rewrite, locale) == ()


@pytest.mark.parametrize(
    ("original", "rewrite", "locale"),
    [
        ("ask marta", "Could you ask Marta?", "en"),
        ("ask Kevin", "Czy możesz zapytać Kevina?", "pl"),
        ("спроси Марту", "Could you ask Marta?", "en"),
        ("hazlo", "I think I'd like that. Could you do it, please?", "en"),
        ("hazlo", "Ich liebe Musik. Danke, und bis bald, Danke.", "de"),
        ("hazlo", "Chciałabym, żeby Tobie było miło.", "pl"),
        ("your kid screams", "The child is loud.", "en"),
        ("since sunday", "desde el domingo", "es"),
        ("you may do it", "You may do it in your own time.", "en"),
        ("do it", "Thank you for your hospitality, for example.", "en"),
        ("mach das", "Danke für die Montage der Lampe.", "de"),
        ("hazlo", "Ninguno de nosotros bebe leche.", "es"),
        ("fais-le", "Tu souris toujours.", "fr"),
    ],
)
def test_what_is_no_news_is_let_through(original: str, rewrite: str, locale: str) -> None:
    assert invented(original, rewrite, locale) == ()


def test_number_words_of_swedish_and_turkish_count_in_their_languages_only() -> None:
    assert invented("saat on ikide", "at 12", "en", source="tr") == ()
    assert invented("tio, ponla de día", "Ponla antes de las diez.", "es") == (Invented.NUMBER,)


def test_a_language_without_words_of_its_own_still_has_digits() -> None:
    assert invented("now", "käy kello 9:30", "fi") == (Invented.TIME,)
    assert invented("at 9:30", "käy kello 9:30", "fi") == ()


@pytest.mark.parametrize(
    "path", sorted((EVAL / "polite").glob("*.txt")), ids=lambda path: path.stem
)
def test_a_sentence_repeated_invents_nothing(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()

    assert [line for line in lines if invented(line, line, path.stem)] == []


@pytest.mark.parametrize(
    ("locale", "rewrite"),
    [
        ("en", "Could you turn it down tomorrow?"),
        ("es", "¿Podrías bajarla desde mañana?"),
        ("de", "Könntest du sie ab morgen leiser machen?"),
        ("fr", "Pourrais-tu la baisser dès demain ?"),
        ("it", "Potresti abbassarla da domani?"),
        ("pt", "Você poderia abaixar a partir de amanhã?"),
        ("nl", "Zou je hem vanaf morgen zachter willen zetten?"),
        ("pl", "Czy możesz ją ściszyć od jutra?"),
        ("en", "Could you turn it down on the weekend?"),
        ("de", "Könntest du sie am Wochenende leiser machen?"),
    ],
)
def test_a_rewrite_sets_no_day_that_the_message_does_not_name(locale: str, rewrite: str) -> None:
    assert invented("Turn it down!", rewrite, locale) == (Invented.DATE,)
    assert invented("Mach das morgen! Sunday!", rewrite, locale) == ()


@pytest.mark.parametrize(
    ("locale", "rewrite"),
    [
        ("en", "Here is a kinder version: could you turn it down?"),
        ("en", "Could you turn it down? (Note: I removed the profanity.)"),
        ("en", "This content violates my guidelines. Could you turn it down?"),
        ("en", "Sure! Could you turn it down?"),
        ("en", '{"rewritten_text": "Could you turn it down at night?"}'),
        ("de", "Tut mir leid, dabei kann ich nicht helfen. Könntest du leiser sein?"),
        ("de", "Hier ist eine freundlichere Version: Könntest du leiser sein?"),
        ("fr", "Bien sûr ! Pourrais-tu la baisser ?"),
        ("nl", "Sorry, maar ik kan niet helpen met dit verzoek."),
        ("nl", "Hier is een vriendelijkere versie: zou je zachter willen doen?"),
        ("pl", "Oto milsza wersja: czy możesz ściszyć?"),
        ("pl", "Przepraszam, ale nie mogę pomóc w tej sprawie."),
    ],
)
def test_no_talk_of_the_task_passes_for_a_rewrite(locale: str, rewrite: str) -> None:
    assert invented("Turn it down!", rewrite, locale) == (Invented.MACHINE,)


@pytest.mark.parametrize(
    ("locale", "rewrite"),
    [
        ("es", "Por la mañana me cuesta despertarme."),
        ("de", "Heute Morgen war die Küche voll, und am Morgen brauche ich Ruhe."),
        ("nl", "Vanmorgen was de keuken vol, en in de morgen heb ik rust nodig."),
        ("en", "I'm not sure. Of course, it would help me."),
        ("pt", "É claro que isso me ajudaria."),
    ],
)
def test_words_that_only_look_like_a_day_or_a_machine_are_left(locale: str, rewrite: str) -> None:
    assert invented("Stop it!", rewrite, locale) == ()


def test_a_text_without_an_end_is_read() -> None:
    for text in ("9" * 1500, "a " * 750, "[" * 1500, "Aa " * 500, "http://" * 200, "\ud800" * 99):
        assert len(invented(text, text[:600], "en")) <= 1
