"""Messages and what the local classifier must find in them, in the eight languages with rules."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """A message, one of its topics, its intent, and whether it is calm."""

    locale: str
    topic: str
    intent: str
    is_calm: bool
    text: str


CASES = [
    Case(*row)
    for row in (
        # English
        ("en", "noise", "request", True, "Could you use headphones when you play in the evening?"),
        ("en", "noise", "concern", False, "Your drums at midnight are driving me insane, I swear."),
        ("en", "cleanliness", "request", False, "Wash your own damn plates for once!!"),
        (
            "en",
            "cleanliness",
            "concern",
            True,
            "The sink was full again this morning and I could not make coffee.",
        ),
        ("en", "privacy", "boundary", True, "I am not comfortable with anyone opening my letters."),
        ("en", "guests", "request", True, "Please let me know before your brother stays over."),
        (
            "en",
            "schedule",
            "clarification",
            True,
            "Whose turn is it to take out the bins this week?",
        ),
        ("en", "communication", "concern", False, "You ignore every message I send. Unbelievable."),
        (
            "en",
            "other",
            "request",
            True,
            "Can you pay your half of the electricity bill by Friday?",
        ),
        # German
        ("de", "noise", "request", True, "Könntest du abends bitte Kopfhörer benutzen?"),
        (
            "de",
            "noise",
            "concern",
            False,
            "Dein Geschrei jede Nacht macht mich fertig, ich halte das nicht mehr aus!!",
        ),
        (
            "de",
            "cleanliness",
            "request",
            False,
            "Räum endlich deinen verdammten Dreck weg, du Schwein.",
        ),
        (
            "de",
            "cleanliness",
            "concern",
            True,
            "In der Küche steht seit Tagen schmutziges Geschirr.",
        ),
        (
            "de",
            "privacy",
            "boundary",
            True,
            "Ich möchte nicht, dass jemand ohne mich in mein Zimmer geht.",
        ),
        (
            "de",
            "guests",
            "request",
            True,
            "Sag mir bitte vorher Bescheid, wenn deine Freunde übernachten.",
        ),
        ("de", "schedule", "clarification", True, "Wer ist diese Woche mit dem Putzplan dran?"),
        (
            "de",
            "communication",
            "concern",
            False,
            "Du ignorierst jede meiner Nachrichten, das ist echt unverschämt.",
        ),
        (
            "de",
            "other",
            "request",
            True,
            "Kannst du bitte deinen Anteil der Stromrechnung überweisen?",
        ),
        # Spanish
        ("es", "noise", "request", True, "¿Podrías bajar un poco el volumen por la noche?"),
        (
            "es",
            "noise",
            "concern",
            False,
            "Tus gritos a las tres de la madrugada me tienen harta, es insoportable.",
        ),
        ("es", "cleanliness", "request", False, "¡Friega tus putos platos de una vez!"),
        ("es", "cleanliness", "concern", True, "La cocina lleva días sucia y me cuesta cocinar."),
        (
            "es",
            "privacy",
            "boundary",
            True,
            "No quiero que nadie entre en mi cuarto cuando no estoy.",
        ),
        (
            "es",
            "guests",
            "request",
            True,
            "Por favor, avísame antes de que tu hermano se quede a dormir.",
        ),
        ("es", "schedule", "clarification", True, "¿A quién le toca sacar la basura esta semana?"),
        (
            "es",
            "communication",
            "concern",
            False,
            "Ignoras todos mis mensajes, qué falta de respeto.",
        ),
        (
            "es",
            "other",
            "request",
            True,
            "¿Puedes pagar tu parte de la factura de la luz antes del viernes?",
        ),
        # French
        ("fr", "noise", "request", True, "Est-ce que tu pourrais baisser le son après 22 h ?"),
        (
            "fr",
            "noise",
            "concern",
            False,
            "Tes cris en pleine nuit me rendent folle, j'en peux plus !!",
        ),
        ("fr", "cleanliness", "request", False, "Lave ta putain de vaisselle, feignasse."),
        (
            "fr",
            "cleanliness",
            "concern",
            True,
            "L'évier était encore plein ce matin et je n'ai pas pu faire de café.",
        ),
        (
            "fr",
            "privacy",
            "boundary",
            True,
            "Je ne veux pas que quelqu'un entre dans ma chambre en mon absence.",
        ),
        ("fr", "guests", "request", True, "Merci de me prévenir avant que ton frère dorme ici."),
        (
            "fr",
            "schedule",
            "clarification",
            True,
            "C'est le tour de qui pour les poubelles cette semaine ?",
        ),
        (
            "fr",
            "communication",
            "concern",
            False,
            "Tu ignores tous mes messages, c'est inadmissible.",
        ),
        (
            "fr",
            "other",
            "request",
            True,
            "Tu peux payer ta part de la facture d'électricité avant vendredi ?",
        ),
        # Italian
        ("it", "noise", "request", True, "Potresti usare le cuffie la sera?"),
        (
            "it",
            "noise",
            "concern",
            False,
            "Le tue urla in piena notte mi fanno impazzire, non ne posso più!!",
        ),
        ("it", "cleanliness", "request", False, "Lava quei cazzo di piatti una buona volta!"),
        (
            "it",
            "cleanliness",
            "concern",
            True,
            "Il lavello era di nuovo pieno stamattina e non ho potuto fare il caffè.",
        ),
        (
            "it",
            "privacy",
            "boundary",
            True,
            "Non voglio che qualcuno entri nella mia camera quando non ci sono.",
        ),
        (
            "it",
            "guests",
            "request",
            True,
            "Per favore avvisami prima che tuo fratello si fermi a dormire.",
        ),
        (
            "it",
            "schedule",
            "clarification",
            True,
            "A chi tocca portare fuori la spazzatura questa settimana?",
        ),
        ("it", "communication", "concern", False, "Ignori tutti i miei messaggi, è inaccettabile."),
        (
            "it",
            "other",
            "request",
            True,
            "Puoi pagare la tua parte della bolletta della luce entro venerdì?",
        ),
        # Dutch
        ("nl", "noise", "request", True, "Zou je 's avonds een koptelefoon willen gebruiken?"),
        (
            "nl",
            "noise",
            "concern",
            False,
            "Ik word gek van je geschreeuw midden in de nacht, ik trek het niet meer!!",
        ),
        ("nl", "cleanliness", "request", False, "Was eindelijk je klote borden eens af, luilak."),
        (
            "nl",
            "cleanliness",
            "concern",
            True,
            "De gootsteen stond vanochtend weer vol en ik kon geen koffie zetten.",
        ),
        (
            "nl",
            "privacy",
            "boundary",
            True,
            "Ik wil niet dat iemand in mijn kamer komt als ik er niet ben.",
        ),
        (
            "nl",
            "guests",
            "request",
            True,
            "Laat het me alsjeblieft weten voordat je broer blijft slapen.",
        ),
        (
            "nl",
            "schedule",
            "clarification",
            True,
            "Wie is er deze week aan de beurt voor de vuilnis?",
        ),
        ("nl", "communication", "concern", False, "Je negeert al mijn berichten, echt onbeschoft."),
        (
            "nl",
            "other",
            "request",
            True,
            "Kun je jouw deel van de energierekening voor vrijdag betalen?",
        ),
        # Polish
        ("pl", "noise", "request", True, "Czy możesz wieczorem używać słuchawek?"),
        (
            "pl",
            "noise",
            "concern",
            False,
            "Twoje wrzaski w środku nocy doprowadzają mnie do szału, nie wytrzymam!!",
        ),
        ("pl", "cleanliness", "request", False, "Umyj wreszcie te pieprzone gary, leniu."),
        (
            "pl",
            "cleanliness",
            "concern",
            True,
            "Zlew był dziś rano znowu pełen naczyń i nie mogłam zrobić kawy.",
        ),
        (
            "pl",
            "privacy",
            "boundary",
            True,
            "Nie chcę, żeby ktoś wchodził do mojego pokoju, kiedy mnie nie ma.",
        ),
        ("pl", "guests", "request", True, "Proszę, daj mi znać, zanim twój brat zostanie na noc."),
        (
            "pl",
            "schedule",
            "clarification",
            True,
            "Czyja kolej na wynoszenie śmieci w tym tygodniu?",
        ),
        (
            "pl",
            "communication",
            "concern",
            False,
            "Ignorujesz wszystkie moje wiadomości, to po prostu bezczelne.",
        ),
        (
            "pl",
            "other",
            "request",
            True,
            "Czy możesz zapłacić swoją część rachunku za prąd do piątku?",
        ),
        # Portuguese
        ("pt", "noise", "request", True, "Você poderia usar fones de ouvido à noite?"),
        (
            "pt",
            "noise",
            "concern",
            False,
            "Os teus gritos a meio da noite deixam-me louca, não aguento mais!!",
        ),
        ("pt", "cleanliness", "request", False, "Lava a porra da louça de uma vez, preguiçoso."),
        (
            "pt",
            "cleanliness",
            "concern",
            True,
            "A pia estava cheia de novo hoje de manhã e não consegui fazer café.",
        ),
        (
            "pt",
            "privacy",
            "boundary",
            True,
            "Não quero que ninguém entre no meu quarto quando não estou.",
        ),
        (
            "pt",
            "guests",
            "request",
            True,
            "Por favor, avisa-me antes de o teu irmão dormir cá em casa.",
        ),
        (
            "pt",
            "schedule",
            "clarification",
            True,
            "De quem é a vez de levar o lixo para a rua esta semana?",
        ),
        (
            "pt",
            "communication",
            "concern",
            False,
            "Você ignora todas as minhas mensagens, que falta de respeito.",
        ),
        ("pt", "other", "request", True, "Pode pagar a sua parte da conta de luz até sexta?"),
    )
]
