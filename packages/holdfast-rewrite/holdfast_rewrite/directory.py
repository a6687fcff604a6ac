"""The directory: members of homes, their languages, preferences and blocks.

An application with its own data implements ``look``. SqlDirectory uses Holdfast's tables. The
orchestrator queries the directory once, when a message is submitted, and stores a snapshot. Later
changes affect only later messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.app import Holdfast
from holdfast.arguments import anything, checked, each, instance
from holdfast.engine import validation
from holdfast.store import Row, Statements, Tx
from holdfast.store.query import Statement
from holdfast_rewrite.context_pack import check_answers, load_tables
from holdfast_rewrite.enums import HomeRole
from holdfast_rewrite.failure import InvalidRewrite
from holdfast_rewrite.language import BadLocale, normalize
from holdfast_rewrite.model import BadRewrite

SQL = Statements("holdfast_rewrite", "directory.sql")


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a home: role, language, and whether they still live there."""

    user_id: str
    role: HomeRole
    locale: str | None
    is_present: bool = True


@dataclass(frozen=True, slots=True)
class Household:
    """The directory data for one message: both members, the recipient's answers, and blocks.

    A person who is not a member of the home is None.
    """

    sender: Member | None
    recipient: Member | None
    answers: Mapping[str, str]
    is_blocked: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """The sender and recipient of one submission, and the home."""

    home_id: str
    sender_user_id: str
    recipient_user_id: str


class Directory(Protocol):
    """The interface that the orchestrator uses.

    An optional ``look_many(pairs)`` is called once for many submissions.
    """

    def look(self, home_id: str, sender_user_id: str, recipient_user_id: str) -> Household:
        """Return the current data of the two people of a submission."""


@checked(
    InvalidRewrite,
    checks={
        "pairs": each(instance(Pair)),
        # All bad fields of a member or an answer are reported together.
        **dict.fromkeys(("locale", "preference_id", "role", "value_key"), anything),
        **dict.fromkeys(("add_member.home_id", "add_member.user_id"), anything),
    },
)
class SqlDirectory:
    """The directory in Holdfast's tables."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf

    # -- reading

    def look(self, home_id: str, sender_user_id: str, recipient_user_id: str) -> Household:
        """Return the current data of the two people of a submission."""
        return self.look_many([Pair(home_id, sender_user_id, recipient_user_id)])[0]

    def look_many(self, pairs: Sequence[Pair]) -> list[Household]:
        """Return the same for any number of submissions, in two statements on one snapshot."""
        if not pairs:
            return []
        asked = [
            {
                "place": place,
                "org_id": pair.home_id,
                "sender_user_id": pair.sender_user_id,
                "recipient_user_id": pair.recipient_user_id,
            }
            for place, pair in enumerate(pairs)
        ]

        def work(tx: Tx) -> tuple[list[Row], list[Row]]:
            return tx.many(SQL.look, asked=asked), tx.many(SQL.list_answers, asked=asked)

        found, answered = self.hf.store.read(work)
        answers: dict[int, dict[str, str]] = defaultdict(dict)
        for row in answered:
            answers[row["place"]][row["preference_id"]] = row["value_key"]
        return [
            Household(
                _member(row, "sender", pair.sender_user_id),
                _member(row, "recipient", pair.recipient_user_id),
                answers.get(row["place"], {}),
                bool(row["is_blocked"]),
            )
            for row, pair in zip(found, pairs, strict=True)
        ]

    # -- writing

    def add_home(self, home_id: str) -> None:
        """Add a home. An existing one does not change."""
        ids = _read_ids(home_id=home_id)
        self.hf.store.write(lambda tx: tx.affected(SQL.insert_home, org_id=ids["home_id"]))

    def add_member(
        self, home_id: str, user_id: str, *, role: HomeRole | str, locale: str | None = None
    ) -> None:
        """Add a member to a home, or update one, also after they left."""
        errors: dict[str, str] = {}
        if role not in tuple(HomeRole):
            errors["role"] = "must be owner or housemate"
        _check_locale(locale, errors)
        ids = _read_ids(errors, home_id=home_id, user_id=user_id)
        self._write(
            SQL.put_member, "home_id", "is not a known home; add it first", ids, role=str(role),
            locale=locale,
        )  # fmt: skip

    def change_locale(self, home_id: str, user_id: str, locale: str | None) -> None:
        """Set the language of a member; None means English."""
        errors: dict[str, str] = {}
        _check_locale(locale, errors)
        ids = _read_ids(errors, home_id=home_id, user_id=user_id)
        self._write(
            SQL.change_locale, "user_id", "is not a member of this home", ids, locale=locale
        )

    def leave(self, home_id: str, user_id: str) -> None:
        """Remove a member, who can no longer send or receive in this home."""
        ids = _read_ids(home_id=home_id, user_id=user_id)
        self._write(SQL.leave, "user_id", "is not a member of this home", ids)

    def answer(self, home_id: str, user_id: str, preference_id: str, value_key: str) -> None:
        """Store a member's preference; the last answer counts."""
        errors: dict[str, str] = {}
        _check_answer(preference_id, value_key, errors)
        ids = _read_ids(errors, home_id=home_id, user_id=user_id)
        self._write(
            SQL.put_answer, "user_id", "is not a member of this home", ids,
            preference_id=preference_id, value_key=value_key,
        )  # fmt: skip

    def block(self, home_id: str, user_id: str) -> None:
        """Block a person from sending and receiving rewrites in a home."""
        ids = _read_ids(home_id=home_id, user_id=user_id)

        def work(tx: Tx) -> bool:
            tx.affected(SQL.insert_block, org_id=ids["home_id"], user_id=ids["user_id"])
            return tx.maybe(SQL.has_home, org_id=ids["home_id"]) is not None

        if not self.hf.store.write(work):
            raise InvalidRewrite({"home_id": "is not a known home; add it first"})

    def unblock(self, home_id: str, user_id: str) -> None:
        """Unblock a person. Does nothing if they are not blocked."""
        ids = _read_ids(home_id=home_id, user_id=user_id)
        self.hf.store.write(
            lambda tx: tx.affected(SQL.delete_block, org_id=ids["home_id"], user_id=ids["user_id"])
        )

    def _write(
        self,
        statement: Statement,
        field: str,
        problem: str,
        ids: Mapping[str, str],
        **values: object,
    ) -> None:
        """Execute a statement that changes a row; raise if the row is missing."""
        params = {"org_id": ids["home_id"], "user_id": ids["user_id"], **values}
        if self.hf.store.write(lambda tx: tx.affected(statement, **params)) == 0:
            raise InvalidRewrite({field: problem})


def _member(row: Row, side: str, user_id: str) -> Member | None:
    role = row[f"{side}_role"]
    if role is None:
        return None
    return Member(user_id, HomeRole(role), row[f"{side}_locale"], row[f"{side}_left_at"] is None)


def _read_ids(errors: dict[str, str] | None = None, **ids: object) -> dict[str, str]:
    """Return the normalized ids; raises with every invalid field."""
    errors = {} if errors is None else errors
    read = {name: validation.uuid(name, value, errors) for name, value in ids.items()}
    if errors:
        raise InvalidRewrite(errors)
    return read


def _check_locale(locale: object, errors: dict[str, str]) -> None:
    if locale is None:
        return
    try:
        if not isinstance(locale, str):
            raise BadLocale
        normalize(locale)
    except BadLocale:
        errors["locale"] = "must be a BCP 47 tag that names a language, such as en or pt-BR"


def _check_answer(preference_id: object, value_key: object, errors: dict[str, str]) -> None:
    """Reject an answer that would fail every later message to this member."""
    for name, value in (("preference_id", preference_id), ("value_key", value_key)):
        if validation.text(name, value, errors) is None:
            errors.setdefault(name, "must be text")
    if errors:
        return
    try:
        check_answers({str(preference_id): str(value_key)})
    except BadRewrite as exc:
        is_known = str(preference_id) in load_tables().preferences
        errors["value_key" if is_known else "preference_id"] = f"is refused: {exc}"
