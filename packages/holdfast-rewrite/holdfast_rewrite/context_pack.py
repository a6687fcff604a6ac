"""The recipient's context pack: phrasing instructions derived from preferences. Pure.

It never contains a profile. The tables are in context_pack.toml. Only preferences that are relevant
for the topics are passed on. Unknown preferences and values are rejected.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast_rewrite.enums import (
    CONTEXT_VERSION,
    Directness,
    HomeRole,
    PowerMode,
    RepairTiming,
    ToneMultiplier,
    Topic,
)
from holdfast_rewrite.model import (
    BadRewrite,
    ContextPack,
    Instructions,
    Power,
    RecipientSignal,
    TopicScope,
)


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a preference or the power relation on a pack; absent fields change nothing."""

    instruction: str = ""
    directness: Directness | None = None
    repair_timing: RepairTiming | None = None
    framing: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    safety_notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tables:
    """The validated tables of context_pack.toml."""

    baseline: Instructions
    always: tuple[str, ...]
    topics: Mapping[Topic, tuple[str, ...]]
    multipliers: Mapping[PowerMode, ToneMultiplier]
    power: Mapping[PowerMode, Effect]
    # The order of the file is the order of every list.
    preferences: Mapping[str, Mapping[str, Effect]]

    def __post_init__(self) -> None:
        named = {*self.always, *(name for names in self.topics.values() for name in names)}
        if set(self.topics) != set(Topic) or set(self.power) != set(PowerMode):
            raise BadRewrite("the tables must name every topic and every power mode")
        if named != set(self.preferences):
            raise BadRewrite("the tables must say what every preference does, and no other")


def build_pack(
    *,
    recipient_user_id: str,
    target_language: str,
    sender_role: HomeRole,
    recipient_role: HomeRole,
    topics: Sequence[Topic],
    answers: Mapping[str, str],
) -> ContextPack:
    """Build the recipient's pack for these topics. Raises BadRewrite.

    The same inputs give the same pack, in any order of topics and answers.
    """
    if not recipient_user_id or not target_language:
        raise BadRewrite("a context pack needs recipient_user_id and target_language")
    tables = load_tables()
    about = _topics(topics)
    check_answers(answers)
    included = _scope(tables, about)
    forwarded = {*included, *tables.always}
    given = [
        (name, answers[name], tables.preferences[name][answers[name]])
        for name in tables.preferences
        if name in forwarded and name in answers
    ]
    mode = power_mode(sender_role, recipient_role)
    effects = [tables.power[mode], *(effect for _, _, effect in given)]
    return ContextPack(
        context_version=CONTEXT_VERSION,
        recipient_user_id=recipient_user_id,
        target_language=target_language,
        power=Power(
            HomeRole(sender_role), HomeRole(recipient_role), mode, tables.multipliers[mode]
        ),
        topic_scope=TopicScope(
            about, included, tuple(name for name in tables.preferences if name not in forwarded)
        ),
        instructions=_instructions(tables.baseline, effects),
        recipient_signals=tuple(
            RecipientSignal(name, value, effect.instruction)
            for name, value, effect in given
            if effect.instruction
        ),
        safety_notes=_each_once(effect.safety_notes for effect in effects),
    )


def check_answers(answers: Mapping[str, str]) -> None:
    """Raise BadRewrite for an unknown preference or value."""
    known = load_tables().preferences
    if strange := sum(name not in known for name in answers):
        raise BadRewrite(
            f"answers contain {strange} unknown preferences; known: {', '.join(known)}"
        )
    for name, value in answers.items():
        if not isinstance(value, str) or value not in known[name]:
            values = ", ".join(known[name])
            raise BadRewrite(f"the answer to {name} is not one of its values: {values}")


def power_mode(sender_role: HomeRole, recipient_role: HomeRole) -> PowerMode:
    """Return which of the two has more power in the home. Raises BadRewrite for an unknown role."""
    try:
        pair = HomeRole(sender_role), HomeRole(recipient_role)
    except ValueError:
        raise BadRewrite("a role must be owner or housemate") from None
    if pair == (HomeRole.OWNER, HomeRole.HOUSEMATE):
        return PowerMode.HIGHER_SENDER
    if pair == (HomeRole.HOUSEMATE, HomeRole.OWNER):
        return PowerMode.HIGHER_RECIPIENT
    return PowerMode.PEER


@cache
def load_tables() -> Tables:
    """Load the tables of the package."""
    text = files("holdfast_rewrite").joinpath("context_pack.toml").read_text("utf-8")
    return read_tables(tomllib.loads(text))


def read_tables(document: Mapping[str, Any]) -> Tables:
    """Parse tables. Raises BadRewrite for an unknown word."""
    if document["version"] != CONTEXT_VERSION:
        raise BadRewrite("the tables are of another version")
    power: Mapping[str, Mapping[str, Any]] = document["power"]
    return Tables(
        baseline=Instructions.read(document["baseline"]),
        always=tuple(document["always"]),
        topics={Topic(name): tuple(ids) for name, ids in document["topics"].items()},
        multipliers={
            PowerMode(name): ToneMultiplier(said["tone_multiplier"]) for name, said in power.items()
        },
        power={
            PowerMode(name): _effect({k: v for k, v in said.items() if k != "tone_multiplier"})
            for name, said in power.items()
        },
        preferences={
            name: {value: _effect(said) for value, said in values.items()}
            for name, values in document["preferences"].items()
        },
    )


def _effect(said: Mapping[str, Any]) -> Effect:
    found: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in said.items()
    }
    if "directness" in found:
        found["directness"] = Directness(found["directness"])
    if "repair_timing" in found:
        found["repair_timing"] = RepairTiming(found["repair_timing"])
    return Effect(**found)


def _topics(given: Sequence[Topic]) -> tuple[Topic, ...]:
    """Return the topics in their defined order."""
    if not given or isinstance(given, str):
        raise BadRewrite("topics must be one or more")
    if any(topic not in tuple(Topic) for topic in given) or len(set(given)) != len(given):
        raise BadRewrite("topics must be known, each once")
    return tuple(topic for topic in Topic if topic in given)


def _scope(tables: Tables, topics: Iterable[Topic]) -> tuple[str, ...]:
    let_in = {name for topic in topics for name in tables.topics[topic]}
    return tuple(name for name in tables.preferences if name in let_in)


def _instructions(baseline: Instructions, effects: Iterable[Effect]) -> Instructions:
    directness, repair_timing = baseline.directness, baseline.repair_timing
    framing, avoid = [baseline.framing], [baseline.avoid]
    for effect in effects:
        directness = effect.directness or directness
        repair_timing = effect.repair_timing or repair_timing
        framing.append(effect.framing)
        avoid.append(effect.avoid)
    return Instructions(
        tone=baseline.tone,
        directness=directness,
        repair_timing=repair_timing,
        framing=_each_once(framing),
        avoid=_each_once(avoid),
        do_not_add=baseline.do_not_add,
    )


def _each_once(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(code for codes in lists for code in codes))
