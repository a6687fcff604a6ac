"""A rewrite that asks for the opposite is found, and one that asks in other words is not."""

from __future__ import annotations

import pytest

from holdfast_rewrite.negation import is_one_word, is_reversed
from holdfast_rewrite.ruleset import LOCALES, Reading, Rules

OPPOSITES = [
    ("de", "Rauch nicht auf dem Balkon!", "Könntest du bitte auf dem Balkon rauchen?"),
    ("de", "Bring den Müll raus!", "Bitte bring den Müll nicht raus."),
    ("de", "Mach das Licht aus!", "Könntest du das Licht anlassen?"),
    ("de", "Mach die verdammte Musik leiser!", "Bitte mach die Musik nicht leiser."),
    ("de", "Mach die verdammte Musik leiser!", "Könntest du die Musik bitte lauter machen?"),
    ("en", "Take the bins out, you lazy pig, it stinks!", "Please don't take the bins out."),
    ("en", "Take the bins out!", "Could you please not take the bins out?"),
    ("en", "Stop smoking on the balcony!", "Could you please smoke on the balcony?"),
    ("en", "Don't use my towel!", "Please use my towel."),
    ("en", "Open the window!", "Could you close the window?"),
    ("en", "Turn off the heating!", "Could you leave the heating on?"),
    ("en", "Turn the damn music down at night!", "Please don't turn the music down at night."),
    (
        "en",
        "Turn the damn music down at night!",
        "Could you keep the music up at night? I like it.",
    ),
    (
        "en",
        "Stop bringing your stupid friends over every night!",
        "Could you please bring your friends over every night?",
    ),
    ("en", "Don't come into my room!", "Please come into my room."),
    ("es", "¡No fumes en el balcón!", "¿Podrías fumar en el balcón, por favor?"),
    ("es", "¡Baja la puta música!", "Por favor, no bajes la música."),
    ("fr", "Sors la poubelle !", "S'il te plaît, ne sors pas la poubelle."),
    ("fr", "Ne fume pas sur le balcon !", "Pourrais-tu fumer sur le balcon ?"),
    ("fr", "Baisse cette putain de musique !", "S'il te plaît, ne baisse pas la musique."),
    ("it", "Porta fuori la spazzatura!", "Per favore, non portare fuori la spazzatura."),
    ("it", "Non fumare sul balcone!", "Potresti fumare sul balcone?"),
    ("it", "Abbassa quella cazzo di musica!", "Per favore, non abbassare la musica."),
    ("nl", "Zet de vuilnis buiten!", "Zet de vuilnis alsjeblieft niet buiten."),
    ("nl", "Zet die kutmuziek zachter!", "Zet de muziek alsjeblieft niet zachter."),
    ("pl", "Nie pal na balkonie!", "Czy mógłbyś palić na balkonie?"),
    ("pl", "Ścisz tę cholerną muzykę!", "Proszę, nie ściszaj muzyki."),
    ("pt", "Leva o lixo para baixo!", "Por favor, não leves o lixo para baixo."),
    ("pt", "Não fume na varanda!", "Você poderia fumar na varanda, por favor?"),
    ("pt", "Abaixa essa merda de música!", "Por favor, não abaixes a música."),
]

# The same wish in other words, softer, or the other way round.
KEPT = [
    ("en", "Stop leaving your dishes in the sink!", "Could you please wash the dishes?"),
    (
        "en",
        "Stop leaving your dishes in the sink!",
        "Could you please not leave dishes in the sink?",
    ),
    ("en", "Stop leaving your dishes in the sink!", "Please wash your dishes in the sink."),
    ("en", "Stop leaving your dishes in the sink!", "Could you leave the sink empty?"),
    ("en", "Stop leaving your dishes in the sink!", "Could you stop leaving dishes in the sink?"),
    (
        "en",
        "Stop leaving your dishes in the sink!",
        "Would you mind not leaving dishes in the sink?",
    ),
    ("en", "Stop leaving your dishes in the sink!", "Could you put your dishes in the dishwasher?"),
    (
        "en",
        "Stop leaving your dishes in the sink!",
        "I'd appreciate it if you didn't leave dishes in the sink.",
    ),
    (
        "en",
        "Don't come into my room without knocking!",
        "Please knock before you come into my room.",
    ),
    (
        "en",
        "Don't come into my room without knocking!",
        "Could you knock before coming into my room?",
    ),
    (
        "en",
        "Don't come into my room without knocking!",
        "Please only come into my room after knocking.",
    ),
    (
        "en",
        "Don't come into my room without knocking!",
        "Please come into my room only when I'm there.",
    ),
    (
        "en",
        "Don't come into my room without knocking!",
        "Could you come into my room only after you knock?",
    ),
    (
        "en",
        "Never enter my room before knocking!",
        "Could you please knock before entering my room?",
    ),
    (
        "en",
        "Stop playing music so loud at night!",
        "Could you play your music more quietly at night?",
    ),
    (
        "en",
        "Stop playing music so loud at night!",
        "Could you play music with headphones at night?",
    ),
    (
        "en",
        "Stop playing music so loud at night!",
        "Could you play your music at a lower volume at night?",
    ),
    ("en", "Stop playing music so loud at night!", "Could you turn the music down at night?"),
    (
        "en",
        "Stop playing music so loud at night!",
        "Could you please not play music so loud at night?",
    ),
    ("en", "Turn the damn music down!", "Please don't turn the music up so loud."),
    ("en", "Turn the damn music down!", "Couldn't you turn the music down a bit?"),
    ("en", "Turn the damn music down!", "Please don't forget to turn the music down."),
    ("en", "Turn the damn music down!", "Could you not play it so loud?"),
    (
        "en",
        "Turn the damn music down!",
        "It would help if the music didn't get louder at night. Could you turn it down?",
    ),
    (
        "en",
        "Turn the damn music down!",
        "Could you please turn it down? It gets louder every night.",
    ),
    ("en", "Turn the damn music down!", "Can't you turn the music down a little?"),
    ("en", "Turn the damn music down!", "Why don't we turn the music down after ten?"),
    ("en", "Turn the damn music down!", "Could you please not turn the music up at night?"),
    ("en", "Stop eating my food without asking!", "Could you ask before eating my food?"),
    ("en", "Stop eating my food without asking!", "Please eat my food only after asking me."),
    ("en", "Stop eating my food without asking!", "Could you please ask me first?"),
    ("en", "Stop turning the heating off!", "Could you please leave the heating on?"),
    ("en", "Stop turning the heating off!", "Could you turn the heating on?"),
    ("en", "Close the fucking door!", "Could you please not leave the door open?"),
    ("en", "Close the fucking door!", "Could you make sure the door isn't left open?"),
    ("en", "Close the fucking door!", "Could you check that the door is not open?"),
    ("en", "Close the fucking door!", "Please keep the door closed."),
    ("en", "Can't you take the bins out for once?", "Could you take the bins out?"),
    ("en", "Why don't you ever wash the dishes?", "Could you please wash the dishes?"),
    ("en", "You never take the bins out. Do something!", "Could you take the bins out?"),
    ("en", "Don't just stand there, wash the dishes!", "Could you please wash the dishes?"),
    ("en", "Don't you ever clean the bathroom?", "Could you clean the bathroom?"),
    ("en", "Don't leave the window open!", "Could you close the window?"),
    ("en", "Don't leave the window open!", "Please don't leave the window open."),
    ("en", "Don't leave the window open!", "Could you keep the window closed?"),
    ("en", "Don't drink all the milk!", "Could you please leave some milk?"),
    ("en", "Don't drink all the milk!", "Could you drink a bit less of the milk?"),
    ("en", "Don't park your bike in the hall!", "Could you park your bike outside?"),
    ("en", "Don't park your bike in the hall!", "Could you park your bike in the yard?"),
    (
        "en",
        "Stop bringing your friends over every night!",
        "Could you bring your friends over less often?",
    ),
    (
        "en",
        "Stop bringing your friends over every night!",
        "Could you please bring your friends over only on weekends?",
    ),
    (
        "en",
        "Stop bringing your friends over every night!",
        "Could you bring friends over every other night?",
    ),
    (
        "en",
        "Stop bringing your friends over every night!",
        "Could you let me know before you bring your friends over?",
    ),
    ("de", "Mach die Musik leiser!", "Könntest du die Musik bitte nicht so laut machen?"),
    ("de", "Mach die Musik leiser!", "Könntest du die Musik nicht etwas leiser machen?"),
    ("de", "Mach die Musik leiser!", "Kannst du die Musik nicht ein bisschen leiser machen?"),
    ("de", "Mach die Musik leiser!", "Könntest du bei lauter Musik die Tür zumachen?"),
    ("de", "Mach die Musik leiser!", "Bitte vergiss nicht, die Musik leiser zu machen."),
    ("de", "Mach die Musik leiser!", "Bitte dreh die Musik nicht so auf."),
    ("de", "Mach die Musik leiser!", "Es wäre schön, wenn die Musik nicht so laut wäre."),
    (
        "de",
        "Mach die Musik leiser!",
        "Ich kann nicht schlafen, könntest du die Musik leiser machen?",
    ),
    ("de", "Mach die Musik leiser!", "Magst du vielleicht die Musik etwas runterdrehen?"),
    (
        "de",
        "Kannst du nicht endlich den Müll rausbringen?",
        "Könntest du bitte den Müll rausbringen?",
    ),
    (
        "de",
        "Kannst du nicht einmal den Müll rausbringen, du fauler Sack!",
        "Könntest du bitte den Müll rausbringen?",
    ),
    (
        "de",
        "Du räumst die Küche nicht auf, mach endlich was!",
        "Könntest du bitte die Küche aufräumen?",
    ),
    ("de", "Lass das Fenster nicht offen!", "Könntest du das Fenster bitte zumachen?"),
    ("de", "Lass das Fenster nicht offen!", "Lass das Fenster bitte zu."),
    ("de", "Lass das Fenster nicht offen!", "Könntest du das Fenster bitte nicht offen lassen?"),
    (
        "de",
        "Komm nicht in mein Zimmer, ohne zu klopfen!",
        "Klopf bitte, bevor du in mein Zimmer kommst.",
    ),
    ("de", "Komm nicht in mein Zimmer, ohne zu klopfen!", "Könntest du bitte klopfen?"),
    (
        "de",
        "Komm nicht in mein Zimmer, ohne zu klopfen!",
        "Bitte komm nur in mein Zimmer, wenn du geklopft hast.",
    ),
    (
        "de",
        "Stell dein Geschirr nicht in die Spüle!",
        "Könntest du dein Geschirr bitte in die Spülmaschine stellen?",
    ),
    (
        "de",
        "Bring nicht ständig deine Freunde mit!",
        "Könntest du deine Freunde bitte seltener mitbringen?",
    ),
    (
        "de",
        "Bring nicht ständig deine Freunde mit!",
        "Könntest du bitte vorher Bescheid sagen, wenn du deine Freunde mitbringst?",
    ),
    ("es", "¡Baja la música!", "¿No podrías bajar la música?"),
    ("es", "¡Baja la música!", "Por favor, no pongas la música tan alta."),
    ("es", "¡Baja la música!", "¿Podrías no poner la música tan alta por la noche?"),
    ("es", "¡Baja la música!", "¿Podrías bajar la música, que no puedo dormir?"),
    ("es", "¡Baja la música!", "Por favor, no subas la música por la noche."),
    ("es", "¡No limpias la cocina, haz algo!", "¿Podrías limpiar la cocina, por favor?"),
    ("es", "¡No entres en mi cuarto sin llamar!", "Por favor, llama antes de entrar en mi cuarto."),
    ("es", "¡No entres en mi cuarto sin llamar!", "¿Podrías llamar a la puerta?"),
    ("es", "¡No dejes la ventana abierta!", "¿Podrías cerrar la ventana?"),
    ("es", "¡No dejes la ventana abierta!", "¿Podrías dejar la ventana cerrada?"),
    ("fr", "Baisse la musique !", "Ne pourrais-tu pas baisser la musique ?"),
    ("fr", "Baisse la musique !", "Pourrais-tu ne pas mettre la musique si fort ?"),
    ("fr", "Baisse la musique !", "S'il te plaît, ne monte pas le son le soir."),
    ("fr", "Baisse la musique !", "Pourrais-tu mettre la musique moins fort ?"),
    ("fr", "Baisse la musique !", "Pourrais-tu baisser la musique ? Je n'arrive pas à dormir."),
    ("fr", "Tu ne fais pas la vaisselle, bouge-toi !", "Pourrais-tu faire la vaisselle ?"),
    ("fr", "Ne laisse pas la fenêtre ouverte !", "Pourrais-tu fermer la fenêtre ?"),
    ("fr", "Ne laisse pas la fenêtre ouverte !", "Pourrais-tu laisser la fenêtre fermée ?"),
    ("it", "Abbassa la musica!", "Non potresti abbassare la musica?"),
    ("it", "Abbassa la musica!", "Potresti non alzare il volume di notte?"),
    ("it", "Abbassa la musica!", "Per favore, non alzare la musica."),
    ("it", "Abbassa la musica!", "Potresti abbassare la musica? Non riesco a dormire."),
    (
        "it",
        "Non entrare in camera mia senza bussare!",
        "Potresti bussare prima di entrare in camera mia?",
    ),
    ("it", "Non entrare in camera mia senza bussare!", "Potresti bussare?"),
    ("it", "Non pulisci mai la cucina, fai qualcosa!", "Potresti pulire la cucina?"),
    ("pt", "Abaixa a música!", "Não poderias baixar a música?"),
    ("pt", "Abaixa a música!", "Por favor, não aumentes o som."),
    ("pt", "Abaixa a música!", "Você poderia não colocar a música tão alta?"),
    ("pt", "Abaixa a música!", "Você poderia baixar o som? Não consigo dormir."),
    (
        "pt",
        "Não entre no meu quarto sem bater!",
        "Você poderia bater antes de entrar no meu quarto?",
    ),
    ("nl", "Zet de muziek zachter!", "Zou je de muziek niet wat zachter kunnen zetten?"),
    ("nl", "Zet de muziek zachter!", "Zou je de muziek niet zo hard willen zetten?"),
    ("nl", "Zet de muziek zachter!", "Zet de muziek alsjeblieft niet zo hard."),
    ("nl", "Zet de muziek zachter!", "Zou je de muziek alsjeblieft niet harder willen zetten?"),
    ("nl", "Zet de muziek zachter!", "Vergeet alsjeblieft niet de muziek zachter te zetten."),
    ("nl", "Laat je vuile borden niet op het aanrecht staan!", "Zou je je borden willen afwassen?"),
    (
        "nl",
        "Laat je vuile borden niet op het aanrecht staan!",
        "Zou je je borden in de vaatwasser willen zetten?",
    ),
    ("nl", "Kun je niet eens de vuilnis buiten zetten?", "Zou je de vuilnis buiten willen zetten?"),
    ("pl", "Ścisz muzykę!", "Czy nie mógłbyś ściszyć muzyki?"),
    ("pl", "Ścisz muzykę!", "Proszę, nie puszczaj muzyki tak głośno."),
    ("pl", "Ścisz muzykę!", "Czy mógłbyś nie puszczać muzyki głośno?"),
    ("pl", "Ścisz muzykę!", "Czy mógłbyś ściszyć muzykę? Nie mogę spać."),
    ("pl", "Ścisz muzykę!", "Proszę, nie zapomnij ściszyć muzyki."),
    ("pl", "Nie wchodź do mojego pokoju bez pukania!", "Czy mógłbyś zapukać przed wejściem?"),
    (
        "pl",
        "Nie wchodź do mojego pokoju bez pukania!",
        "Proszę, pukaj, zanim wejdziesz do mojego pokoju.",
    ),
    ("en", "Stop forgetting to turn the music down!", "Could you turn the music down?"),
    (
        "de",
        "Deine Freunde kommen jede Nacht, hör auf damit!",
        "Könnten deine Freunde bitte nicht jede Nacht kommen?",
    ),
    (
        "pt",
        "Você traz gente toda noite, pare!",
        "Você poderia não trazer gente toda noite, por favor?",
    ),
]

QUIETER = {
    "de": "Mach die Musik leiser!",
    "en": "Turn the music down!",
    "es": "¡Baja la música!",
    "fr": "Baisse la musique !",
    "it": "Abbassa la musica!",
    "nl": "Zet de muziek zachter!",
    "pl": "Ścisz muzykę!",
    "pt": "Abaixa a música!",
}
LOUDER = {
    "de": "Könntest du die Musik bitte lauter machen?",
    "en": "Please don't turn the music down.",
    "es": "Por favor, no bajes la música.",
    "fr": "Pourrais-tu monter le son ?",
    "it": "Potresti alzare la musica?",
    "nl": "Zou je de muziek harder willen zetten?",
    "pl": "Proszę, nie ściszaj muzyki.",
    "pt": "Por favor, não abaixes a música.",
}


def read(text: str, locale: str) -> Reading:
    rules = Rules.for_locale(locale)
    assert rules is not None
    return rules.read(text)


@pytest.mark.parametrize(("locale", "original", "rewrite"), OPPOSITES)
def test_the_opposite_of_what_was_asked_for_is_found(
    locale: str, original: str, rewrite: str
) -> None:
    given, said = read(original, locale), read(rewrite, locale)

    assert is_reversed(given, said, is_same_language=True)


@pytest.mark.parametrize(("locale", "original", "rewrite"), KEPT)
def test_what_was_asked_for_may_be_put_in_other_words(
    locale: str, original: str, rewrite: str
) -> None:
    given, said = read(original, locale), read(rewrite, locale)

    assert not is_reversed(given, said, is_same_language=True)


@pytest.mark.parametrize("target", LOCALES)
@pytest.mark.parametrize("source", LOCALES)
def test_louder_for_quieter_is_found_from_every_language_to_every_other(
    source: str, target: str
) -> None:
    given = read(QUIETER[source], source)

    assert is_reversed(given, read(LOUDER[target], target), is_same_language=False)
    assert not is_reversed(given, read(QUIETER[target], target), is_same_language=False)


@pytest.mark.parametrize(
    ("word", "other", "is_one"),
    [
        ("bring", "bringing", True),
        ("take", "taking", True),
        ("baja", "bajes", True),
        ("abbassa", "abbassare", True),
        ("quiet", "quick", False),
        ("up", "down", False),
        ("spule", "spulmaschine", False),
    ],
)
def test_words_that_differ_in_their_endings_are_one(word: str, other: str, is_one: bool) -> None:
    assert is_one_word(word, other) is is_one
    assert is_one_word(other, word) is is_one
