"""Actors: the user, API key or system component that caused a change. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from holdfast.errors import InvalidArgument


class ActorType(StrEnum):
    """The type of an actor."""

    USER = "user"
    SYSTEM = "system"
    API_KEY = "api_key"


class Role(StrEnum):
    """The role of an operator.

    A viewer only reads. A member reads and cancels the jobs of a tenant. An operator also recovers
    failed work. An admin also makes changes that affect every tenant.
    """

    ADMIN = "admin"
    OPERATOR = "operator"
    MEMBER = "member"
    VIEWER = "viewer"

    @property
    def rank(self) -> int:
        """The rank of the role: a higher rank includes the permissions of the lower ones."""
        return (Role.VIEWER, Role.MEMBER, Role.OPERATOR, Role.ADMIN).index(self)


@dataclass(frozen=True, slots=True)
class Actor:
    """The user, API key or system component that caused a change."""

    type: ActorType
    id: str

    @classmethod
    def read(cls, text: str) -> Actor:
        """Parse ``user:42``, ``api_key:…`` or ``system:…``. Raises InvalidArgument otherwise."""
        return read_actor(text)


SYSTEM = Actor(ActorType.SYSTEM, "holdfast")

_ID = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")


def read_actor(value: object) -> Actor:
    """An Actor, or the text of one. Raises InvalidArgument."""
    kind: object
    if isinstance(value, Actor):
        kind, name = value.type, value.id
    elif isinstance(value, str) and ":" in value:
        kind, _, name = value.partition(":")
    else:
        raise InvalidArgument({"actor": _SAYS})
    if kind not in tuple(ActorType):
        raise InvalidArgument({"actor": _SAYS})
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise InvalidArgument(
            {"actor": "must have an id of 1 to 200 characters, none of them a control character"}
        )
    return Actor(ActorType(kind), name)


_SAYS = "must be an Actor or text such as 'user:42', 'system:nightly' or 'api_key:k1'"


def read_role(value: object) -> Role:
    """A Role, or its name. Raises InvalidArgument."""
    if isinstance(value, str) and value in tuple(Role):
        return Role(value)
    raise InvalidArgument({"role": f"must be one of {', '.join(Role)}"})
