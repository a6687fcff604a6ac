"""Directory: who lives in a home, which language they read, what they prefer, who is blocked.

An application that knows its homes already writes a class with ``look``. SqlDirectory keeps them in
Holdfast's own tables. The orchestrator asks once, when a message is submitted, and keeps a snapshot
of the answer: what changes afterwards concerns the next message.
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
    """Somebody of a home: their role, the language they read, and whether they live there."""

    user_id: str
    role: HomeRole
    locale: str | None
    is_present: bool = True


@dataclass(frozen=True, slots=True)
class Household:
    """What concerns one message: its two members, the recipient's answers, whether one is blocked.

    A member whom the home does not know is None.
    """

    sender: Member | None
    recipient: Member | None
    answers: Mapping[str, str]
    is_blocked: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """The two of one submission, in its home."""

    home_id: str
    sender_user_id: str
    recipient_user_id: str


class Directory(Protocol):
    """What the orchestrator asks. One that also has ``look_many(pairs)`` is asked once for many."""

    def look(self, home_id: str, sender_user_id: str, recipient_user_id: str) -> Household:
        """The two of a submission as they are at this moment."""


@checked(
    InvalidRewrite,
    checks={
        "pairs": each(instance(Pair)),
        # Every bad field of a member or an answer is named at once.
        **dict.fromkeys(("locale", "preference_id", "role", "value_key"), anything),
        **dict.fromkeys(("add_member.home_id", "add_member.user_id"), anything),
    },
)
class SqlDirectory:
    """The directory in Holdfast's own tables."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf

    # -- asking

    def look(self, home_id: str, sender_user_id: str, recipient_user_id: str) -> Household:
        """The two of a submission as they are at this moment."""
        return self.look_many([Pair(home_id, sender_user_id, recipient_user_id)])[0]

    def look_many(self, pairs: Sequence[Pair]) -> list[Household]:
        """The same for any number of submissions, in two statements on one snapshot."""
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

    # -- keeping

    def add_home(self, home_id: str) -> None:
        """Make a home known; one that is known stays as it is."""
        ids = _read_ids(home_id=home_id)
        self.hf.store.write(lambda tx: tx.affected(SQL.insert_home, org_id=ids["home_id"]))

    def add_member(
        self, home_id: str, user_id: str, *, role: HomeRole | str, locale: str | None = None
    ) -> None:
        """Let somebody live in a home, again if they had left, in this role and language."""
        errors: dict[str, str] = {}
        if role not in tuple(HomeRole):
            errors["role"] = "must be owner or housemate"
        _check_locale(locale, errors)
        ids = _read_ids(errors, home_id=home_id, user_id=user_id)
        self._write(
            SQL.put_member, "home_id", "is no home here; add it first", ids, role=str(role),
            locale=locale,
        )  # fmt: skip

    def change_locale(self, home_id: str, user_id: str, locale: str | None) -> None:
        """Note which language a member reads; None is English."""
        errors: dict[str, str] = {}
        _check_locale(locale, errors)
        ids = _read_ids(errors, home_id=home_id, user_id=user_id)
        self._write(SQL.change_locale, "user_id", "is no member of this home", ids, locale=locale)

    def leave(self, home_id: str, user_id: str) -> None:
        """Let a member leave; they neither send nor receive here from now on."""
        ids = _read_ids(home_id=home_id, user_id=user_id)
        self._write(SQL.leave, "user_id", "is no member of this home", ids)

    def answer(self, home_id: str, user_id: str, preference_id: str, value_key: str) -> None:
        """Keep what a member prefers; the last answer to a question counts."""
        errors: dict[str, str] = {}
        _check_answer(preference_id, value_key, errors)
        ids = _read_ids(errors, home_id=home_id, user_id=user_id)
        self._write(
            SQL.put_answer, "user_id", "is no member of this home", ids,
            preference_id=preference_id, value_key=value_key,
        )  # fmt: skip

    def block(self, home_id: str, user_id: str) -> None:
        """Keep somebody from sending and receiving rewrites in a home."""
        ids = _read_ids(home_id=home_id, user_id=user_id)

        def work(tx: Tx) -> bool:
            tx.affected(SQL.insert_block, org_id=ids["home_id"], user_id=ids["user_id"])
            return tx.maybe(SQL.has_home, org_id=ids["home_id"]) is not None

        if not self.hf.store.write(work):
            raise InvalidRewrite({"home_id": "is no home here; add it first"})

    def unblock(self, home_id: str, user_id: str) -> None:
        """Let somebody send and receive again; nothing happens where nobody was blocked."""
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
        """Run a statement that touches a row, or say whose row is not there."""
        params = {"org_id": ids["home_id"], "user_id": ids["user_id"], **values}
        if self.hf.store.write(lambda tx: tx.affected(statement, **params)) == 0:
            raise InvalidRewrite({field: problem})


def _member(row: Row, side: str, user_id: str) -> Member | None:
    role = row[f"{side}_role"]
    if role is None:
        return None
    return Member(user_id, HomeRole(role), row[f"{side}_locale"], row[f"{side}_left_at"] is None)


def _read_ids(errors: dict[str, str] | None = None, **ids: object) -> dict[str, str]:
    """The ids in their one form; raises with every field that is wrong."""
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
    """Refuse here what would fail every message to this member later."""
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
