"""Find a currency in a rewrite that its original lacks. Texts are normalized. Pure."""

from __future__ import annotations

import re

from holdfast_rewrite.numerals import numerals

# By word or sign. Units of weight with the same name count only after a number.
_CURRENCIES = {
    "euro": re.compile(r"€|(?<![a-z])eur(?:o|os)?(?![a-z])"),
    "dollar": re.compile(r"(?<!r)\$|(?<!\w)(?:usd|bucks?|dollar\w*|dolar\w*)(?!\w)"),
    "pound": re.compile(
        r"£|(?<!\w)(?:gbp|quid|sterlin\w*|(?:livres?|libras?) (?:sterling|esterlinas?))(?!\w)"
        r"|\d\s?(?:pounds?|pfund|libras?|pond|funt\w*|livres)(?!\w)"
    ),
    "franc": re.compile(
        r"(?<![a-z])chf(?![a-z])|(?<!\w)(?:franken|francs?|franchi|francos)(?!\w)|\d\s?frank\w*"
    ),
    "zloty": re.compile(
        r"(?<![a-z])(?:zl|pln)(?![a-z])|(?<!\w)zlot(?:y|e|ych|ow\w*|ego|emu|ym)(?!\w)"
    ),
    "real": re.compile(r"r\$|(?<!\w)(?:brl|reais)(?!\w)"),
}


# What a sum without a currency means in a language that most of its speakers share one or two in.
_UNSAID = {
    **dict.fromkeys(("de", "es", "fr", "it", "nl"), frozenset({"euro"})),
    "pl": frozenset({"zloty"}),
    "pt": frozenset({"euro", "real"}),
}
# A colloquial word for money stands for any currency.
_MONEY = re.compile(
    r"(?<!\w)(?:fiver|tenner|grand|cash|money|geld|kohle|tacken|mause|flocken|steine|ocken"
    r"|kroten|piepen|pavos?|pasta|duros?|lucas?|plata|balles?|boules?|thunes?|fric|sous|sacchi|soldi"
    r"|grana|pila|conto|contos|paus?|mango|grana|dinheiro|dinero|argent|piek|ballen|doekoe|poen|stow\w*"
    r"|kas[ayeo]|dych\w*|hajs\w*|pieniadz\w*|peso|pesos)(?!\w)"
)


def has_new_currency(said: str, given: str, locale: str) -> bool:
    """Return whether a text names a currency that its original lacks.

    Where the original names none, a usual one of the language is not new.
    """
    had = frozenset(name for name, one in _CURRENCIES.items() if one.search(given))
    has = frozenset(name for name, one in _CURRENCIES.items() if one.search(said))
    if not had and locale in _UNSAID:
        had = _UNSAID[locale]
    elif not had and (locale not in numerals() or _MONEY.search(given)):
        had = has
    return bool(has - had)
