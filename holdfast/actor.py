"""Who caused a change: a user, an API key or the system itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ActorType(StrEnum):
    """What kind of actor caused a change."""

    USER = "user"
    SYSTEM = "system"
    API_KEY = "api_key"


class Role(StrEnum):
    """What somebody may do beyond the work of a tenant.

    A member looks at and cancels a tenant's own jobs, an operator mends them, an admin also does
    what concerns every tenant.
    """

    ADMIN = "admin"
    OPERATOR = "operator"
    MEMBER = "member"

    @property
    def rank(self) -> int:
        """How much the role may do: a higher rank may do all that a lower one may."""
        return (Role.MEMBER, Role.OPERATOR, Role.ADMIN).index(self)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who caused a change."""

    type: ActorType
    id: str

    @classmethod
    def read(cls, text: str) -> Actor:
        """``user:42``, ``api_key:…`` or ``system:…``; bare text is a user's id."""
        kind, colon, rest = text.partition(":")
        if colon and kind in tuple(ActorType):
            return cls(ActorType(kind), rest)
        return cls(ActorType.USER, text)


SYSTEM = Actor(ActorType.SYSTEM, "holdfast")
