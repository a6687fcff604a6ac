"""Finds keys and tokens by their shape in one scan of the text. Pure and linear."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.secret import KEYS
from holdfast.secret_rules import installed_rules
from holdfast.secret_scan import Scanner, Shape, Span
from holdfast.secret_shapes import SHAPES

_KEYS = re.compile(
    "(?:"
    + KEYS
    + r"""
        | hf_[A-Za-z0-9]{30,}+ | gsk_[A-Za-z0-9]{32,}+ | r8_[A-Za-z0-9]{32,}+
        | xai-[A-Za-z0-9]{32,}+ | pplx-[A-Za-z0-9]{32,}+ | whsec_[A-Za-z0-9+/=]{24,}+
        | SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,}+
        | ya29\.[A-Za-z0-9_-]{20,}+ | GOCSPX-[A-Za-z0-9_-]{20,}+ | xapp-[A-Za-z0-9-]{20,}+
        | dapi[a-f0-9]{32} | shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32} | dop_v1_[a-f0-9]{64}
        | pypi-[A-Za-z0-9_-]{32,}+ | dckr_[op]at_[A-Za-z0-9_-]{20,}+ | hv[bs]\.[A-Za-z0-9_-]{20,}+
        | AGE-SECRET-KEY-1[A-Z0-9]{40,}+ | AT[AC]TT3[A-Za-z0-9_=-]{20,}+ | lin_api_[A-Za-z0-9]{32,}+
        | sq0(?:atp|csp)-[A-Za-z0-9_-]{20,}+ | gl(?:dt|ft|rt|soat|cbt|ptt|agent)-[A-Za-z0-9_-]{20,}+
        | re_(?<![A-Za-z0-9]re_)[A-Za-z0-9]{6,12}_[A-Za-z0-9]{20,}+       # Resend
        | key-(?<![A-Za-z0-9_-]key-)[a-f0-9]{32}(?![A-Za-z0-9])          # Mailgun
        | SK(?<![A-Za-z0-9]SK)[a-f0-9]{32}(?![A-Za-z0-9])                # Twilio
        | :AA(?<=[0-9]{8}:AA)[A-Za-z0-9_-]{30,40}                        # a bot of Telegram
        | eyJ[A-Za-z0-9_-]{17,}+ (?:\.[A-Za-z0-9_-]*+)*+   # a JWT, or any JSON in base64
        | (?:hooks\.slack|discord(?:app)?)\.com/(?:services|workflows|triggers|api/webhooks)/
          [^\s"'<>]*+
        | api\.telegram\.org/bot[^\s/"'<>]*+
      )[A-Za-z0-9_-]*+""",
    re.VERBOSE,
)
_WORD = re.compile(r"[A-Za-z0-9_-]")


# Every key starts with one of these.
_KEY_WORDS = """
    sk akia asia ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xox aiza npm_ hf_ rk_live_ rk_test_
    gsk_ r8_ xai- pplx- whsec_ sg. ya29. gocspx- xapp- dapi shpat_ shpca_ shppa_ shpss_ dop_v1_
    pypi- dckr_ hvb. hvs. age-secret-key-1 atatt3 actt3 lin_api_ sq0atp- sq0csp- gldt- glft- glrt-
    glsoat- glcbt- glptt- glagent- re_ key- :aa eyj hooks.slack.com/ discord.com/ discordapp.com/
    api.telegram.org/
"""


def _find_key(text: str, at: int) -> Span | None:
    found = _KEYS.match(text, at)
    # Inside a word, only shapes that are not words match: task-risk-assessment is not a key.
    if found is None or (
        text.startswith("sk-", at)
        and at
        and _WORD.match(text, at - 1)
        and not (_has_digit(found[0]) and found[0] != found[0].lower())
    ):
        return None
    return *found.span(), "secret"


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)


# A value may be followed directly by the name of the next one.
_BEARER = re.compile(r"bearer[\s\0]{1,4}[\"']?(?=([A-Za-z0-9._~+/=:|-]{6,}+))", re.I)
_BASIC = re.compile(
    r"(?<![a-z])(?:basic|digest|negotiate|ntlm)[\s\0]{1,4}(?=([a-z0-9+/=_-]{8,}+))", re.I
)


def _find_bearer(text: str, at: int) -> Span | None:
    found = _BEARER.match(text, at)
    return None if found is None else (*found.span(1), "secret")


def _find_basic(text: str, at: int) -> Span | None:
    found = _BASIC.match(text, at)
    if found is None:
        return None
    # "Basic understanding" is prose.
    is_value = "=" in found[1] or _has_digit(found[1]) or found[1][1:] != found[1][1:].lower()
    return (*found.span(1), "secret") if is_value else None


# A Discord bot token: id in base64, timestamp, signature. No part of it is fixed.
_DISCORD_BOT = re.compile(
    r"(?<![A-Za-z0-9_.-])[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,45}"
    r"(?![A-Za-z0-9_-])"
)


_SCANNER = Scanner(
    [
        Shape("key", tuple(_KEY_WORDS.split()), _find_key),
        Shape("bearer", ("bearer",), _find_bearer),
        Shape("basic", ("basic", "digest", "negotiate", "ntlm"), _find_basic),
        *SHAPES,
    ]
)


def find_known(text: str) -> Iterator[Span]:
    """Keys and tokens of known shape."""
    yield from _SCANNER.find(text)
    for rules in installed_rules():
        yield from rules.find(text)
    for found in _DISCORD_BOT.finditer(text):
        yield *found.span(), "secret"
