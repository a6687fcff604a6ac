"""Tone signals that do not depend on words. Pure."""

from __future__ import annotations

ANGRY_FACES = frozenset("😠😡🤬👿💢🤮🖕😤😭💀🙄😒")


def has_angry_face(text: str) -> bool:
    """Return whether a text contains an angry, mocking or disgusted emoji."""
    return not ANGRY_FACES.isdisjoint(text)
