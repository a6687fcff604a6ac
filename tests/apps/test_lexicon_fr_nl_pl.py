"""What angry housemates write in French, Dutch and Polish, and what only looks like it."""

from __future__ import annotations

import pytest

from holdfast_rewrite.lexicon import Lexicon

# Each was written after the lists, and mended them; the code is what a reader would say first.
SHARP = {
    "fr": (
        ("vulgarity", "Tu te fous du monde avec ta facture."),
        ("vulgarity", "On se les gèle, ferme cette putain de fenêtre."),
        ("vulgarity", "Bande d'enfoirés, vous avez tout bouffé."),
        ("vulgarity", "Ta musique c'est de la m3rde."),
        ("preference_disclosure", "Comme tu l'as noté dans tes préférences, je reste bref."),
        ("slur", "Tes copains gitans de merde, sales romanos."),
        ("vulgarity", "Qu'est-ce que tu fous encore dans la salle de bain ?"),
        ("vulgarity", "Ras le bol de vos conneries."),
        ("vulgarity", "T'es chiant avec tes histoires."),
        (
            "preference_disclosure",
            "Vu tes réponses au questionnaire, je sais que tu aimes la douceur.",
        ),
        ("slur", "Dehors, sale nègre."),
    ),
    "nl": (
        ("vulgarity", "Val toch dood met je regels."),
        ("vulgarity", "Doe dat verdomde raam dicht."),
        ("vulgarity", "Wat een stelletje klootzakken zijn jullie."),
        ("vulgarity", "Die muziek is echt sh!t."),
        ("preference_disclosure", "Zoals je in je voorkeuren hebt gezet, hou ik het kort."),
        ("slur", "Die vriendin van je is een vieze pot, en die homo een vuile homo."),
        ("vulgarity", "Waar ben je in godsnaam mee bezig, klootviool?"),
        ("vulgarity", "Ik ben dat gezeik van je zat."),
        ("vulgarity", "Je bent echt een lul."),
        (
            "preference_disclosure",
            "Gezien je antwoorden in de vragenlijst weet ik dat je van zachtheid houdt.",
        ),
        ("slur", "Eruit, vuile nikker."),
    ),
    "pl": (
        ("vulgarity", "Gówno mnie to obchodzi."),
        ("vulgarity", "Zamknij to pieprzone okno."),
        ("vulgarity", "Banda skurwieli, wszystko zeżarliście."),
        ("vulgarity", "Ta muzyka to g*wno."),
        ("preference_disclosure", "Tak jak podałaś w preferencjach, będę pisać krótko."),
        ("slur", "Ten czarnuch znowu tu był."),
        ("vulgarity", "Co ty tam, kurde, robisz, do ciężkiej cholery?"),
        ("vulgarity", "Mam dość tego pierdolenia."),
        ("vulgarity", "Ale z ciebie kutas."),
        ("preference_disclosure", "Z twoich odpowiedzi w ankiecie wiem, że cenisz łagodność."),
        ("slur", "Wynocha, brudny żydzie."),
    ),
}

HIDDEN = {
    "fr": (
        "put@in de bruit",
        "C 0 N N A R D",
        "meeeeerde",
        "sal0pe",
        "enc*lé",
        "ta gu.eule",
        "p.u.t.a.i.n",
        "b0rdel",
        "fdp",
        "conn\u0430rd",
    ),
    "nl": (
        "k*t",
        "kl0te muziek",
        "g0dverdomme",
        "k u t",
        "kuuuut",
        "f*ck",
        "verd0mme",
        "h0er",
        "kankerl*jer",
        "kut-muziek",
    ),
    "pl": (
        "k*rwa",
        "kuuurwa",
        "k u r w a",
        "j3bać",
        "pi3rdolę",
        "ch.u.j",
        "s*kinsyn",
        "g0wno",
        "d*pa",
    ),
}

# Words that are rude, or a command, in another sentence.
HARMLESS = {
    "fr": (
        "Dehors, il pleut, prends un parapluie.",
        "La ferme de mes parents est à vendre.",
        "Le petit-déjeuner, c'est compris dans le prix.",
        "Un café con leche, s'il te plaît.",
        "J'ai donné la clé à Madame Dupont.",
        "On se voit à 14h30 au n°5, code 1234A.",
        "Silence, ça tourne, dit le film.",
        "Le wifi c'est fr33box_2.",
        "Tu es malade ? Je peux te faire une tisane.",
        "Tu n'es pas du tout égoïste, au contraire.",
        "On fait un pique-nique au parc dimanche, tu viens ?",
    ),
    "nl": (
        "Ik heb geen zak bij me voor de boodschappen.",
        "De sleutel ligt bij mevrouw De Vries.",
        "We zien elkaar om 14u30 op nr. 5, code 1234A.",
        "Hoera, je bent geslaagd!",
        "De kleren hangen aan het rek.",
        "Je bent helemaal niet egoïstisch, integendeel.",
        "Kutno is een stad in Polen.",
        "De lampen flikkeren als de wasmachine aanstaat.",
    ),
    "pl": (
        "Walentynki się zbliżają, kupię kwiaty.",
        "Kałuże na asfalcie zamarzły.",
        "Bambusy na balkonie rosną jak szalone.",
        "Spotkajmy się o 14:30 pod nr 5, kod 1234A.",
        "Łańcuch na pedale spadł.",
        "Mam suchy kaszel, wezmę syrop.",
        "Kurtkę odbiorę z pralni jutro.",
        "Wstawaj, śniadanie gotowe!",
        "Jesteś u psychologa do 17? Podam obiad później.",
        "Wcale nie jesteś egoistą, wręcz przeciwnie.",
        "Spóźnił się, lecz się nie gniewam.",
    ),
}


def _lexicon(locale: str) -> Lexicon:
    lexicon = Lexicon.for_locale(locale)
    assert lexicon is not None
    return lexicon


@pytest.mark.parametrize(
    ("locale", "code", "text"),
    [(locale, code, text) for locale, texts in SHARP.items() for code, text in texts],
)
def test_a_sharp_message_shows_its_code(locale: str, code: str, text: str) -> None:
    assert code in _lexicon(locale).check(text).codes


@pytest.mark.parametrize(
    ("locale", "text"), [(locale, text) for locale, texts in HIDDEN.items() for text in texts]
)
def test_a_vulgar_word_is_found_behind_its_disguise(locale: str, text: str) -> None:
    assert "vulgarity" in _lexicon(locale).check(text).codes


@pytest.mark.parametrize(
    ("locale", "text"), [(locale, text) for locale, texts in HARMLESS.items() for text in texts]
)
def test_a_word_that_is_rude_elsewhere_is_no_hit_here(locale: str, text: str) -> None:
    assert _lexicon(locale).check(text).codes == ()
