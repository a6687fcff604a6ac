"""The context pack: what the topics let in, what each answer asks for, and nothing beside."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from holdfast.document import canonical
from holdfast_rewrite.context_pack import (
    build_pack,
    check_answers,
    load_tables,
    power_mode,
    read_tables,
)
from holdfast_rewrite.enums import Directness, HomeRole, PowerMode, RepairTiming, Topic
from holdfast_rewrite.model import BadRewrite, ContextPack

RECIPIENT = "0198c0de-0000-7000-8000-0000000000b2"
ALWAYS = {"communication_directness", "communication_channel", "conflict_resolution_style"}

# The table of the contract, written down a second time: the shipped data must say the same.
BY_TOPIC = {
    "noise": {
        "environment_noise_tolerance",
        "schedule_quiet_hours_preference",
        "conflict_resolution_style",
        "communication_directness",
    },
    "privacy": {
        "privacy_room_entry",
        "privacy_notifications",
        "communication_channel",
        "conflict_resolution_style",
    },
    "cleanliness": {
        "cleanliness_shared_space_tolerance",
        "routine_planning_style",
        "communication_directness",
    },
    "guests": {
        "social_hosting_frequency",
        "social_togetherness",
        "communication_directness",
        "conflict_resolution_style",
    },
    "schedule": {
        "schedule_quiet_hours_preference",
        "routine_planning_style",
        "communication_directness",
        "conflict_resolution_style",
    },
    "communication": ALWAYS,
    "other": set(),
}
VALUES = {
    "communication_directness": {"gentle", "balanced", "direct"},
    "conflict_resolution_style": {"cool_off", "talk_soon", "mediate"},
    "environment_noise_tolerance": {"low", "medium", "high"},
    "schedule_quiet_hours_preference": {"early_evening", "late_evening_or_night", "none"},
    "routine_planning_style": {"planner", "mixed", "spontaneous"},
    "privacy_room_entry": {"always_ask"},
    "privacy_notifications": {"none"},
    "communication_channel": {"text", "call", "in_person"},
    "cleanliness_shared_space_tolerance": {"low", "high"},
    "social_togetherness": {"mostly_solo", "balanced", "mostly_together"},
    "social_hosting_frequency": {"rare", "sometimes", "often"},
}
SILENT = {
    ("schedule_quiet_hours_preference", "none"),
    ("routine_planning_style", "mixed"),
    ("social_togetherness", "balanced"),
}


def pack(
    *topics: str,
    sender: HomeRole = HomeRole.HOUSEMATE,
    recipient: HomeRole = HomeRole.HOUSEMATE,
    **answers: str,
) -> ContextPack:
    return build_pack(
        recipient_user_id=RECIPIENT,
        target_language="es",
        sender_role=sender,
        recipient_role=recipient,
        topics=[Topic(topic) for topic in topics],
        answers=answers,
    )


def one_of_each() -> dict[str, str]:
    """An answer to every preference, each one that says something."""
    return {
        name: min(value for value in values if (name, value) not in SILENT)
        for name, values in VALUES.items()
    }


def test_the_tables_hold_the_contract_and_no_more() -> None:
    tables = load_tables()

    assert {topic.value: set(ids) for topic, ids in tables.topics.items()} == BY_TOPIC
    assert set(tables.always) == ALWAYS
    assert {name: set(values) for name, values in tables.preferences.items()} == VALUES
    assert {
        (name, value)
        for name, values in tables.preferences.items()
        for value, effect in values.items()
        if not effect.instruction
    } == SILENT


def test_without_answers_a_pack_has_the_baseline() -> None:
    made = pack("noise")

    assert made.instructions.document == {
        "tone": "warm_clear",
        "directness": "soft",
        "repair_timing": "cool_off",
        "framing": [
            "use_impact_language",
            "use_optional_requests",
            "use_specific_but_non_accusatory",
        ],
        "avoid": [
            "authority_language",
            "rules_language",
            "enforcement_language",
            "preference_disclosure",
            "norms_reference",
            "medical_or_diagnosis_language",
        ],
        "do_not_add": ["new_complaints", "new_facts", "exact_times_if_not_provided"],
    }
    assert (made.recipient_signals, made.safety_notes) == ((), ())
    assert (made.recipient_user_id, made.target_language, made.context_version) == (
        RECIPIENT, "es", "v1",
    )  # fmt: skip


@pytest.mark.parametrize("topic", BY_TOPIC)
def test_a_topic_lets_in_its_own_preferences_and_the_three_of_talking(topic: str) -> None:
    made = pack(topic, **one_of_each())

    assert set(made.topic_scope.included_preference_ids) == BY_TOPIC[topic]
    forwarded = BY_TOPIC[topic] | ALWAYS
    assert {signal.preference_id for signal in made.recipient_signals} == forwarded
    assert set(made.topic_scope.excluded_preference_ids) == set(VALUES) - forwarded


def test_other_alone_reads_no_preference_but_how_to_talk() -> None:
    made = pack("other", environment_noise_tolerance="low", communication_directness="direct")

    assert made.topic_scope.included_preference_ids == ()
    assert [signal.preference_id for signal in made.recipient_signals] == [
        "communication_directness"
    ]
    assert made.instructions.directness is Directness.BALANCED
    assert "environment_noise_tolerance" not in canonical(
        [signal.document for signal in made.recipient_signals]
    )


def test_topics_are_joined_and_nothing_is_named_twice() -> None:
    made = pack("schedule", "noise", **one_of_each())

    ids = made.topic_scope.included_preference_ids
    assert set(ids) == BY_TOPIC["noise"] | BY_TOPIC["schedule"]
    assert len(ids) == len(set(ids))
    assert made.topic_scope.topics == (Topic.NOISE, Topic.SCHEDULE)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"communication_directness": "gentle"},
         ("soft", "cool_off", ["use_soft_openers", "avoid_blunt_phrases"])),
        ({"communication_directness": "balanced"},
         ("balanced", "cool_off", ["be_clear_not_harsh"])),
        ({"communication_directness": "direct"},
         ("balanced", "cool_off", ["be_straightforward_without_commands"])),
        ({"conflict_resolution_style": "cool_off"}, ("soft", "cool_off", [])),
        ({"conflict_resolution_style": "talk_soon"}, ("soft", "talk_soon", [])),
        ({"conflict_resolution_style": "mediate"}, ("soft", "check_in", [])),
    ],
)  # fmt: skip
def test_an_answer_changes_what_its_row_says(answer: dict[str, str], expected: Any) -> None:
    made = pack("communication", **answer)

    added = made.instructions.framing[3:]
    said = made.instructions.directness, made.instructions.repair_timing, list(added)
    assert said == expected


def test_mediate_is_a_later_check_in_and_names_no_third_person() -> None:
    made = pack("communication", conflict_resolution_style="mediate")

    assert made.instructions.repair_timing is RepairTiming.CHECK_IN
    assert made.safety_notes == ("imply_no_third_party",)


@pytest.mark.parametrize(("name", "value"), sorted(SILENT))
def test_an_answer_that_asks_for_nothing_adds_nothing(name: str, value: str) -> None:
    every = [topic.value for topic in Topic]

    assert pack(*every, **{name: value}) == pack(*every)


@pytest.mark.parametrize(
    ("sender", "recipient", "mode", "multiplier", "avoids_commands"),
    [
        ("owner", "housemate", "higher_sender", "extra_gentle", True),
        ("housemate", "owner", "higher_recipient", "gentle", False),
        ("owner", "owner", "peer", "neutral", False),
        ("housemate", "housemate", "peer", "neutral", False),
    ],
)
def test_power_changes_the_tone_and_not_the_permissions(
    sender: str, recipient: str, mode: str, multiplier: str, avoids_commands: bool
) -> None:
    made = pack("guests", sender=HomeRole(sender), recipient=HomeRole(recipient))

    assert made.power.document == {
        "sender_role": sender,
        "recipient_role": recipient,
        "power_mode": mode,
        "tone_multiplier": multiplier,
    }
    assert ("commands" in made.instructions.avoid) is avoids_commands
    assert "authority_language" in made.instructions.avoid
    assert ("use_inviting_language" in made.instructions.framing) is (mode != "peer")
    notes = {
        "higher_sender": ("claim_no_authority",),
        "higher_recipient": ("do_not_demand_change",),
    }
    assert made.safety_notes == notes.get(mode, ())


def test_the_same_facts_give_the_same_bytes_in_whatever_order_they_come() -> None:
    answers = one_of_each()
    backwards = dict(reversed(answers.items()))

    one = pack("noise", "guests", **answers)
    other = pack("guests", "noise", **backwards)

    assert canonical(one.document) == canonical(other.document)
    assert ContextPack.read(one.document) == one


@pytest.mark.parametrize(
    "answers",
    [
        {"favourite_colour": "green"},
        {"communication_directness": "brutal"},
        {"communication_directness": ""},
        {"communication_directness": None},
        # Out of the topic's scope, and wrong all the same.
        {"privacy_room_entry": "whenever"},
    ],
)
def test_an_unknown_preference_or_value_is_refused_and_not_repeated(answers: Any) -> None:
    with pytest.raises(BadRewrite) as refused:
        pack("noise", **answers)

    for value in (*answers.values(), "favourite_colour"):
        assert not value or str(value) not in str(refused.value)
    with pytest.raises(BadRewrite):
        check_answers(answers)


@pytest.mark.parametrize(
    "wrong",
    [
        {"recipient_user_id": ""},
        {"target_language": ""},
        {"topics": []},
        {"topics": ["gossip"]},
        {"topics": [Topic.NOISE, Topic.NOISE]},
        {"topics": "noise"},
        {"sender_role": "landlord"},
        {"recipient_role": ""},
    ],
)
def test_a_pack_without_its_facts_is_refused(wrong: dict[str, Any]) -> None:
    facts: dict[str, Any] = {
        "recipient_user_id": RECIPIENT,
        "target_language": "es",
        "sender_role": HomeRole.OWNER,
        "recipient_role": HomeRole.OWNER,
        "topics": [Topic.NOISE],
        "answers": {},
    }

    with pytest.raises(BadRewrite):
        build_pack(**{**facts, **wrong})


def test_every_pair_of_roles_has_a_power_mode() -> None:
    pairs = {(one, other): power_mode(one, other) for one in HomeRole for other in HomeRole}

    assert set(pairs.values()) == set(PowerMode)


def test_tables_with_a_hole_cannot_be_used() -> None:
    text = files("holdfast_rewrite").joinpath("context_pack.toml").read_text("utf-8")

    for hole in (("topics", "noise"), ("power", "peer"), ("preferences", "privacy_room_entry")):
        document = tomllib.loads(text)
        del document[hole[0]][hole[1]]
        with pytest.raises(BadRewrite):
            read_tables(document)
    document = tomllib.loads(text)
    document["version"] = "v2"
    with pytest.raises(BadRewrite):
        read_tables(document)
