"""What a text asks for: in originals for the classifier, in rewrites for the judge."""

from __future__ import annotations

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from holdfast_rewrite.normalize_text import normalize_text
from holdfast_rewrite.phrase_matcher import Phrases, parse
from holdfast_rewrite.requests_in_text import Asks, asks_of
from holdfast_rewrite.ruleset import LOCALES, SECTIONS, BadRules, Rules

ROOT = Path(__file__).resolve().parents[2]
RULES = Path(str(resources.files("holdfast_rewrite"))) / "rules"

REQUESTS = {
    "de": "Könntest du bitte die Musik leiser machen?",
    "en": "Could you please turn the music down?",
    "es": "¿Podrías bajar la música, por favor?",
    "fr": "Pourrais-tu baisser la musique, s'il te plaît ?",
    "it": "Potresti abbassare la musica, per favore?",
    "nl": "Zou je de muziek zachter willen zetten?",
    "pl": "Czy możesz ściszyć muzykę?",
    "pt": "Você poderia baixar a música, por favor?",
}
TAKEN_BACK = {
    "de": "Du musst die Musik nicht leiser machen.",
    "en": "You don't have to turn the music down.",
    "es": "No hace falta que bajes la música.",
    "fr": "Tu n'as pas besoin de baisser la musique.",
    "it": "Non c'è bisogno che abbassi la musica.",
    "nl": "Je hoeft de muziek niet zachter te zetten.",
    "pl": "Nie musisz ściszać muzyki.",
    "pt": "Você não precisa baixar a música.",
}
NO_RUSH = {
    "de": "Könntest du die Musik leiser machen? Du musst nicht sofort antworten.",
    "en": "Could you turn the music down? There is no need to reply right away.",
    "es": "¿Podrías bajar la música? No hace falta que contestes ahora.",
    "fr": "Pourrais-tu baisser la musique ? Pas besoin de répondre tout de suite.",
    "it": "Potresti abbassare la musica? Non c'è bisogno di rispondere subito.",
    "nl": "Zou je de muziek zachter willen zetten? Je hoeft niet meteen te reageren.",
    "pl": "Czy możesz ściszyć muzykę? Nie musisz odpisywać od razu.",
    "pt": "Poderia baixar a música? Não precisa responder agora.",
}
LIMITS = {
    "de": "Ich möchte nicht, dass jemand in mein Zimmer geht.",
    "en": "I am not comfortable with people in my room.",
    "es": "No quiero que nadie entre en mi cuarto.",
    "fr": "Je ne veux pas qu'on entre dans ma chambre.",
    "it": "Non voglio che si entri nella mia camera.",
    "nl": "Ik wil niet dat iemand mijn kamer binnenkomt.",
    "pl": "Nie chcę, żeby ktoś wchodził do mojego pokoju.",
    "pt": "Não quero que ninguém entre no meu quarto.",
}
QUESTIONS = {
    "de": "Was meintest du mit der Nachricht?",
    "en": "What did you mean by that note?",
    "es": "¿Qué querías decir con esa nota?",
    "fr": "Qu'est-ce que tu voulais dire avec ce mot ?",
    "it": "Cosa intendevi con quel biglietto?",
    "nl": "Wat bedoelde je met dat briefje?",
    "pl": "Co miałeś na myśli z tą kartką?",
    "pt": "O que você quis dizer com aquele bilhete?",
}
TROUBLES = {
    "de": "Es belastet mich, dass die Küche immer schmutzig ist.",
    "en": "I feel stressed because the kitchen is always dirty.",
    "es": "Me agobia que la cocina esté siempre sucia.",
    "fr": "Ça me pèse que la cuisine soit toujours sale.",
    "it": "Mi pesa che la cucina sia sempre sporca.",
    "nl": "Ik vind het lastig dat de keuken altijd vies is.",
    "pl": "Męczy mnie, że kuchnia jest ciągle brudna.",
    "pt": "Me incomoda que a cozinha esteja sempre suja.",
}
BUT = {
    "de": "Gäste stören mich nicht, aber könntest du mir vorher Bescheid sagen?",
    "en": "I don't mind guests, but could you tell me before they come?",
    "es": "No me importa que venga gente, pero ¿podrías avisarme antes?",
    "fr": "Ça ne me dérange pas d'avoir du monde, mais pourrais-tu me prévenir avant ?",
    "it": "Non mi disturba avere ospiti, ma potresti avvisarmi prima?",
    "nl": "Bezoek stoort me niet, maar zou je het me vooraf willen zeggen?",
    "pl": "Goście mi nie przeszkadzają, ale czy możesz mnie wcześniej uprzedzić?",
    "pt": "Não me importo com visitas, mas poderia avisar antes?",
}


def asks(text: str, locale: str) -> Asks:
    rules = Rules.for_locale(locale)
    assert rules is not None
    return asks_of(text, rules.read(text))


@pytest.mark.parametrize("locale", LOCALES)
def test_a_request_is_seen(locale: str) -> None:
    found = asks(REQUESTS[locale], locale)

    assert found.has_request
    assert not found.is_negated_request
    assert not found.has_boundary


@pytest.mark.parametrize("locale", LOCALES)
def test_a_request_that_is_taken_back_is_none(locale: str) -> None:
    found = asks(TAKEN_BACK[locale], locale)

    assert found.is_negated_request
    assert not found.has_request


@pytest.mark.parametrize("locale", LOCALES)
def test_no_need_to_answer_at_once_takes_nothing_back(locale: str) -> None:
    found = asks(NO_RUSH[locale], locale)

    assert found.has_request
    assert not found.is_negated_request


@pytest.mark.parametrize("locale", LOCALES)
def test_leave_to_answer_later_is_nothing_that_is_taken_back(locale: str) -> None:
    _, _, later = NO_RUSH[locale].partition("? ")

    assert not asks(later, locale).is_negated_request


@pytest.mark.parametrize("locale", LOCALES)
def test_what_is_conceded_before_a_but_takes_nothing_back(locale: str) -> None:
    found = asks(BUT[locale], locale)

    assert found.has_request
    assert not found.is_negated_request


@pytest.mark.parametrize("locale", LOCALES)
def test_a_boundary_is_seen(locale: str) -> None:
    assert asks(LIMITS[locale], locale).has_boundary


@pytest.mark.parametrize("locale", LOCALES)
def test_a_wish_to_know_is_seen(locale: str) -> None:
    found = asks(QUESTIONS[locale], locale)

    assert found.has_question
    assert found.is_clarifying
    assert not found.has_request


@pytest.mark.parametrize("locale", LOCALES)
def test_a_concern_is_seen_and_is_no_request(locale: str) -> None:
    found = asks(TROUBLES[locale], locale)

    assert found.has_concern
    assert not found.has_request
    assert not found.has_question


@pytest.mark.parametrize(
    "text",
    [
        "Bardzo by mi pomogło, gdyby wieczorem muzyka była cichsza.",
        "Gdyby wieczorem było ciszej, bardzo by mi to pomogło.",
        "Ułatwiłoby mi to poranki, gdyby łazienka była wolna.",
        "Bardzo by nam ułatwiło, gdyby śmieci były wyniesione.",
    ],
)
def test_what_would_help_is_a_request_wherever_polish_puts_its_by(text: str) -> None:
    assert asks(text, "pl").has_request


def test_politeness_does_not_make_a_request_of_what_is_taken_back() -> None:
    assert asks("Please don't bother turning it down.", "en").is_negated_request


def test_a_prohibition_is_a_request() -> None:
    found = asks("Please don't play music after ten.", "en")

    assert found.has_request
    assert not found.is_negated_request


def test_words_written_in_a_hurry_count() -> None:
    assert asks("dont come in my room pls", "en").has_boundary
    assert asks("j'ai besoin de calme, stp", "fr") == asks("jai besoin de calme, stp", "fr")
    assert asks("podrias bajar la musica", "es").has_request


@pytest.mark.parametrize("mark", ["?", "\uff1f", "\u061f"])
def test_a_question_mark_of_any_script_asks(mark: str) -> None:
    assert asks(f"The music{mark}", "en") == Asks(has_question=True)
    assert asks("The music.", "en") == Asks()


@pytest.mark.parametrize("text", ["", " ", "?!", "😡", "\u200b", "12:30"])
def test_a_text_without_words_asks_for_nothing(text: str) -> None:
    found = asks(text, "en")

    assert {found.has_request, found.has_boundary, found.has_concern} == {False}


# -- the evaluation set, which others wrote


def rewrites(target: str, kind: str) -> list[tuple[str, str]]:
    found = []
    for path in sorted((ROOT / "eval" / "cases").glob("*.jsonl")):
        for case in map(json.loads, path.read_text("utf-8").splitlines()):
            if case["target_locale"] == target:
                found += [(case["expected_intent"], text) for text in case[kind]]
    return found


def keeps(intent: str, found: Asks) -> bool:
    match intent:
        case "request":
            return found.has_request
        case "boundary":
            return found.has_boundary or found.has_request
        case "clarification":
            return found.has_question
        case _:
            return True


@pytest.mark.parametrize("locale", LOCALES)
def test_good_rewrites_keep_what_was_asked(locale: str) -> None:
    good = [
        (intent, text, asks(text, locale)) for intent, text in rewrites(locale, "good_rewrites")
    ]
    lost = [text for intent, text, found in good if not keeps(intent, found)]

    assert good
    assert len(lost) <= 0.02 * len(good), lost
    assert [text for _, text, found in good if found.is_negated_request] == []


# -- the files


def document_of(locale: str) -> dict[str, Any]:
    return tomllib.loads((RULES / f"{locale}.toml").read_text("utf-8"))


def test_there_are_rules_for_the_eight_languages_and_no_file_beside() -> None:
    assert sorted(path.stem for path in RULES.glob("*.toml")) == list(LOCALES)
    assert Rules.for_locale("sv") is None
    assert Rules.for_locale("../en") is None


@pytest.mark.parametrize("locale", LOCALES)
def test_no_rule_is_there_twice_and_every_list_that_must_hold_something_does(locale: str) -> None:
    document = document_of(locale)
    for section in SECTIONS:
        group, _, name = section.partition(".")
        for kind, phrases in document[group][name].items():
            twice = {phrase for phrase in phrases if phrases.count(phrase) > 1}
            assert not twice, (section, kind)
        assert document[group][name]["phrases"], section


@pytest.mark.parametrize("locale", LOCALES)
def test_no_rule_takes_a_common_little_word_for_itself(locale: str) -> None:
    """A letter with a diacritic also matches the one without, and "coñ*" matches every "con"."""
    little = {
        "de": "und der die das den dem ein in zu mit auf für von es so",
        "en": "and the a an in on to of for with it this so at by",
        "es": "y el la los las un una en de con por para que es a",
        "fr": "et le la les un une en de du des pour avec que ce à",
        "it": "e il la lo gli un una in di del con per che è a",
        "nl": "en de het een in op van te met voor dat die is",
        "pl": "i w z na do od za się to że po",
        "pt": "e o a os as um uma em de do da com por para que",
    }[locale]
    document = document_of(locale)
    for section in (
        "tone.sharp",
        "tone.intense",
        *(f"topics.{name}" for name in document["topics"]),
    ):
        group, _, name = section.partition(".")
        for phrase in document[group][name]["phrases"]:
            alone = Phrases([("hit", *parse(phrase, {}))])
            assert [
                word for word in little.split() if any(alone.find(normalize_text(word)))
            ] == [], phrase


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: document.pop("contrast"),
        lambda document: document.update(extra=1),
        lambda document: document.update(locale="de"),
        lambda document: document["topics"].pop("noise"),
        lambda document: document["tone"]["sharp"].pop("weak"),
        lambda document: document["tone"]["sharp"]["phrases"].append("an (open bracket"),
        lambda document: document["intent"].update(request="please"),
    ],
    ids=["missing", "extra", "other language", "topic", "list", "phrase", "not lists"],
)
def test_a_file_that_breaks_the_form_is_refused(spoil: Any) -> None:
    document = document_of("en")
    spoil(document)

    with pytest.raises(BadRules, match=r"rules/en\.toml"):
        Rules(document, locale="en")
