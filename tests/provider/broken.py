"""Adapters with one mistake each, and the test of the conformance kit that finds it."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from holdfast_llm.provider.adapter import BatchPhase, Limits
from holdfast_llm.provider.openai import CHAT, OpenAI
from holdfast_llm.provider.reply import (
    Failure,
    FailureKind,
    ItemAnswer,
    ProviderRefused,
    ProviderUnsure,
    Reply,
    Usage,
)

COUNTER = itertools.count()
BROKEN: list[tuple[OpenAI, str, tuple[Any, ...]]] = []


def found_by(test: str, *given: Any, **fields: Any) -> Any:
    """Register a broken adapter under the test that must fail for it."""

    def register(broken: type[OpenAI]) -> type[OpenAI]:
        BROKEN.append((broken("openai_chat", CHAT, **fields), test, given))
        return broken

    return register


def changed(answer: ItemAnswer, **fields: Any) -> ItemAnswer:
    """The item with another answer."""
    return replace(answer, answer=replace(answer.answer, **fields))


# -- requests and creation


@found_by("test_an_item_is_one_line_and_always_the_same")
class RandomLine(OpenAI):
    def line(self, route: Any, custom_id: str, body: Any) -> bytes:
        return super().line(route, custom_id, {**body, "user": str(next(COUNTER))})


@found_by("test_a_batch_is_created_once_and_listed_under_its_tag")
class CreatesTwice(OpenAI):
    def create(self, *given: Any) -> Any:
        super().create(*given)
        return super().create(*given)


@found_by("test_a_batch_is_created_once_and_listed_under_its_tag")
@found_by("test_a_batch_whose_creation_had_no_answer_is_found_again")
class LosesTag(OpenAI):
    def create(self, client: Any, route: Any, name: Any, *given: Any) -> Any:
        return super().create(client, route, replace(name, key="another"), *given)


@found_by("test_a_batch_whose_creation_had_no_answer_is_found_again")
class RepeatsCreate(OpenAI):
    def create(self, *given: Any) -> Any:
        try:
            return super().create(*given)
        except ProviderUnsure:
            return super().create(*given)


@found_by("test_an_uploaded_input_is_found_and_deleted")
class FindsNoFile(OpenAI):
    def find_file(self, client: Any, name: Any) -> None:
        return None


# -- polling


@found_by("test_a_batch_runs_and_then_completes")
class EndsTooEarly(OpenAI):
    def get(self, *given: Any) -> Any:
        return replace(super().get(*given), phase=BatchPhase.COMPLETED)


@found_by("test_an_unknown_status_is_not_an_end")
class UnknownIsFailed(OpenAI):
    def get(self, *given: Any) -> Any:
        seen = super().get(*given)
        return seen if seen.is_known_status else replace(seen, phase=BatchPhase.FAILED)


@found_by("test_a_missing_line_is_missing")
class NoTotal(OpenAI):
    def get(self, *given: Any) -> Any:
        return replace(super().get(*given), total=None)


@found_by("test_a_batch_that_ends_early_says_what_was_done", "expired_partial")
@found_by("test_a_batch_that_ends_early_says_what_was_done", "canceled_partial")
class WrongCounts(OpenAI):
    def get(self, *given: Any) -> Any:
        return replace(super().get(*given), succeeded=4)


@found_by("test_a_canceled_batch_ends_without_replies")
class CancelsNothing(OpenAI):
    def cancel(self, *given: Any) -> None:
        pass


# -- results


@found_by("test_results_in_another_order_belong_to_their_items")
class AssignsByOrder(OpenAI):
    def parse(self, line: bytes) -> ItemAnswer:
        return replace(super().parse(line), custom_id=f"item-{next(COUNTER) % 4}")


@found_by("test_a_garbled_line_affects_no_other_item")
class BelievesGarbage(OpenAI):
    def parse(self, line: bytes) -> ItemAnswer:
        try:
            return super().parse(line)
        except ValueError:
            return ItemAnswer("item-0", Failure(FailureKind.INVALID, "bad"), "")


@found_by("test_two_lines_for_one_item_differ_if_their_answers_do", "duplicate_identical", 1)
class RandomDigest(OpenAI):
    def parse(self, line: bytes) -> ItemAnswer:
        return replace(super().parse(line), digest=str(next(COUNTER)))


@found_by("test_two_lines_for_one_item_differ_if_their_answers_do", "duplicate_conflicting", 2)
class SameDigest(OpenAI):
    def parse(self, line: bytes) -> ItemAnswer:
        return replace(super().parse(line), digest="same")


@found_by("test_a_failed_item_fails_alone")
class DropsFailures(OpenAI):
    def parse(self, line: bytes) -> ItemAnswer:
        found = super().parse(line)
        if isinstance(found.answer, Failure):
            raise ValueError("failed")
        return found


@found_by("test_results_that_are_cut_off_are_not_taken_for_all")
class IgnoresTheEnd(OpenAI):
    @contextmanager
    def read(self, client: Any, file: str) -> Iterator[Any]:
        def pieces() -> Iterator[bytes]:
            try:
                with super(IgnoresTheEnd, self).read(client, file) as inner:
                    yield from inner
            except ProviderUnsure:
                return

        yield pieces()


@found_by("test_a_batch_that_ends_early_says_what_was_done", "expired_partial")
class BlamesItems(OpenAI):
    def parse(self, line: bytes) -> ItemAnswer:
        found = super().parse(line)
        if isinstance(found.answer, Failure):
            return changed(found, kind=FailureKind.INVALID)
        return found


# -- refusals


@found_by("test_a_throttled_creation_creates_nothing")
@found_by("test_a_throttled_call_can_be_repeated")
@found_by("test_a_refused_credential_concerns_the_account")
class EveryErrorIsInvalid(OpenAI):
    def refusal(self, status: int, document: Any) -> Failure | None:
        failure = super().refusal(status, document)
        return failure and replace(failure, kind=FailureKind.INVALID)


@found_by("test_a_batch_that_is_too_large_is_refused")
class RepeatsTooLarge(OpenAI):
    def create(self, *given: Any) -> Any:
        try:
            return super().create(*given)
        except ProviderRefused as refused:
            raise ProviderUnsure("refused") from refused


@found_by("test_only_an_error_document_of_the_provider_is_a_refusal")
class BelievesProxies(OpenAI):
    def refusal(self, status: int, document: Any) -> Failure | None:
        return super().refusal(status, document) or Failure(FailureKind.INVALID, "bad", status)


# -- usage, calls and limits


@found_by("test_usage_is_what_the_provider_bills")
class DoublesUsage(OpenAI):
    def parse(self, line: bytes) -> ItemAnswer:
        found = super().parse(line)
        usage = found.answer.usage
        return changed(found, usage=usage and replace(usage, cache_read=usage.input))


@found_by("test_missing_usage_is_unknown_and_not_zero")
class ZeroUsage(OpenAI):
    def parse(self, line: bytes) -> ItemAnswer:
        found = super().parse(line)
        return changed(found, usage=found.answer.usage or Usage())


@found_by("test_a_direct_call_is_answered")
class CallsWithoutUsage(OpenAI):
    def call(self, *given: Any) -> Any:
        answer = super().call(*given)
        return replace(answer, usage=None) if isinstance(answer, Reply) else answer


@found_by("test_limits_and_capabilities_are_declared", limits=Limits(0, 200_000_000))
@found_by("test_limits_and_capabilities_are_declared", limits=Limits(10, 1024))
@found_by("test_the_address_is_public_and_encrypted", base_url="http://api.example.com/v1")
class Declared(OpenAI):
    pass


# -- addresses and secrets


@found_by("test_the_address_is_public_and_encrypted")
@found_by("test_the_credential_is_only_in_headers")
class OwnConnection(OpenAI):
    def upload(self, *given: Any) -> str:
        return "file-1"

    def create(self, *given: Any) -> Any:
        raise ProviderUnsure("not through the connection that it was given")


@found_by("test_bad_addresses_are_refused_and_not_repeated")
class RepeatsAddress(OpenAI):
    def problem(self, settings: Any) -> str | None:
        return f"{settings.base_url} is wrong"


@found_by("test_the_credential_is_only_in_headers")
class CredentialInQuery(OpenAI):
    @property
    def query(self) -> dict[str, str]:
        return {"key": "sk-conformance-4f1d8a"}


@found_by("test_no_error_repeats_the_credential_or_a_text", "key_rotated")
class RepeatsMessages(OpenAI):
    def refusal(self, status: int, document: Any) -> Failure | None:
        failure = super().refusal(status, document)
        return failure and replace(failure, code=json.dumps(document))


@found_by("test_no_error_repeats_the_credential_or_a_text", "rate_limited")
@dataclasses.dataclass(frozen=True)
class ShowsCredential(OpenAI):
    credential: str = "sk-conformance-4f1d8a"
