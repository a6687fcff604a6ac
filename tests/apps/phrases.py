"""Two quarrels in six languages: what is said in anger, and how it is said kindly."""

from __future__ import annotations

LANGUAGES = ("en", "de", "es", "fr", "it", "pt")

SAID = {
    "bins": {
        "en": "You never take the bins out and it is disgusting. Take the bins out tonight, you"
        " lazy slob.",
        "de": "Du bringst nie den Müll raus, das ist ekelhaft. Bring heute Abend endlich den Müll"
        " raus, du faule Sau.",
        "es": "Nunca sacas la basura y da asco. Saca la basura esta noche de una vez, vago.",
        "fr": "Tu ne sors jamais les poubelles, c'est dégoûtant. Sors les poubelles ce soir,"
        " espèce de fainéant.",
        "it": "Non porti mai fuori la spazzatura, fa schifo. Porta fuori la spazzatura stasera,"
        " pigrone.",
        "pt": "Você nunca leva o lixo para fora, é nojento. Leve o lixo para fora hoje à noite,"
        " seu preguiçoso.",
    },
    "music": {
        "en": "Your music is so damn loud every night. Turn the music down, I cannot sleep.",
        "de": "Deine Musik ist jede Nacht so verdammt laut. Mach die Musik leiser, ich kann nicht"
        " schlafen.",
        "es": "Tu música está altísima todas las noches, joder. Baja la música, no puedo dormir.",
        "fr": "Ta musique est bien trop forte toutes les nuits, merde. Baisse la musique, je"
        " n'arrive pas à dormir.",
        "it": "La tua musica è altissima ogni notte, cazzo. Abbassa la musica, non riesco a"
        " dormire.",
        "pt": "A sua música fica altíssima toda noite, porra. Abaixe a música, eu não consigo"
        " dormir.",
    },
}

KIND = {
    "bins": {
        "en": "Could you please take the bins out tonight? It would really help me.",
        "de": "Könntest du heute Abend bitte den Müll rausbringen? Das würde mir sehr helfen.",
        "es": "¿Podrías sacar la basura esta noche, por favor? Me ayudaría mucho.",
        "fr": "Pourrais-tu sortir les poubelles ce soir, s'il te plaît ? Cela m'aiderait beaucoup.",
        "it": "Potresti portare fuori la spazzatura stasera, per favore? Mi aiuterebbe molto.",
        "pt": "Você poderia levar o lixo para fora hoje à noite, por favor? Isso me ajudaria"
        " muito.",
    },
    "music": {
        "en": "Could you please turn the music down a little at night? I find it hard to sleep.",
        "de": "Könntest du die Musik nachts bitte etwas leiser machen? Ich kann sonst schlecht"
        " schlafen.",
        "es": "¿Podrías bajar un poco la música por la noche, por favor? Me cuesta dormir.",
        "fr": "Pourrais-tu baisser un peu la musique la nuit, s'il te plaît ? J'ai du mal à"
        " dormir.",
        "it": "Potresti abbassare un po' la musica di notte, per favore? Faccio fatica a dormire.",
        "pt": "Você poderia abaixar um pouco a música à noite, por favor? Tenho dificuldade para"
        " dormir.",
    },
}
