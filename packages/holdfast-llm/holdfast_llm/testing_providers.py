"""A conformance kit for providers. Subclass ProviderConformance and describe your adapter.

    class TestOurs(ProviderConformance):
        def make_adapter(self): ...
        def base_url(self): ...
        def play(self, fault, on=None): ...
        def count_batches(self): ...
        def finish_batches(self): ...
        def error_document(self, message): ...

pytest runs the tests that the class inherits. The far end can be any server that the test controls.
The values of ProviderFault are names of faults of ``holdfast_simulator``, so that ``play`` is one
line for a provider that speaks the API of a simulated one.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast_llm.batch.price import CLASSES, Price
from holdfast_llm.provider.adapter import BatchPhase, Capabilities, Limits
from holdfast_llm.provider.http_client import open_client
from holdfast_llm.provider.reply import (
    Failure,
    FailureKind,
    ProviderRefused,
    ProviderUnsure,
    Reply,
)
from holdfast_llm.testing_far_end import (
    CREDENTIAL,
    QUICK,
    TAG,
    TEXTS,
    ProviderFault,
    ProviderUnderTest,
    RecordingClient,
)

# Accepts no connection, and is in a private network.
PRIVATE = "https://127.0.0.1:9/v1"
FOREIGN_DOCUMENTS: tuple[Any, ...] = (None, [], {}, "no", {"error": "no"}, {"title": "Bad Gateway"})
# One dollar per million tokens of every class, in trillionths per token.
PICO_PER_TOKEN = 1_000_000
PRICE = Price("conformance", (PICO_PER_TOKEN,) * len(CLASSES))


class ProviderConformance(ProviderUnderTest):
    """The tests of every provider adapter. Subclasses describe the adapter and its test server."""

    # -- requests

    def test_an_item_is_one_line_and_always_the_same(self) -> None:
        first, second = self._lines()[:2]

        assert first == self._lines()[0], "two workers must send the same bytes"
        assert first.endswith(b"\n")
        assert first.count(b"\n") == 1
        assert b"item-0" in first
        assert TEXTS[0].encode() in first
        assert TEXTS[0].encode() not in second, "an item contains the text of another item"

    # -- creating batches

    def test_a_batch_is_created_once_and_listed_under_its_tag(self) -> None:
        adapter, since = self.make_adapter(), self._since()
        made = self._submit(adapter)

        assert self.count_batches() == 1
        (listed,) = adapter.scan(self._client(adapter), since)
        assert listed.provider_batch_id == made.provider_batch_id
        assert listed.created_at is not None
        self._assert_tagged(adapter, listed)

    def test_a_batch_whose_creation_had_no_answer_is_found_again(self) -> None:
        adapter, since = self.make_adapter(), self._since()
        self._play(ProviderFault.LOSE_ANSWER, "create")

        with pytest.raises(ProviderUnsure):
            self._submit(adapter)

        assert self.count_batches() == 1, "the batch was created: a second one is paid twice"
        (listed,) = adapter.scan(self._client(adapter), since)
        self._assert_tagged(adapter, listed)

    def test_an_uploaded_input_is_found_and_deleted(self) -> None:
        adapter = self.make_adapter()
        client = self._client(adapter)
        file_id = adapter.upload(client, TAG, self._content(adapter))

        assert (file_id is not None) == adapter.capabilities.has_input_file
        assert adapter.find_file(client, TAG) == file_id
        if file_id is not None:
            adapter.delete_file(client, file_id)
            adapter.delete_file(client, file_id)
            assert adapter.find_file(client, TAG) is None

    # -- polling

    def test_a_batch_runs_and_then_completes(self) -> None:
        adapter = self.make_adapter()
        made = self._submit(adapter)
        self.start_batches()
        running = adapter.get(self._client(adapter), made.provider_batch_id)
        assert (running.phase, running.is_known_status) == (BatchPhase.RUNNING, True)
        assert running.result_files == (), "the results are not complete yet"

        found = self._collect(adapter, made)

        assert (found.batch.phase, found.batch.is_known_status) == (BatchPhase.COMPLETED, True)
        self._assert_counts(found)
        assert len(found.replies) == len(TEXTS)

    def test_an_unknown_status_is_not_an_end(self) -> None:
        adapter = self.make_adapter()
        self._play(ProviderFault.UNKNOWN_STATUS)
        made = self._submit(adapter)
        self.start_batches()

        seen = adapter.get(self._client(adapter), made.provider_batch_id)

        assert (seen.phase, seen.is_known_status) == (BatchPhase.RUNNING, False)

    # -- results

    def test_results_in_another_order_belong_to_their_items(self) -> None:
        found = self._collect_during(ProviderFault.SHUFFLE)

        assert sorted(found.replies) == [f"item-{place}" for place in range(len(TEXTS))]
        for name, reply in found.replies.items():
            assert TEXTS[int(name[-1])] in reply.text, "a reply went to another item"

    def test_a_garbled_line_affects_no_other_item(self) -> None:
        found = self._collect_during(ProviderFault.GARBLE_LINE)

        assert found.bad_lines == 1
        assert len(found.replies) == len(TEXTS) - 1

    def test_a_missing_line_is_missing(self) -> None:
        found = self._collect_during(ProviderFault.OMIT_LINE)

        assert len(found.answers) == len(TEXTS) - 1
        assert found.batch.total == len(TEXTS)

    @pytest.mark.parametrize(
        ("fault", "digests"),
        [(ProviderFault.REPEAT_LINE, 1), (ProviderFault.CONTRADICT_LINE, 2)],
    )
    def test_two_lines_for_one_item_differ_if_their_answers_do(
        self, fault: ProviderFault, digests: int
    ) -> None:
        found = self._collect_during(fault)
        by_name: dict[str, list[str]] = {}
        for one in found.answers:
            by_name.setdefault(one.custom_id, []).append(one.digest)

        (twice,) = (lines for lines in by_name.values() if len(lines) == 2)
        assert len(set(twice)) == digests
        assert len(by_name) == len(TEXTS)

    def test_a_failed_item_fails_alone(self) -> None:
        found = self._collect_during(ProviderFault.FAIL_ITEM)

        assert len(found.replies) == len(TEXTS) - 1
        assert [bool(failure.code) for failure in found.failures.values()] == [True]

    def test_results_that_are_cut_off_are_not_taken_for_all(self) -> None:
        adapter = self.make_adapter()
        made = self._submit(adapter)
        self._play(ProviderFault.CUT_RESULTS)

        with pytest.raises(ProviderUnsure):
            self._collect(adapter, made)

    # -- batches that end early

    @pytest.mark.parametrize("fault", [ProviderFault.EXPIRE, ProviderFault.CANCEL])
    def test_a_batch_that_ends_early_says_what_was_done(self, fault: ProviderFault) -> None:
        found = self._collect_during(fault)

        assert found.batch.phase.is_over
        assert found.batch.is_known_status
        assert len(found.replies) < len(TEXTS)
        self._assert_counts(found)
        self._assert_not_run(found)

    def test_a_canceled_batch_ends_without_replies(self) -> None:
        adapter = self.make_adapter()
        made = self._submit(adapter)

        adapter.cancel(self._client(adapter), made.provider_batch_id)
        found = self._collect(adapter, made)
        adapter.cancel(self._client(adapter), made.provider_batch_id)

        assert found.batch.phase.is_over
        assert found.replies == {}
        self._assert_not_run(found)

    # -- refusals

    def test_a_throttled_creation_creates_nothing(self) -> None:
        failure = self._refused(ProviderFault.THROTTLE)

        assert failure.kind is FailureKind.CAPACITY
        assert failure.retry_after == self.retry_after

    def test_a_throttled_call_can_be_repeated(self) -> None:
        failure = self._call_during(ProviderFault.THROTTLE)

        assert isinstance(failure, Failure)
        assert failure.kind is FailureKind.TRANSIENT
        assert failure.retry_after == self.retry_after

    def test_a_refused_credential_concerns_the_account(self) -> None:
        assert self._refused(ProviderFault.REFUSE_CREDENTIAL).kind is FailureKind.ACCOUNT
        called = self._call_during(ProviderFault.REFUSE_CREDENTIAL)
        assert isinstance(called, Failure)
        assert called.kind is FailureKind.ACCOUNT

    def test_a_batch_that_is_too_large_is_refused(self) -> None:
        assert self._refused(ProviderFault.REFUSE_SIZE).kind is FailureKind.INVALID

    def test_only_an_error_document_of_the_provider_is_a_refusal(self) -> None:
        adapter = self.make_adapter()

        assert adapter.refusal(400, self.error_document("no")) is not None
        for document in FOREIGN_DOCUMENTS:
            assert adapter.refusal(400, document) is None, f"{document!r} is not the provider's"

    # -- usage and direct calls

    def test_usage_is_what_the_provider_bills(self) -> None:
        adapter = self.make_adapter()
        found = self._collect(adapter, self._submit(adapter))
        usages = [reply.usage for reply in found.replies.values()]
        costs = [PRICE.cost(usage) for usage in usages if usage]

        assert all(usage and usage.all_input > 0 and usage.output > 0 for usage in usages)
        assert all(reply.model for reply in found.replies.values()), "no model, no price"
        if (billed := self.billed_tokens()) is not None:
            read = [(usage.all_input, usage.output) for usage in usages if usage]
            assert tuple(map(sum, zip(*read, strict=True))) == billed
            assert sum(cost or 0 for cost in costs) == sum(billed) * PICO_PER_TOKEN

    def test_missing_usage_is_unknown_and_not_zero(self) -> None:
        found = self._collect_during(ProviderFault.OMIT_USAGE)

        assert [reply.usage for reply in found.replies.values()].count(None) == 1

    def test_a_direct_call_is_answered(self) -> None:
        adapter = self.make_adapter()

        reply = self._call(adapter)

        assert isinstance(reply, Reply)
        assert TEXTS[0] in reply.text
        assert reply.usage is not None

    # -- limits and addresses

    def test_limits_and_capabilities_are_declared(self) -> None:
        adapter = self.make_adapter()
        limits = adapter.limits

        assert isinstance(limits, Limits)
        assert isinstance(adapter.capabilities, Capabilities)
        assert limits.max_items >= 1
        assert 0 < limits.max_line_bytes <= limits.max_bytes
        assert max(map(len, self._lines())) <= limits.max_line_bytes

    def test_the_address_is_public_and_encrypted(self) -> None:
        adapter = self.make_adapter()
        with pytest.raises(ConfigError):
            open_client(adapter, "http://llm.example.com/v1", CREDENTIAL)
        # Some providers have no common base URL.
        assert adapter.base_url == "" or adapter.base_url.startswith("https://")

        with pytest.raises(ProviderRefused) as refused:
            self._submit(adapter, open_client(adapter, PRIVATE, CREDENTIAL, timeouts=QUICK))

        assert refused.value.failure.code == "address_refused"

    def test_bad_addresses_are_refused_and_not_repeated(self) -> None:
        adapter = self.make_adapter()
        for address in ("http://llm.example.com/v1", "ftp://llm.example.com", *self.bad_addresses):
            try:
                says = adapter.problem(adapter.settings(base_url=address))
            except ConfigError as exc:
                says = str(exc)
            assert says, f"{address!r} is accepted"
            assert address not in says

    # -- secrets

    def test_the_credential_is_only_in_headers(self) -> None:
        adapter = self.make_adapter()
        recorded = RecordingClient(self._client(adapter))

        made = self._submit(adapter, recorded)
        adapter.get(recorded, made.provider_batch_id)
        list(adapter.scan(recorded, self._since()))

        assert CREDENTIAL in str(adapter.headers(CREDENTIAL))
        assert recorded.targets, "the adapter did not use the connection that it was given"
        assert CREDENTIAL not in str(recorded.targets)
        assert CREDENTIAL.encode() not in b"".join(self._lines())

    @pytest.mark.parametrize(
        "fault",
        [
            ProviderFault.LOSE_ANSWER,
            ProviderFault.REFUSE_CREDENTIAL,
            ProviderFault.REFUSE_SIZE,
            ProviderFault.THROTTLE,
        ],
    )
    def test_no_error_repeats_the_credential_or_a_text(self, fault: ProviderFault) -> None:
        adapter = self.make_adapter()
        self._play(fault, "create")
        with pytest.raises((ProviderRefused, ProviderUnsure)) as raised:
            self._submit(adapter)
        self._play(fault, "call")
        try:
            said = repr(self._call(adapter))
        except (ProviderRefused, ProviderUnsure) as exc:
            said = f"{exc!r} {getattr(exc, 'failure', None)!r}"
        error = raised.value
        document = self.error_document(f"{CREDENTIAL} may not send {TEXTS[0]}")
        said += f"{error!r} {error} {getattr(error, 'failure', None)!r} {adapter!r}"
        said += repr(adapter.refusal(401, document))

        for secret in (CREDENTIAL, *TEXTS):
            assert secret not in said
