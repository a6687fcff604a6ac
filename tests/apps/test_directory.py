"""The directory: homes, members, languages and preferences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import RuleBroken
from holdfast_rewrite.directory import Household, Member, Pair, SqlDirectory
from holdfast_rewrite.enums import HomeRole
from holdfast_rewrite.failure import InvalidRewrite
from tests.apps.household import HOME, OTHER_HOME, RECIPIENT, SENDER, STRANGER, count
from tests.story import by_hand, look


@pytest.fixture
def directory(hf: Holdfast) -> SqlDirectory:
    made = SqlDirectory(hf)
    made.add_home(HOME)
    made.add_member(HOME, SENDER, role="owner", locale="en-GB")
    made.add_member(HOME, RECIPIENT, role=HomeRole.HOUSEMATE)
    return made


def test_both_of_a_message_are_found_as_they_are_at_this_moment(directory: SqlDirectory) -> None:
    directory.answer(HOME, RECIPIENT, "communication_directness", "gentle")
    directory.answer(HOME, RECIPIENT, "communication_directness", "direct")
    directory.answer(HOME, SENDER, "communication_directness", "balanced")

    assert directory.look(HOME, SENDER, RECIPIENT) == Household(
        Member(SENDER, HomeRole.OWNER, "en-GB"),
        Member(RECIPIENT, HomeRole.HOUSEMATE, None),
        {"communication_directness": "direct"},
        is_blocked=False,
    )


def test_a_person_outside_the_home_is_not_in_its_directory(directory: SqlDirectory) -> None:
    directory.add_home(OTHER_HOME)
    directory.add_member(OTHER_HOME, STRANGER, role="owner")
    directory.answer(OTHER_HOME, STRANGER, "communication_directness", "gentle")

    found = directory.look(HOME, SENDER, STRANGER)

    assert (found.sender is not None, found.recipient, found.answers) == (True, None, {})


def test_a_former_member_is_recorded_and_not_present_until_they_return(
    directory: SqlDirectory, hf: Holdfast, clock: Any
) -> None:
    directory.leave(HOME, RECIPIENT)
    left = directory.look(HOME, SENDER, RECIPIENT).recipient
    clock.advance(days=1)
    directory.add_member(HOME, RECIPIENT, role="owner", locale="fr")
    back = directory.look(HOME, SENDER, RECIPIENT).recipient

    assert left == Member(RECIPIENT, HomeRole.HOUSEMATE, None, is_present=False)
    assert back == Member(RECIPIENT, HomeRole.OWNER, "fr")
    (row,) = look(
        hf.store,
        "SELECT joined_at, updated_at FROM holdfast.home_member WHERE user_id = :id",
        id=RECIPIENT,
    )
    assert row["joined_at"] == row["updated_at"]


def test_a_block_holds_for_either_of_the_two_and_in_its_home_alone(
    directory: SqlDirectory,
) -> None:
    directory.add_home(OTHER_HOME)
    directory.block(OTHER_HOME, SENDER)
    assert not directory.look(HOME, SENDER, RECIPIENT).is_blocked

    directory.block(HOME, RECIPIENT)
    directory.block(HOME, RECIPIENT)
    assert directory.look(HOME, SENDER, RECIPIENT).is_blocked
    assert directory.look(HOME, RECIPIENT, SENDER).is_blocked

    directory.unblock(HOME, RECIPIENT)
    directory.unblock(HOME, RECIPIENT)
    assert not directory.look(HOME, SENDER, RECIPIENT).is_blocked


def test_many_are_asked_for_in_two_statements_and_answered_in_their_order(
    directory: SqlDirectory, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.answer(HOME, RECIPIENT, "communication_channel", "text")
    pairs = [Pair(HOME, SENDER, RECIPIENT), Pair(HOME, RECIPIENT, SENDER)] * 30
    asked = []
    plain = type(hf.store).read

    def counted(self: Any, work: Any) -> Any:
        def watched(tx: Any) -> Any:
            many = tx.many
            tx.many = lambda *args, **kw: (asked.append(args[0].name), many(*args, **kw))[1]
            return work(tx)

        return plain(self, watched)

    monkeypatch.setattr(type(hf.store), "read", counted)
    found = directory.look_many(pairs)

    assert asked == ["look", "list_answers"]
    assert [household.sender.user_id for household in found if household.sender] == (
        [SENDER, RECIPIENT] * 30
    )
    assert [household.answers for household in found] == [
        {"communication_channel": "text"},
        {},
    ] * 30


def test_a_tag_that_names_no_language_is_refused_at_the_edge(directory: SqlDirectory) -> None:
    for tag in ("und", "unknown", "", "e", "x-klingon", "en_GB", "mul", "tlhIngan"):
        with pytest.raises(InvalidRewrite) as joining:
            directory.add_member(HOME, STRANGER, role="owner", locale=tag)
        with pytest.raises(InvalidRewrite) as changing:
            directory.change_locale(HOME, RECIPIENT, tag)

        assert list(joining.value.fields) == list(changing.value.fields) == ["locale"]
        assert tag not in str(changing.value).split()
    assert directory.look(HOME, SENDER, STRANGER).recipient is None


def test_a_member_changes_their_language(directory: SqlDirectory) -> None:
    directory.change_locale(HOME, RECIPIENT, "pt-BR")
    changed = directory.look(HOME, SENDER, RECIPIENT).recipient
    directory.change_locale(HOME, RECIPIENT, None)
    cleared = directory.look(HOME, SENDER, RECIPIENT).recipient

    assert (changed and changed.locale, cleared and cleared.locale) == ("pt-BR", None)


def test_an_invalid_answer_is_refused_with_the_valid_ones(directory: SqlDirectory) -> None:
    with pytest.raises(InvalidRewrite, match="gentle, balanced, direct") as value:
        directory.answer(HOME, RECIPIENT, "communication_directness", "brutal")
    with pytest.raises(InvalidRewrite, match="communication_directness") as name:
        directory.answer(HOME, RECIPIENT, "favourite_colour", "red")

    assert "brutal" not in str(value.value)
    assert "favourite_colour" not in str(name.value)


WRONG: list[tuple[Callable[[SqlDirectory], None], set[str]]] = [
    (lambda d: d.add_home("nowhere"), {"home_id"}),
    (lambda d: d.add_member("x", "y", role="boss", locale="und"),
     {"home_id", "user_id", "role", "locale"}),
    (lambda d: d.add_member(OTHER_HOME, STRANGER, role="owner"), {"home_id"}),
    (lambda d: d.change_locale(HOME, STRANGER, "en"), {"user_id"}),
    (lambda d: d.leave(HOME, STRANGER), {"user_id"}),
    (lambda d: d.answer(HOME, RECIPIENT, "favourite_colour", "red"), {"preference_id"}),
    (lambda d: d.answer(HOME, RECIPIENT, "communication_directness", "brutal"), {"value_key"}),
    (lambda d: d.answer(HOME, RECIPIENT, 7, None), {"preference_id", "value_key"}),  # type: ignore[arg-type]
    (lambda d: d.answer(HOME, STRANGER, "communication_directness", "gentle"), {"user_id"}),
    (lambda d: d.block(OTHER_HOME, STRANGER), {"home_id"}),
    (lambda d: d.unblock(HOME, "me"), {"user_id"}),
]  # fmt: skip


def test_what_is_wrong_is_named_field_by_field_and_nothing_is_written(
    directory: SqlDirectory, hf: Holdfast
) -> None:
    tables = ("home", "home_member", "preference_answer", "rewrite_block")
    before = [count(hf.store, table) for table in tables]

    for call, fields in WRONG:
        with pytest.raises(InvalidRewrite) as refused:
            call(directory)
        assert set(refused.value.fields) == fields

    assert [count(hf.store, table) for table in tables] == before


def test_the_database_knows_two_roles_and_no_home_without_a_row(
    directory: SqlDirectory, hf: Holdfast
) -> None:
    with pytest.raises(RuleBroken) as role:
        by_hand(
            hf.store,
            "UPDATE holdfast.home_member SET role = 'boss' WHERE user_id = :id RETURNING role",
            id=RECIPIENT,
        )

    assert role.value.rule == "home_member_role_known"
