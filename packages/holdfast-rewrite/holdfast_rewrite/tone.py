"""Tone signals that do not depend on words. Pure."""

from __future__ import annotations

import re

ANGRY_FACES = frozenset("😠😡🤬👿💢🤮🖕😤😭💀🙄😒")

_WORD = re.compile(r"[^\W\d_]{3,}")
_EXCLAIMED = re.compile(r"!{2,}|!\?|\?!|\?{3,}")
# A message in capitals, or this many words in capitals, is shouting; one word is emphasis.
MANY_SHOUTED = 2


def has_angry_face(text: str) -> bool:
    """Return whether a text contains an angry, mocking or disgusted emoji."""
    return not ANGRY_FACES.isdisjoint(text)


def is_loud(text: str) -> bool:
    """Return whether a message shouts: capitals, repeated marks, angry faces."""
    if _EXCLAIMED.search(text) or has_angry_face(text):
        return True
    return sum(map(str.isupper, _WORD.findall(text))) >= MANY_SHOUTED
