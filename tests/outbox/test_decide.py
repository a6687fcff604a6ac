"""The whole decision table, without a database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.channel.channel import Capabilities, Lookup, OnUnknown
from holdfast.outbox.decide import (
    Backfill,
    Decision,
    Done,
    Drop,
    Fail,
    Hold,
    LookupFirst,
    Policy,
    Send,
    Wait,
    decide,
)
from holdfast.outbox.delivery import Attempt, Delivery, Evidence, Reason, State

T0 = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOLD = Policy()

FRESH = Delivery(
    id="0198c0de-0000-7000-8000-000000000001",
    org_id="0198c0de-0000-7000-8000-00000000000a",
    subject="review:cl-1",
    recipient="ann",
    version=1,
    channel="post",
    token="hf_1",
    content_hash="h",
    is_required=True,
    state=State.PENDING,
    reason=None,
    job_id=None,
    notification_id=None,
    notified_at=None,
    confirmed_by=None,
    attempts=0,
    fence=1,
    first_sent_at=None,
    reconciled_at=None,
    not_before_at=None,
    request_id="r",
    correlation_id="c",
    created_at=T0,
    updated_at=T0,
    ended_at=None,
)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def tried(*outcomes: str | None, provider_id: str | None = None) -> list[Attempt]:
    """Attempts a minute apart, the first at T0."""
    return [
        Attempt(number, Reason.FIRST, at(60 * (number - 1)), outcome, "code", provider_id, "h")
        for number, outcome in enumerate(outcomes, start=1)
    ]


def said(
    verdict: str, after: int, *, source: str = "lookup", provider_id: str | None = None
) -> Evidence:
    return Evidence(source, verdict, after, at(100), provider_id)


def ruling(
    attempts: list[Attempt],
    capabilities: Capabilities,
    *evidence: Evidence,
    policy: Policy = HOLD,
    now: float = 300,
    delivery: Delivery = FRESH,
    canceled: float | None = None,
) -> Decision:
    first = attempts[0].began_at if attempts else None
    stands = replace(delivery, attempts=len(attempts), first_sent_at=first)
    canceled_at = None if canceled is None else at(canceled)
    told = (stands, attempts, evidence, capabilities, policy, at(now))
    return decide(*told, canceled_at=canceled_at)


PLAIN = Capabilities()
BY_TOKEN = Capabilities(lookup=Lookup.BY_OUR_TOKEN, settle_seconds=30, retention_seconds=86_400)
BY_ID = Capabilities(lookup=Lookup.BY_PROVIDER_ID)
FUZZY = Capabilities(lookup=Lookup.FUZZY, settle_seconds=30)
WINDOW = Capabilities(idempotency_seconds=3_600)
WEBHOOK = Capabilities(receiver_dedupes=True)


@pytest.mark.req("N-12")
def test_what_was_never_tried_is_sent() -> None:
    assert ruling([], PLAIN) == Send(Reason.FIRST)


@pytest.mark.req("N-07")
@pytest.mark.req("N-11")
def test_what_is_marked_is_never_sent_again() -> None:
    for state in (State.SENT, State.HELD, State.DROPPED, State.FAILED):
        assert ruling([], BY_TOKEN, delivery=replace(FRESH, state=state)) == Done()
    assert ruling([], PLAIN, delivery=replace(FRESH, notified_at=T0)) == Done()


@pytest.mark.req("R-28")
@pytest.mark.parametrize("outcome", ["rejected", "throttled"])
def test_what_was_proven_not_taken_is_tried_ten_times(outcome: str) -> None:
    assert ruling(tried(outcome), PLAIN) == Send(Reason.PROVEN_NOT_TAKEN)
    assert ruling(tried(outcome), PLAIN, now=90_000) == Send(Reason.PROVEN_NOT_TAKEN)
    assert ruling(tried(*[outcome] * 9), PLAIN) == Send(Reason.PROVEN_NOT_TAKEN)
    assert ruling(tried(*[outcome] * 10), PLAIN) == Fail("attempts_spent")


@pytest.mark.req("R-28")
@pytest.mark.parametrize("capabilities", [PLAIN, BY_TOKEN, BY_ID, FUZZY, WINDOW, WEBHOOK])
def test_nothing_is_sent_an_eleventh_time(capabilities: Capabilities) -> None:
    for outcome in ("rejected", "throttled", "channel_refused", "unsure", None):
        for policy in OnUnknown:
            own = Policy(on_unknown=policy)
            found = ruling(tried(*[outcome] * 10), capabilities, policy=own, now=700)
            assert not isinstance(found, Send)


@pytest.mark.req("R-07")
def test_an_attempt_that_the_channel_itself_refused_does_not_count() -> None:
    refused = ["channel_refused"] * 3
    few = Policy(max_attempts=2)
    assert ruling(tried(*refused), PLAIN, policy=few) == Send(Reason.PROVEN_NOT_TAKEN)
    assert ruling(tried(*refused, "rejected"), PLAIN, policy=few) == Send(Reason.PROVEN_NOT_TAKEN)
    spent = tried(*refused, "rejected", "rejected")
    assert ruling(spent, PLAIN, policy=few) == Fail("attempts_spent")


def test_a_try_that_was_never_made_counts_for_nothing() -> None:
    skipped = [replace(one, code="circuit_open") for one in tried(*["channel_refused"] * 20)]
    assert ruling(skipped, PLAIN) == Send(Reason.PROVEN_NOT_TAKEN)


@pytest.mark.req("N-16")
def test_what_is_refused_for_good_fails() -> None:
    assert ruling(tried("refused"), PLAIN) == Fail("code")


@pytest.mark.req("N-18")
@pytest.mark.parametrize(
    ("capabilities", "wanted"), [(BY_TOKEN, LookupFirst()), (PLAIN, Hold("refused_after_unclear"))]
)
def test_a_refusal_after_an_unclear_try_fails_nothing_before_the_channel_was_asked(
    capabilities: Capabilities, wanted: Decision
) -> None:
    assert ruling(tried("unsure", "refused"), capabilities) == wanted


@pytest.mark.parametrize("policy", OnUnknown)
def test_what_the_channel_refuses_for_good_is_not_sent_again_whatever_was_unclear_before(
    policy: OnUnknown,
) -> None:
    own = Policy(on_unknown=policy)
    given_up = Drop("unknown") if policy is OnUnknown.DROP else Hold("refused_after_unclear")
    for capabilities in (PLAIN, BY_ID, WINDOW, WEBHOOK):
        assert ruling(tried("unsure", "refused"), capabilities, policy=own) == given_up
    vague = said("not_found", 2)
    assert ruling(tried("unsure", "refused"), FUZZY, vague, policy=own) == given_up


def test_a_look_that_finds_nothing_leaves_a_refusal_what_it_is() -> None:
    tries = tried("unsure", "refused")
    assert ruling(tries, BY_TOKEN, said("not_found", 2)) == Fail("code")
    word = said("resend", 2, source="operator")
    assert ruling(tries, BY_TOKEN, word) == Send(Reason.OPERATOR_RESEND)


@pytest.mark.parametrize("outcome", ["unsure", None])
def test_within_the_window_the_same_token_is_sent_again(outcome: str | None) -> None:
    assert ruling(tried(outcome), WINDOW) == Send(Reason.IDEMPOTENT_WINDOW)


@pytest.mark.parametrize("now", [3_541, 3_600, 100_000])
def test_the_idempotency_window_is_not_trusted_at_its_end(now: float) -> None:
    assert ruling(tried("unsure"), WINDOW, now=now) == Hold("unknown")
    asked = replace(WINDOW, lookup=Lookup.BY_OUR_TOKEN)
    assert ruling(tried("unsure"), asked, now=now) == LookupFirst()


def test_the_window_runs_from_the_first_try_and_not_from_the_last() -> None:
    tries = tried("unsure", "unsure")
    tries[1] = replace(tries[1], began_at=at(3_500))
    assert ruling(tries, WINDOW, now=3_560) == Hold("unknown")


def test_another_body_under_the_same_token_is_no_repeat() -> None:
    tries = [replace(tried("unsure")[0], body_hash="other")]
    assert ruling(tries, WINDOW) == Hold("unknown")


@pytest.mark.req("N-17")
@pytest.mark.parametrize("outcome", ["unsure", None])
def test_a_channel_that_can_be_asked_is_asked_once_its_index_has_settled(
    outcome: str | None,
) -> None:
    assert ruling(tried(outcome), BY_TOKEN, now=29) == Wait(at(30), "settle")
    assert ruling(tried(outcome), BY_TOKEN, now=30) == LookupFirst()


def test_what_the_channel_has_is_marked_and_what_it_has_not_is_sent_again() -> None:
    found = said("taken", 1, provider_id="m-1")
    assert ruling(tried("unsure"), BY_TOKEN, found) == Backfill("m-1")
    assert ruling(tried("unsure"), BY_TOKEN, said("not_found", 1)) == Send(
        Reason.LOOKED_UP_NOT_FOUND
    )


def test_an_answer_about_one_try_says_nothing_of_the_next() -> None:
    assert ruling(tried("unsure", "unsure"), BY_TOKEN, said("not_found", 1)) == LookupFirst()


def test_a_channel_that_is_silent_for_too_long_leaves_it_to_a_person() -> None:
    silent = said("unreachable", 1)
    assert ruling(tried("unsure"), BY_TOKEN, silent) == LookupFirst()
    assert ruling(tried("unsure"), BY_TOKEN, silent, now=86_501) == Hold("lookup_expired")
    patient = replace(BY_TOKEN, retention_seconds=None)
    assert ruling(tried("unsure"), patient, silent, now=86_501) == Hold("lookup_unreachable")


def test_a_channel_that_has_forgotten_is_not_asked() -> None:
    assert ruling(tried("unsure"), BY_TOKEN, now=86_400) == Hold("lookup_expired")


def test_by_its_own_id_a_channel_is_asked_where_we_know_it() -> None:
    assert ruling(tried("unsure", provider_id="m-1"), BY_ID) == LookupFirst("m-1")
    assert ruling(tried("unsure"), BY_ID) == Hold("unknown")


@pytest.mark.req("N-13")
def test_an_id_without_a_time_means_that_it_may_have_gone_out() -> None:
    half = replace(FRESH, notification_id="m-1")
    assert ruling([], BY_ID, delivery=half) == LookupFirst("m-1")
    assert ruling([], BY_TOKEN, delivery=half) == LookupFirst("m-1")
    assert ruling([], PLAIN, delivery=half) == Hold("unknown")
    assert ruling([], BY_ID, said("not_found", 0), delivery=half) == Send(
        Reason.LOOKED_UP_NOT_FOUND
    )


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (OnUnknown.HOLD, Hold("unknown")),
        (OnUnknown.DROP, Drop("unknown")),
        (OnUnknown.RESEND, Send(Reason.POLICY_RESEND)),
    ],
)
def test_the_unknowable_is_the_channel_owners_choice(policy: OnUnknown, wanted: Decision) -> None:
    own = Policy(on_unknown=policy)
    assert ruling(tried("unsure"), PLAIN, policy=own) == wanted
    # A lookup by recipient and time that finds nothing proves nothing.
    assert ruling(tried("unsure"), FUZZY, said("not_found", 1), policy=own) == wanted


def test_by_recipient_and_time_one_match_is_a_message_and_several_are_a_question() -> None:
    assert ruling(tried("unsure"), FUZZY) == LookupFirst()
    one = said("taken", 1, provider_id="m-1")
    assert ruling(tried("unsure"), FUZZY, one) == Backfill("m-1")
    assert ruling(tried("unsure"), FUZZY, said("several", 1)) == Hold("several_found")


def test_several_matches_are_held_whatever_the_owner_wants() -> None:
    own = Policy(on_unknown=OnUnknown.RESEND)
    for capabilities in (FUZZY, BY_TOKEN):
        found = ruling(tried("unsure"), capabilities, said("several", 1), policy=own)
        assert found == Hold("several_found")


def test_a_receiver_that_knows_a_token_again_may_get_it_again() -> None:
    assert ruling(tried("unsure"), WEBHOOK) == Send(Reason.RECEIVER_DEDUPES)
    assert ruling(tried(*["unsure"] * 10), WEBHOOK, now=10_000) == Hold("attempts_spent")


def test_a_late_answer_is_an_answer() -> None:
    late = said("taken", 1, source="late_answer", provider_id="m-1")
    assert ruling(tried(None), PLAIN, late) == Backfill("m-1")
    assert ruling(tried("accepted", provider_id="m-1"), PLAIN) == Backfill("m-1")


def test_what_the_channel_took_and_gave_up_fails() -> None:
    gone = said("undelivered", 1, provider_id="m-1")
    late = said("taken", 1, source="late_answer", provider_id="m-1")
    assert ruling(tried("unsure"), BY_TOKEN, gone) == Fail("undelivered")
    assert ruling(tried("accepted", provider_id="m-1"), BY_TOKEN, gone) == Fail("undelivered")
    for evidence in ((late, gone), (gone, late)):
        assert ruling(tried(None), BY_TOKEN, *evidence) == Fail("undelivered")


@pytest.mark.req("N-19")
def test_a_mark_that_the_channel_disproved_is_not_restored() -> None:
    gone = said("not_found", 1)
    marked = replace(FRESH, notification_id="m-1")
    for tries in ([], tried("unsure"), tried(None)):
        wanted = Send(Reason.LOOKED_UP_NOT_FOUND)
        assert ruling(tries, BY_TOKEN, gone, delivery=marked) == wanted


def test_a_look_that_missed_it_does_not_overrule_the_channels_own_yes() -> None:
    # The lookup was made before the answer to the send arrived, or reads a list that lags.
    late = said("taken", 1, source="late_answer", provider_id="m-1")
    gone = said("not_found", 1)
    for evidence in ((late, gone), (gone, late)):
        assert ruling(tried("unsure"), BY_TOKEN, *evidence) == Backfill("m-1")
    assert ruling(tried("accepted", provider_id="m-1"), BY_TOKEN, gone) == Backfill("m-1")


def test_a_persons_word_overrules_what_was_taken_before_it() -> None:
    late = said("taken", 1, source="late_answer", provider_id="m-1")
    word = said("resend", 1, source="operator")
    assert ruling(tried("accepted", provider_id="m-1"), PLAIN, late, word) == Send(
        Reason.OPERATOR_RESEND
    )


def test_what_is_taken_under_no_name_is_taken() -> None:
    assert ruling(tried("accepted"), PLAIN) == Backfill("hf_1")
    assert ruling(tried(None), PLAIN, said("taken", 1)) == Backfill("hf_1")


def test_a_persons_word_sends_it_again_with_a_budget_of_its_own() -> None:
    word = said("resend", 10, source="operator")
    assert ruling(tried(*["unsure"] * 10), PLAIN, word, now=10_000) == Send(Reason.OPERATOR_RESEND)
    assert ruling(tried(*["unsure"] * 11), PLAIN, word, now=10_000) == Hold("unknown")


def test_nothing_is_sent_before_its_time() -> None:
    later = replace(FRESH, not_before_at=at(500))
    assert ruling([], PLAIN, delivery=later) == Wait(at(500), "not_before")
    assert ruling(tried("unsure"), WINDOW, delivery=later) == Wait(at(500), "backoff")


@pytest.mark.parametrize("capabilities", [PLAIN, BY_TOKEN, BY_ID, FUZZY, WINDOW, WEBHOOK])
@pytest.mark.parametrize("outcome", ["unsure", None])
def test_no_unclear_try_is_ever_followed_by_a_send_without_a_reason_of_the_table(
    capabilities: Capabilities, outcome: str | None
) -> None:
    for now in (0, 10, 60, 3_590, 50_000, 900_000):
        match ruling(tried(outcome), capabilities, now=now):
            case Send(reason):
                assert reason in (Reason.IDEMPOTENT_WINDOW, Reason.RECEIVER_DEDUPES)


@pytest.mark.parametrize("capabilities", [PLAIN, BY_TOKEN, BY_ID, FUZZY, WINDOW, WEBHOOK])
@pytest.mark.parametrize("policy", OnUnknown)
def test_what_a_canceled_job_was_to_send_is_never_sent(
    capabilities: Capabilities, policy: OnUnknown
) -> None:
    own = Policy(on_unknown=policy)
    for now in (0, 10, 60, 3_590, 50_000, 900_000):
        for outcomes in (
            [],
            ["rejected"],
            ["throttled"],
            ["unsure", "rejected"],
            ["unsure"],
            [None],
        ):
            tries = tried(*outcomes)
            found = ruling(tries, capabilities, policy=own, now=now, canceled=0)
            assert not isinstance(found, Send)
            is_unclear = "unsure" in outcomes or None in outcomes
            assert (found == Drop("canceled")) is not is_unclear
        later = replace(FRESH, not_before_at=at(1_000_000))
        assert ruling([], capabilities, delivery=later, now=now, canceled=0) == Drop("canceled")


def test_what_a_canceled_job_sent_counts() -> None:
    found = said("taken", 1, provider_id="m-1")
    assert ruling(tried("unsure"), BY_TOKEN, found, canceled=0) == Backfill("m-1")
    assert ruling(tried("unsure"), BY_TOKEN, said("not_found", 1), canceled=0) == Drop("canceled")


def test_a_persons_word_after_the_cancel_counts_and_one_before_it_does_not() -> None:
    word = said("resend", 1, source="operator")
    assert ruling(tried("unsure"), PLAIN, word, canceled=90) == Send(Reason.OPERATOR_RESEND)
    assert ruling(tried("unsure"), PLAIN, word, canceled=110) == Drop("canceled")
