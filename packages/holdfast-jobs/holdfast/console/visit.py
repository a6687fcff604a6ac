"""One request to the console, and what a page returns for it.

A page is a function that takes a :class:`PageContext` and returns :class:`Shown` or :class:`Go`. It
knows nothing of HTTP, so a test may call it directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode

from holdfast.actor import Role
from holdfast.errors import Forbidden
from holdfast.operate.access import limited_reads
from holdfast.operate.bulk_action import BulkRequest
from holdfast.operate.operator import Operator
from holdfast.operate.refusal import InvalidAction

E = TypeVar("E")

LONGEST_PAGE = 50


@dataclass(frozen=True, slots=True)
class Shown:
    """A page to render: its template, title and values."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Go:
    """The page to continue with after an action, and the notice that it shows once."""

    path: str
    notice: str = ""


@dataclass(frozen=True, slots=True)
class PageContext:
    """One request: the operator API as its caller, and what the browser sent."""

    operator: Operator
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Panels of the extensions, for the overview.
    panels: Sequence[Callable[[PageContext], Panel | None]] = ()
    # Lets this process run bulk actions if no worker does.
    wake_runner: Callable[[], None] = lambda: None

    @property
    def role(self) -> Role:
        return self.operator.context.role

    @property
    def org_id(self) -> str | None:
        """The tenant that the caller is bound to; None for operations."""
        return self.operator.context.org_id

    @property
    def can_act(self) -> bool:
        """Whether the caller may do more than read."""
        return self.role in (Role.OPERATOR, Role.ADMIN)

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    def as_engine(self) -> AbstractContextManager[None]:
        """Read in the role of the engine, within the time limit of a read.

        For tables that the role of tenants has no right to, such as those with texts. The page
        checks the role of the caller and names its tenant in every statement.
        """
        return limited_reads(self.operator.context.app.settings.serve.read_seconds)

    def require_act(self) -> None:
        """Raise Forbidden for a caller who only reads."""
        if not self.can_act:
            raise Forbidden(f"The role {self.role} is read-only. Ask an operator to do this.")

    def start(self, request: BulkRequest, *, expected: int) -> Go:
        """Start a bulk action, and continue with its page. Raises CountChanged."""
        action = self.operator.bulk_actions.start(request, expected=expected)
        self.wake_runner()
        return Go(f"/bulk-actions/{action.id}")

    def text(self, name: str) -> str:
        """A field of the form; empty if it was not sent."""
        return next(iter(self.form.get(name, ())), "").strip()

    def maybe(self, name: str) -> str | None:
        """A value of the query; None if it is empty."""
        return self.query.get(name, "").strip() or None

    def whole(self, name: str) -> int:
        """A whole number of the form. Raises InvalidAction."""
        found = self.text(name)
        if not (found.isascii() and found.isdigit() and len(found) < 10):
            raise InvalidAction({name: "must be a whole number"})
        return int(found)

    def kept(self, *names: str) -> dict[str, str]:
        """The named values of the query that were sent, for links to the same filter."""
        found = {name: self.query.get(name, "").strip() for name in names}
        return {name: value for name, value in found.items() if value}


View = Callable[[PageContext], Shown | Go]


@dataclass(frozen=True, slots=True)
class Page:
    """One page, or with the method POST one action. *group* puts it into the navigation.

    The navigation of a caller of one tenant leaves out a page *for_all*.
    """

    path: str
    view: View
    method: str = "GET"
    title: str = ""
    group: str = ""
    for_all: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the overview that an extension adds."""

    title: str
    template: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConsolePages:
    """What an extension adds to the console. ``Extension.console`` names an object of this class.

    *package* is the package with the folder ``console_templates`` of the extension.
    """

    pages: Sequence[Page]
    package: str
    panel: Callable[[PageContext], Panel | None] | None = None
    # Functions that templates may call, by name.
    filters: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


def link(path: str, values: Mapping[str, Any] | None = None) -> str:
    """A path with its query; values that are None or empty are left out."""
    given = {name: value for name, value in (values or {}).items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path
