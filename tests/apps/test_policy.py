"""The policy: roles, strength, confidence and flags decide, and each only ever softens."""

from __future__ import annotations

from itertools import product

import pytest

from holdfast_rewrite.context_pack import build_pack
from holdfast_rewrite.enums import (
    Directness,
    HomeRole,
    Level,
    MessageIntent,
    SafetyFlag,
    Strength,
    Temperature,
    Tone,
    Topic,
)
from holdfast_rewrite.model import SAFE_DEFAULTS, ClassifierResult, Confidences, ContextPack
from holdfast_rewrite.policy import policy_of, strength_of


def result(
    strength: Strength = Strength.LIGHT_TOUCH,
    *,
    topic: Level = Level.HIGH,
    intent: Level = Level.HIGH,
    language: Level | None = Level.HIGH,
    flag: SafetyFlag = SafetyFlag.NONE,
) -> ClassifierResult:
    return ClassifierResult(
        "v1", "en", (Topic.NOISE,), MessageIntent.REQUEST, strength,
        Confidences(topic, intent, language), (flag,),
    )  # fmt: skip


def pack(
    sender: HomeRole = HomeRole.HOUSEMATE,
    recipient: HomeRole = HomeRole.HOUSEMATE,
    directness: str = "direct",
) -> ContextPack:
    return build_pack(
        recipient_user_id="0198c0de-0000-7000-8000-0000000000b2",
        target_language="en",
        sender_role=sender,
        recipient_role=recipient,
        topics=[Topic.NOISE],
        answers={"communication_directness": directness},
    )


def test_a_calm_message_between_equals_stays_as_it_is() -> None:
    assert policy_of(result(), pack()).document == {
        "tone": "neutral",
        "directness": "balanced",
        "emotional_temperature": "steady",
        "rewrite_strength": "light_touch",
    }


def test_a_sharp_message_is_calmed_and_cooled_down() -> None:
    policy = policy_of(result(Strength.FULL_REFRAME), pack())

    assert (policy.tone, policy.emotional_temperature) == (Tone.CALM, Temperature.COOL_DOWN)


def test_a_sender_with_more_power_gets_a_softer_tone() -> None:
    policy = policy_of(result(), pack(HomeRole.OWNER, HomeRole.HOUSEMATE))

    assert (policy.tone, policy.directness) == (Tone.GENTLE, Directness.SOFT)


def test_to_the_one_with_more_say_the_tone_is_gentle_and_may_be_clear() -> None:
    policy = policy_of(result(), pack(HomeRole.HOUSEMATE, HomeRole.OWNER))

    assert (policy.tone, policy.directness) == (Tone.GENTLE, Directness.BALANCED)


def test_directness_is_the_recipients_own() -> None:
    assert policy_of(result(), pack(directness="gentle")).directness is Directness.SOFT
    assert policy_of(result(), pack(directness="balanced")).directness is Directness.BALANCED


@pytest.mark.parametrize("unsure", [{"topic": Level.LOW}, {"intent": Level.LOW}])
def test_who_is_unsure_is_gentler_and_reframes_in_full_if_the_intent_is_unclear(
    unsure: dict[str, Level],
) -> None:
    policy = policy_of(result(**unsure), pack())

    assert (policy.tone, policy.directness) == (Tone.GENTLE, Directness.SOFT)
    # An unknown topic says nothing about the tone.
    is_full = policy.rewrite_strength is Strength.FULL_REFRAME
    assert is_full is ("intent" in unsure)


def test_an_unsure_language_says_nothing_of_the_tone() -> None:
    assert policy_of(result(language=None), pack()) == policy_of(result(), pack())


def test_strong_feelings_are_cooled_down_and_reframed_in_full() -> None:
    policy = policy_of(result(flag=SafetyFlag.EMOTIONAL_INTENSITY), pack())

    assert policy.emotional_temperature is Temperature.COOL_DOWN
    assert policy.rewrite_strength is Strength.FULL_REFRAME
    assert strength_of(result(flag=SafetyFlag.AMBIGUOUS_INTENT)) is Strength.LIGHT_TOUCH


def test_the_safe_defaults_give_the_gentlest_policy() -> None:
    assert policy_of(SAFE_DEFAULTS, pack()).document == {
        "tone": "gentle",
        "directness": "soft",
        "emotional_temperature": "cool_down",
        "rewrite_strength": "full_reframe",
    }


def test_no_policy_undoes_a_full_reframe_or_hardens_the_recipients_wish() -> None:
    levels, roles = tuple(Level), tuple(HomeRole)
    for strength, topic, intent, flag, sender, recipient in product(
        Strength, levels, levels, SafetyFlag, roles, roles
    ):
        said = result(strength, topic=topic, intent=intent, flag=flag)
        policy = policy_of(said, pack(sender, recipient, "gentle"))

        assert policy.directness is Directness.SOFT
        assert policy.rewrite_strength is strength_of(said)
        if strength is Strength.FULL_REFRAME:
            assert policy.rewrite_strength is Strength.FULL_REFRAME
            assert policy.emotional_temperature is Temperature.COOL_DOWN
