"""Verdicts of the evaluation."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_rewrite.detect import Detected, local_detector
from holdfast_rewrite.enums import (
    Code,
    Directness,
    HomeRole,
    Lane,
    Level,
    Mark,
    MessageIntent,
    PowerMode,
    RepairTiming,
    SafetyFlag,
    Strength,
    Surface,
    Temperature,
    Tone,
    ToneMultiplier,
    Topic,
)
from holdfast_rewrite.evaluate import (
    DATASET_VERSION,
    JUDGE_VERSION,
    Evaluation,
    evaluate,
)
from holdfast_rewrite.lexicon import Lexicon
from holdfast_rewrite.model import (
    ClassifierResult,
    Confidences,
    ContextPack,
    Instructions,
    Policy,
    Power,
    RewriteRequest,
    TopicScope,
)

ORIGINAL = "Turn your damn music down, I have to get up at six and I can't sleep!"
KIND = "I have to get up at six and can't sleep. Could you turn the music down, please?"
CASES = Path(__file__).resolve().parents[2] / "eval" / "cases"


def request(
    original: str = ORIGINAL,
    *,
    intent: MessageIntent = MessageIntent.REQUEST,
    source: str = "en",
    target: str = "en",
    topic: Topic = Topic.NOISE,
    power: PowerMode = PowerMode.PEER,
) -> RewriteRequest:
    """A request as the orchestrator would have stored it."""
    sure = Confidences(Level.HIGH, Level.HIGH, Level.HIGH)
    strength = Strength.FULL_REFRAME
    flags = (SafetyFlag.NONE,)
    heard = ClassifierResult("v1", source, (topic,), intent, strength, sure, flags)
    pack = ContextPack(
        context_version="v1",
        recipient_user_id="recipient",
        target_language=target,
        power=Power(HomeRole.HOUSEMATE, HomeRole.HOUSEMATE, power, ToneMultiplier.NEUTRAL),
        topic_scope=TopicScope((topic,), (), ()),
        instructions=Instructions(
            "warm_clear", Directness.SOFT, RepairTiming.COOL_OFF, (), ("commands",), ("new_facts",)
        ),
        recipient_signals=(),
        safety_notes=(),
    )
    return RewriteRequest(
        rewrite_request_id="request",
        home_id="home",
        sender_user_id="sender",
        recipient_user_id="recipient",
        recipient_snapshot_id="snapshot",
        recipient_preference_snapshot_id="preferences",
        surface=Surface.WEEKLY_HARMONY,
        original_text=original,
        topics=(topic,),
        intent=intent,
        rewrite_strength=strength,
        source_locale=source,
        target_locale=target,
        lane=Lane.between(source, target),
        classifier_result=heard,
        context_pack=pack,
        policy=Policy(Tone.CALM, Directness.SOFT, Temperature.COOL_DOWN, strength),
        classifier_version="v1",
        context_pack_version="v1",
        policy_version="v1",
        created_at="2026-03-02T08:00:00Z",
    )


def judge(
    text: str, asked: RewriteRequest | None = None, *, declared: str | None = None
) -> Evaluation:
    asked = asked or request()
    return evaluate(
        asked,
        rewritten_text=text,
        output_language=asked.target_locale if declared is None else declared,
        detector=local_detector(),
    )


@pytest.mark.req("V-01", "V-02")
def test_a_kind_rewrite_passes_every_part() -> None:
    found = judge(KIND)

    assert found.verdict is Mark.PASS
    assert found.lexicon_version == Lexicon.for_locale("en").version  # type: ignore[union-attr]
    assert found.result.document == {
        "schema_valid": True,
        "lexicon_pass": True,
        "tone_safety": "pass",
        "intent_preserved": "pass",
        "violations": [],
        "judge_version": JUDGE_VERSION,
        "dataset_version": DATASET_VERSION,
        "flags": [],
    }


# -- schema and language


@pytest.mark.parametrize(
    "sign", ["\u202e", "\u2066", "\u200b", "\x1b[31m", "\ufeff", "\U000e0041"], ids=ascii
)
def test_what_hides_or_turns_round_in_a_rewrite_is_found(sign: str) -> None:
    found = judge(KIND[:20] + sign + KIND[20:])

    assert found.verdict is Mark.FAIL
    assert found.result.flags == ("hidden_signs",)


def test_joiners_that_scripts_and_emoji_need_hide_nothing() -> None:
    assert judge(f"{KIND} 👩\u200d👧").verdict is Mark.PASS


@pytest.mark.req("V-01")
@pytest.mark.parametrize("text", ["", "  \n", "👍🙏", "!!!", "123", "a\0b", "kind \ud800 words"])
def test_what_is_no_text_is_no_rewrite(text: str) -> None:
    found = judge(text)

    assert found.verdict is Mark.FAIL
    assert not found.result.schema_valid
    assert found.result.flags == ("no_text",)


@pytest.mark.req("V-01")
def test_six_hundred_characters_are_the_most() -> None:
    long = f"{KIND} {'Thank you so much for thinking of it. ' * 20}"

    assert judge(long[:600]).result.schema_valid
    assert judge(long[:601]).result.flags == ("too_long",)
    # It was held against no lexicon, so it has not passed it.
    assert judge(long[:601]).result.lexicon_pass is None
    assert judge(long[:601]).result.tone_safety is Mark.WARN
    assert judge(long[:601]).verdict is Mark.FAIL
    # Characters are counted as people see them, not as they are put together.
    assert judge((KIND + "ä" * 600)[:600].replace("ä", "a\u0308")).result.schema_valid


@pytest.mark.req("V-03", "L-02")
@pytest.mark.parametrize("declared", ["es", "de-DE", "pt"])
def test_a_declared_language_that_is_not_the_recipients_fails(declared: str) -> None:
    found = judge(KIND, declared=declared)

    assert found.verdict is Mark.FAIL
    assert found.result.violations == (Code.NON_TARGET_LOCALE,)
    assert found.result.schema_valid


@pytest.mark.req("V-01", "V-03")
@pytest.mark.parametrize("declared", ["", "und", "unknown", "English", "en_US"])
def test_a_declared_language_that_is_none_is_no_answer(declared: str) -> None:
    found = judge(KIND, declared=declared)

    assert found.verdict is Mark.FAIL
    assert not found.result.schema_valid
    assert found.result.flags == ("output_language_invalid",)


@pytest.mark.req("L-05", "V-03")
def test_a_declared_region_is_the_same_language() -> None:
    assert judge(KIND, declared="en-GB").verdict is Mark.PASS


@pytest.mark.req("V-03", "L-02", "L-11")
def test_what_was_not_translated_fails_whatever_it_declares() -> None:
    found = judge(KIND, request(target="es"))

    assert found.verdict is Mark.FAIL
    assert found.result.violations == (Code.NON_TARGET_LOCALE,)


@pytest.mark.req("V-03", "L-12")
def test_a_translation_with_its_original_beside_it_fails() -> None:
    both = (
        "¿Podrías bajar la música, por favor? Tengo que levantarme a las seis y no puedo dormir. "
        "Could you please turn the music down when you get the chance?"
    )

    assert Code.NON_TARGET_LOCALE in judge(both, request(target="es")).result.violations


@pytest.mark.req("V-03", "L-12")
@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("Könntest du die Musik bitte leiser machen? Could you turn the music down?", "de"),
        ("Could you turn the music down? ¿Puedes bajar la música, por favor? Me duermo.", "en"),
    ],
)
def test_short_sentences_in_a_second_language_fail(text: str, target: str) -> None:
    found = judge(text, request(target=target))

    assert found.verdict is Mark.FAIL
    assert found.result.violations == (Code.NON_TARGET_LOCALE,)


@pytest.mark.req("V-03", "L-11")
def test_what_was_not_translated_into_an_unknown_language_fails() -> None:
    found = judge(KIND, request(target="mi"))

    assert found.verdict is Mark.FAIL
    assert found.result.violations == (Code.NON_TARGET_LOCALE,)


@pytest.mark.req("V-03")
def test_a_text_too_short_to_detect_passes_on_its_declaration_with_a_flag() -> None:
    found = judge("Pssst, hm?")

    assert found.verdict is not Mark.FAIL
    assert "language_unverified" in found.result.flags


@pytest.mark.req("V-03")
@pytest.mark.parametrize("confidence", list(Level))
def test_only_a_detector_that_is_fairly_sure_contradicts(confidence: Level) -> None:
    class Says:
        def detect(self, text: str) -> Detected:
            return Detected("fr", confidence)

    found = evaluate(request(), rewritten_text=KIND, output_language="en", detector=Says())

    assert (Code.NON_TARGET_LOCALE in found.result.violations) == (confidence is not Level.LOW)


def test_a_language_that_no_detector_knows_is_left_unverified() -> None:
    swiss = request("Mach d Musig liisliger!", source="gsw", target="gsw")
    found = judge("Chönntisch du bitte d Musig echli liisliger mache? Merci vielmal.", swiss)

    assert found.verdict is Mark.WARN
    assert {"language_unverified", "lexicon_missing"} <= set(found.result.flags)


# -- lexicon


@pytest.mark.req("V-02")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Could you turn the fucking music down? I can't sleep and get up at six.", Code.VULGARITY),
        ("Could you turn the music down, you retard? I get up at six.", Code.SLUR),
        (
            "Your profile says that you like gentle messages. Could you turn the music down?",
            Code.PREFERENCE_DISCLOSURE,
        ),
    ],
)
def test_a_hard_code_of_the_lexicon_fails(text: str, code: Code) -> None:
    found = judge(text)

    assert found.verdict is Mark.FAIL
    assert code in found.result.violations
    assert found.result.lexicon_pass is False
    assert found.result.tone_safety is Mark.FAIL


@pytest.mark.req("V-02")
def test_the_lexicon_of_the_recipients_language_is_the_one_that_counts() -> None:
    german = request("Turn it down, I can't sleep.", target="de")
    found = judge("Kannst du die Scheißmusik bitte leiser machen? Ich kann nicht schlafen.", german)

    assert Code.VULGARITY in found.result.violations
    assert found.lexicon_version.startswith("de-")


@pytest.mark.req("V-02")
def test_a_language_without_a_lexicon_is_never_passed_silently() -> None:
    finnish = request("Turn it down, I can't sleep.", target="fi")
    found = judge("Voisitko laittaa musiikin hiljaisemmalle? En saa unta.", finnish)

    assert found.lexicon_version == "none"
    assert found.result.lexicon_pass is None
    assert found.result.tone_safety is Mark.WARN
    assert found.verdict is Mark.WARN
    assert set(found.result.flags) == {"lexicon_missing", "intent_unverified"}


# -- new facts


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("I can't sleep. Could you turn the music down after 10:30, please?", "invented_time"),
        ("I can't sleep. Could you turn the music down from Friday, please?", "invented_date"),
        ("I can't sleep. Could you and Kevin turn the music down, please?", "invented_name"),
        ("The neighbours can't sleep. Could you turn the music down?", "invented_thing"),
        ("I'm sorry, but I can't help with rewriting this message.", "machine_words"),
    ],
)
def test_what_the_sender_did_not_say_fails(text: str, flag: str) -> None:
    found = judge(text)

    assert found.verdict is Mark.FAIL
    assert Code.NEW_FACT in found.result.violations
    assert flag in found.result.flags


@pytest.mark.req("X-04")
def test_the_rewrite_of_another_message_fails() -> None:
    theirs = "Hi Jonas, could you please knock before you come into my room?"

    assert judge(theirs).verdict is Mark.FAIL
    assert Code.NEW_FACT in judge(theirs).result.violations


# -- tone


def test_shouting_is_a_warning_between_equals_and_too_much_from_above() -> None:
    loud = KIND.replace("please", "PLEASE")

    assert judge(loud).verdict is Mark.WARN
    assert judge(loud).result.flags == ("tone_loud",)
    assert judge(loud, request(power=PowerMode.HIGHER_RECIPIENT)).verdict is Mark.WARN
    assert judge(loud, request(power=PowerMode.HIGHER_SENDER)).verdict is Mark.FAIL


def test_an_angry_face_shouts() -> None:
    angry = f"{KIND} 😡"

    assert judge(angry).result.flags == ("tone_loud",)
    assert judge(angry, request(power=PowerMode.HIGHER_SENDER)).verdict is Mark.FAIL


# -- the whole


def test_the_result_holds_codes_and_no_text() -> None:
    found = judge("Could you ask Bartholomew about the fucking 4711 dishes on Friday?")
    said = json.dumps(found.result.document) + repr(found)

    assert not any(word in said for word in ("Bartholomew", "4711", "dishes", "fucking", "music"))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80), st.text(max_size=8), st.sampled_from(["en", "de", "fi", "ja"]))
def test_whatever_a_provider_answers_is_judged(text: str, declared: str, target: str) -> None:
    found = judge(text, request(target=target), declared=declared)

    assert found.verdict in Mark
    assert judge(text, request(target=target), declared=declared) == found


@pytest.mark.parametrize("path", sorted(CASES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_no_good_rewrite_of_the_set_invents_or_changes_language(path: Path) -> None:
    false = []
    for case in map(json.loads, path.read_text("utf-8").splitlines()):
        for text in case["good_rewrites"]:
            found = judge(text, of_case(case)).result
            if {Code.NEW_FACT, Code.NON_TARGET_LOCALE} & set(found.violations):
                false.append((case["case_id"], found.flags))

    assert false == []


@pytest.mark.parametrize("path", sorted(CASES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_bad_rewrite_that_invents_or_changes_language_is_caught(path: Path) -> None:
    missed = []
    for case in map(json.loads, path.read_text("utf-8").splitlines()):
        for bad in case["bad_rewrites"]:
            wanted = {Code.NEW_FACT.value, Code.NON_TARGET_LOCALE.value} & set(bad["codes"])
            if not wanted <= set(judge(bad["text"], of_case(case)).result.violations):
                missed.append(case["case_id"])

    assert missed == []


def of_case(case: dict[str, str]) -> RewriteRequest:
    found = request(
        case["original_text"],
        intent=MessageIntent(case["expected_intent"]),
        source=case["source_locale"],
        target=case["target_locale"],
        topic=Topic(case["topic"]),
        power=PowerMode(case["power_mode"]),
    )
    return dataclasses.replace(found, rewrite_strength=Strength(case["rewrite_strength"]))
