"""How a text sounds whatever its words are. Pure."""

from __future__ import annotations

ANGRY_FACES = frozenset("😠😡🤬👿💢🤮🖕😤😭💀🙄😒")


def has_angry_face(text: str) -> bool:
    """Whether a face or a sign in a text is angry, mocking or sick of somebody."""
    return not ANGRY_FACES.isdisjoint(text)
