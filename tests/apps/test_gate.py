"""The gate: what it refuses, what it warns about, and what passes."""

from __future__ import annotations

import pytest

from holdfast_rewrite.detect import local_detector
from holdfast_rewrite.enums import Mark, Strength
from holdfast_rewrite.foreign_content import contacts_in, links_in
from holdfast_rewrite.gate import Severity, check, mark_of

ASKED = "Turn the music down, I get up at six!"
KIND = "I get up at six. Could you turn the music down, please?"


def codes(
    rewrite: str,
    original: str = ASKED,
    *,
    source: str = "en",
    target: str = "en",
    strength: Strength = Strength.FULL_REFRAME,
) -> dict[str, Severity]:
    found = check(
        original,
        rewrite,
        source_language=source,
        target_language=target,
        strength=strength,
        detector=local_detector(),
    )
    return {finding.code.value: finding.severity for finding in found}


# -- links, contact data, markup


@pytest.mark.parametrize(
    "link",
    [
        "https://plan.example/x",
        "www.plan.example",
        "flatplan.io",
        "unser-plan.de/woche",
        "bit.ly/3xY",
        "quiet.rent",
        "plates.jp",
        "münchen-putzt.de",
        "CLEANING.GURU",
        "xn--mnchen-3ya.de",
        "мойдом.рф",
        "t.me/flat",
        "flatplan dot com",
        "flatplan(dot)org",
        "hxxps://flatplan.net",
    ],
)
def test_a_link_or_bare_domain_is_refused(link: str) -> None:
    assert codes(f"{KIND} See {link} for it.")["invented_link"] is Severity.REFUSE


@pytest.mark.parametrize(
    "contact",
    [
        "anna.k@mail.example",
        "anna(at)mail.de",
        "+44 20 7946 0958",
        "0170/1234567",
        "06 12 34 56 78",
        "(555) 010-9999",
        "PL61 1090 1014 0000 0712 1981 2874",
        "@flat_twelve",
        "oh seven seven double zero nine",
        "insta: marta_89",
    ],
)
def test_contact_data_is_refused(contact: str) -> None:
    assert codes(f"{KIND} Contact: {contact}")["contact_data"] is Severity.REFUSE


@pytest.mark.parametrize(
    "contact",
    [
        "null eins sieben zwei neun acht",
        "zéro six, quarante-deux, onze, trente",
        "arroba marta ponto reis",
        "m a r t a @ mail . com",
        "klammeraffe marta",
    ],
)
def test_dictated_contact_data_is_found_in_every_language(contact: str) -> None:
    assert list(contacts_in(f"Danke! {contact}"))


@pytest.mark.parametrize(
    "text",
    ["Um halb drei oder um vier, spätestens um fünf.", "Two or three plates, four cups.", "@ 6"],
)
def test_times_and_counts_are_no_contact_data(text: str) -> None:
    assert list(contacts_in(text)) == []


@pytest.mark.parametrize("text", ["In der Küche.Es ist kalt.", "Clean the Sink.It is full."])
def test_a_sentence_without_a_space_is_no_domain(text: str) -> None:
    assert list(links_in(text)) == []


def test_contact_data_of_the_original_is_a_warning() -> None:
    found = codes(
        "Could you call me on 0170 1234567 when you are home?",
        "Call me on 0170 1234567 when ur home, damn!!",
    )

    assert found == {"contact_data_kept": Severity.WARN}


@pytest.mark.parametrize(
    ("original", "text"),
    [
        ("Quiet from 22:00-07:00!!", "Could it be quiet from 22:00-07:00, please?"),
        ("Pay by 2026-03-15!!", "Could you please pay by 2026-03-15?"),
        ("Pay me the 1.250.000 yen!!", "Could you pay me the 1.250.000 yen, please?"),
        (
            "u left the door open, e.g. at 10 p.m.!!",
            "The door was open, e.g. at 10 p.m. Could you close it?",
        ),
    ],
)
def test_dates_times_and_abbreviations_are_neither_numbers_to_call_nor_links(
    original: str, text: str
) -> None:
    assert codes(text, original) == {}


@pytest.mark.parametrize(
    "text",
    [
        "**Music**: could you turn it down?",
        "Could you *please* turn the music down?",
        "<b>Could you</b> turn the music down?",
        "Could you turn&nbsp;the music down?",
        "# Music\nCould you turn it down?",
        "Could you:\n- turn the music down\n- let me sleep",
        "1. turn the music down\n2. let me sleep, please",
        '{"rewritten_text": "Could you turn the music down?"}',
        "Could you turn the `music` down?",
        "[Could you](x) turn the music down?",
        "Hi [Name], could you turn the music down?",
    ],
)
def test_markup_is_not_a_valid_answer(text: str) -> None:
    assert codes(text)["markup"] is Severity.REFUSE


# -- foul words


@pytest.mark.parametrize(
    "word",
    [
        "fucking",
        "f u c k i n g",
        "fu\u0441king",
        "fu\u200dcking",
        "f*cking",
        "fuuucking",
        "sh1tty",
        "kurwa",
        "sh_tty",
        "assh@le",
        "cvnt",
        "fuc king",
    ],
    ids=ascii,
)
def test_foul_words_are_found_plain_disguised_and_left_in_another_language(word: str) -> None:
    found = codes(f"Could you turn the {word} music down? I get up at six.")

    assert found["vulgarity"] is Severity.REFUSE


# -- facts


@pytest.mark.parametrize(
    ("original", "text", "source", "target"),
    [
        ("Clear the drain this arvo!", "Tu peux déboucher la douche cet après-midi ?", "en", "fr"),
        ("Haal je fiets weg voor Pasen!", "Could you move your bike before Easter?", "nl", "en"),
        ("Touche pas mes affaires !", "S'il te plaît, ne touche pas à mes affaires.", "fr", "fr"),
        ("hands off my yoghurts!", "Please leave my yoghurts for me.", "en", "en"),
        ("Seit dem 14. Februar offen!", "It has been open since 14/02.", "de", "en"),
        ("Open since 14/02!", "Das ist seit dem 14. Februar offen.", "en", "de"),
        ("Du schuldest mir 20 Euro!", "Could you pay me back the 20 €?", "de", "en"),
        ("u owe me 20!", "¿Me puedes devolver los 20 euros?", "en", "es"),
        ("Kevin schreit um halb drei!", "Kevin jest głośno o 2:30.", "de", "pl"),
        (
            "Seit Silvester stehen deine Flaschen da!",
            "Your bottles have been there since 31 December.",
            "de",
            "en",
        ),
        ("Depuis le 6 janvier !", "Está ahí desde el Día de Reyes.", "fr", "es"),
        ("Já foi no S. João!", "Foi na noite de São João.", "pt", "pt"),
        ("45 minutes of drums!", "Het getrommel duurde drie kwartier.", "en", "nl"),
        ("zw. 14u en 16u stil aub!!", "Kan het stil zijn tussen twee en vier?", "nl", "nl"),
        ("48 h de bruit !", "There was noise for two days.", "fr", "en"),
        ("stop met je ig storys!", "Zet me niet op Instagram, alsjeblieft.", "nl", "nl"),
        ("Wisisz mi 4 dychy!", "Oddasz mi 40 zł?", "pl", "pl"),
        ("kuatro platos susios!!", "¿Puedes lavar los cuatro platos?", "es", "es"),
        ("a sala de 12 a 18/10 é tua", "A sala fica contigo de 12 a 18 de outubro.", "pt", "pt"),
        ("Keller bis 4.11. räumen!", "Räumst du den Keller bis 4. November auf?", "de", "de"),
        ("ur week is 12-18/10!", "Your week runs from 12 to 18 October.", "en", "en"),
        ("gimme my tenner", "Could you give me back the £10?", "en", "en"),
        ("oddaj dwie stówki", "Oddasz mi 200 zł?", "pl", "pl"),
        ("not before nine fifteen!", "Could you start after 9:15?", "en", "en"),
        ("rent is 1450!", "The rent that is due is 1,450.", "en", "en"),
        ("zmywarka w sb", "Opróżnisz zmywarkę w sobotę?", "pl", "pl"),
        ("pagamos a medias", "¿Pagas el 50 %?", "es", "es"),
        ("we owe 3 grand!", "Together we owe £3,000.", "en", "en"),
        ("Ménage sous huitaine.", "Tu peux faire le ménage d'ici huit jours ?", "fr", "fr"),
        ("Ore 23.45, trapano!", "A mezzanotte meno un quarto sento il trapano.", "it", "it"),
        ("Cisza po 21!", "Może być cicho po dwudziestej pierwszej?", "pl", "pl"),
        ("Me deve 51,30!", "Você me paga os R$ 51,30?", "pt", "pt"),
        ("Deves-me 51,30!", "Podes pagar-me os 51,30 €?", "pt", "pt"),
        (
            "A Semana Santa vienes tú a limpiar",
            "Wäre es möglich, dass du an Ostern putzt?",
            "es",
            "de",
        ),
    ],
)
def test_a_fact_in_another_form_or_language_is_not_new(
    original: str, text: str, source: str, target: str
) -> None:
    assert not any(
        code.startswith("invented") for code in codes(text, original, source=source, target=target)
    )


@pytest.mark.parametrize(
    ("original", "text", "code"),
    [
        ("Pay me the 20 euros!", "Could you pay me the 20 dollars?", "invented_currency"),
        ("Pay me the rent!", "Sabine said so. Could you pay me the rent?", "invented_name"),
        ("Clean up!", "Could you clean up before Christmas?", "invented_date"),
        ("Aquí desde el 8 de enero!", "Está aquí desde el Día de Reyes.", "invented_date"),
        # The ninth month is no hour.
        ("Since 14/09!", "Could it be quiet after 9 pm?", "invented_number"),
        ("Done by 3/12!", "Could you do it by 4 December?", "invented_number"),
        ("Gimme my tenner!", "Could you give me back the £20?", "invented_number"),
        ("Not before nine fifteen!", "Could you start after 9:45?", "invented_time"),
        ("Quiet at 11:45 pm!", "Could it be quiet at a quarter past midnight?", "invented_time"),
        ("Pay me the 51.30!", "Could you pay me the 51.30 reais?", "invented_currency"),
    ],
)
def test_another_currency_a_new_person_or_day_is_refused(
    original: str, text: str, code: str
) -> None:
    target = "es" if "desde" in text else "en"

    assert codes(text, original, source=target, target=target)[code] is Severity.REFUSE


def test_a_capital_letter_alone_and_a_pet_are_warnings() -> None:
    found = codes("Could you leave the Zanussi clean? The cat needs room.", "Clean the machine!")

    assert found["invented_name"] is Severity.WARN
    assert found["new_mention"] is Severity.WARN


# -- likeness


SHARP = "clean teh kichen now u lazy slob, its been fithy sinse friday!!!"


def test_a_copy_is_refused_also_if_its_spelling_is_corrected() -> None:
    for copy in (SHARP, "Clean the kitchen now you lazy slob, it's been filthy since Friday."):
        assert codes(copy, SHARP)["near_identical"] is Severity.REFUSE


def test_a_rewrite_that_keeps_the_calm_part_of_a_long_message_is_a_warning_at_most() -> None:
    original = (
        "Dear Mrs Hill, I must ask that the prams be taken out of the stairwell on the second "
        "floor by the end of May. It is a scandal."
    )
    text = (
        "Dear Mrs Hill, could the prams be taken out of the stairwell on the second floor by the "
        "end of May?"
    )

    assert codes(text, original).get("near_identical", Severity.WARN) is Severity.WARN


# -- language


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("¿Puedes bajar la música? Merci beaucoup à toi.", "es"),
        ("Kannst du die Musik leiser machen? Thanks a lot.", "de"),
        ("Could you turn the music down? Ich kann nicht schlafen.", "en"),
        ("¿Puedes bajar la música? Thanks a lot!", "es"),
        ("Kannst du die Musik leiser machen? Merci beaucoup.", "de"),
        ("Could you turn the music down? Gracias, amigo mío.", "en"),
        ("¿Podrías turn the music down, por favor?", "es"),
        ("Pourrais-tu baisser la musique ? Turn it off, please.", "fr"),
        ("Vil du skrue ned for musikken?", "de"),
        ("Kannst du die Musik leiser machen? Tack så mycket.", "de"),
        ("Could you turn the music down? Teşekkürler.", "en"),
        ("Możesz ściszyć muzykę? Děkuji moc.", "pl"),
        ("Puoi abbassare la musica? Mulțumesc frumos.", "it"),
        ("Could you turn the music down? Спасибо.", "en"),
    ],
)
def test_one_short_sentence_in_another_language_is_enough(text: str, target: str) -> None:
    assert codes(text, target=target) == {"non_target_locale": Severity.REFUSE}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Kannst du leiser sein, du Depp?", "de"),
        ("Du Vollpfosten, mach bitte leiser.", "de"),
        ("Could you be quieter, you lazy cow?", "en"),
        ("Could you be quieter, you slob?", "en"),
        ("Could you turn the f---ing music down?", "en"),
        ("Could you turn the kcuf music down?", "en"),
        ("¿Puedes bajar la música, pringado?", "es"),
        ("Peux-tu baisser le son, espèce de cruche ?", "fr"),
        ("Puoi abbassare, deficiente?", "it"),
        ("Kun je zachter doen, eikel?", "nl"),
        ("Możesz ściszyć, debilu?", "pl"),
        ("Podes baixar o som, palerma?", "pt"),
    ],
)
def test_insults_are_refused_in_every_language(text: str, language: str) -> None:
    found = codes(text, source=language, target=language)
    assert Severity.REFUSE in {found.get("vulgarity"), found.get("personal_attack")}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Da du laut Profil Indirektes bevorzugst: Machst du leiser?", "de"),
        ("According to your profile you like hints: could you be quieter?", "en"),
        ("Según tu perfil prefieres rodeos: ¿puedes bajar la música?", "es"),
        ("Selon ton profil, tu préfères les détours : tu peux baisser le son ?", "fr"),
        ("Volgens je profiel houd je van hints: kun je zachter doen?", "nl"),
    ],
)
def test_the_profile_of_the_recipient_is_not_disclosed(text: str, language: str) -> None:
    found = codes(text, source=language, target=language)
    assert found["preference_disclosure"] is Severity.REFUSE


def test_a_missing_space_after_a_sentence_is_no_link() -> None:
    assert codes("I get up at six.In the morning the music is loud. Could you turn it down?") == {}


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("Okay, kannst du die Musik leiser machen? Das WLAN und die Pizza teile ich gern.", "de"),
        ("Sorry, zou je de muziek zachter willen zetten? Łukasz slaapt al.", "nl"),
        ("Could you turn the music down, Zoë? The café and the Wi-Fi are fine.", "en"),
        ("Puoi abbassare la musica? Il weekend con Jürgen e Siobhán è ok.", "it"),
        ("Zet je de muziek zachter? Thanks Bram!", "nl"),
        ("Machst du die Musik leiser? Merci, Lukas!", "de"),
        ("Słychać drzwi. Zamkniesz je?", "pl"),
    ],
)
def test_names_and_loan_words_are_not_another_language(text: str, target: str) -> None:
    assert "non_target_locale" not in codes(text, target=target)


def test_a_title_that_the_original_quotes_is_not_another_language() -> None:
    asked = "Stell Game of Thrones leiser, ich muss um 6 raus!"
    text = "Könntest du Game of Thrones leiser stellen? Ich muss um 6 raus."

    assert codes(text, asked, source="de", target="de") == {}


# -- likeness


def test_a_sharp_message_that_hardly_changed_is_refused_and_a_calm_one_is_not() -> None:
    sharp = "Turn that bloody music down you moron, i get up at six!!"
    calm = "Could you turn the music down? I get up at six."

    assert (
        codes("Turn that bloody music down, I get up at six.", sharp)["near_identical"]
        is Severity.REFUSE
    )
    assert codes(KIND, calm, strength=Strength.LIGHT_TOUCH) == {}
    assert codes(calm, calm, strength=Strength.LIGHT_TOUCH) == {"near_identical": Severity.WARN}
    # Unsure classifications reframe in full, but the message is a question.
    assert codes(calm, calm) == {"near_identical": Severity.WARN}


def test_a_rewrite_without_a_word_of_its_original_may_be_that_of_another_message() -> None:
    theirs = "Could you water my plants on the balcony while I travel?"

    assert codes(theirs) == {"unrelated": Severity.WARN}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"{KIND} You clearly need therapy.", "health_words"),
        (f"{KIND} People like you never sleep.", "group_words"),
        (f"{KIND} You should be ashamed.", "shame_words"),
        (f"{KIND} This is your last warning.", "threat_words"),
        (f"{KIND} Or I will throw all your things out.", "threat_words"),
    ],
)
def test_loaded_words_call_for_a_second_look(text: str, code: str) -> None:
    assert codes(text)[code] is Severity.WARN


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Könntest du die Schuhe bitte im Flur ausziehen?", "de"),
        ("Entschuldige die Störung: Könntet ihr etwas leiser sein?", "de"),
        ("Zou je de was eruit willen halen? De kraan heeft een lek.", "nl"),
        ("¿Podrías sacar la basura a la calle? La última vez olía bastante.", "es"),
        ("Tu pourrais laisser tes chaussures à la porte ? La dernière fois, c'était mieux.", "fr"),
        ("Podes deixar o carro na rua? Assim a entrada fica livre.", "pt"),
        ("Est-ce que tu pourrais remettre le salon en ordre ?", "fr"),
        ("Zou je op straat willen bellen? In de gang hoor ik alles.", "nl"),
        ("Kündigst du Besuch bitte einen Tag vorher an?", "de"),
        ("¿Podrías llamar a la puerta antes de pasar?", "es"),
        ("Dasz znać, jeśli ktoś z twoich gości zostaje na noc?", "pl"),
        ("Podes fechar a janela? Senão vou ficar com frio.", "pt"),
        ("Puoi chiudere il cancello? Stai attento ai gerani, per favore.", "it"),
    ],
)
def test_ordinary_words_call_for_no_second_look(text: str, language: str) -> None:
    assert codes(text, text, source=language, target=language, strength=Strength.LIGHT_TOUCH) == {
        "near_identical": Severity.WARN
    }


def test_health_that_the_original_mentions_is_not_new() -> None:
    asked = "The dog hair, vacuum it, my allergies are going nuts!"

    assert codes("My allergies are bad. Could you vacuum the dog hair?", asked) == {}


# -- the policy


def test_the_verdict_is_that_of_the_worst_finding() -> None:
    def mark(text: str) -> Mark:
        found = check(
            ASKED, text, source_language="en", target_language="en", detector=local_detector()
        )
        return mark_of(found)

    assert mark(KIND) is Mark.PASS
    assert mark(f"{KIND} Or else.") is Mark.WARN
    assert mark(f"{KIND} Or else, flatplan.io.") is Mark.FAIL
