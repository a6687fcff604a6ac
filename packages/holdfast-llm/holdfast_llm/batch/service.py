"""The batch service of one application: submit, collect, recover and direct calls.

Each subject is a class of its own in its own module. The service builds them with what they need;
each is built when it is first used.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.periodic_task import RunBudget
from holdfast_llm.batch.accept_kept import KeptAnswers
from holdfast_llm.batch.call import DirectCalls
from holdfast_llm.batch.circuit import AccountCircuits
from holdfast_llm.batch.cleanup import FileCleaner
from holdfast_llm.batch.collect import BatchCollector
from holdfast_llm.batch.content import ContentBuilder
from holdfast_llm.batch.finish_call import CallEndings
from holdfast_llm.batch.item_outcome import OutcomeRules
from holdfast_llm.batch.lease import BatchLeases
from holdfast_llm.batch.load import ItemLoader
from holdfast_llm.batch.orphans import OrphanCleaner
from holdfast_llm.batch.poll import BatchPoller
from holdfast_llm.batch.prepare import PagePreparer
from holdfast_llm.batch.recover import BatchRecovery
from holdfast_llm.batch.release import BatchReleaser
from holdfast_llm.batch.rendered_request import RequestRenderer
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.batch.send import BatchSender
from holdfast_llm.batch.submit import BatchSubmitter
from holdfast_llm.provider.account import Account, Accounts
from holdfast_llm.provider.reply import Failure


class BatchService:
    """Everything that batch processing does for one application."""

    def __init__(self, resources: BatchResources) -> None:
        self.resources = resources

    # -- passes

    def submit_once(self, budget: RunBudget) -> PassCounts:
        """Submit waiting jobs to providers: one bounded run."""
        return self.submitter.submit_once(budget)

    def collect_once(self, budget: RunBudget) -> PassCounts:
        """Collect answers from providers: one bounded run."""
        return self.collector.collect_once(budget)

    def recover_once(self, owner: str) -> PassCounts:
        """Resolve outgoing batches without a worker."""
        return self.recovery.recover_once(owner=owner)

    def finish_abandoned_calls(self) -> int:
        """End direct calls whose worker is gone. Returns how many."""
        return self.endings.end_abandoned()

    # -- accounts

    @property
    def accounts(self) -> Accounts:
        return self.resources.accounts

    def resolve_account(
        self, account_key: str, batch_id: str, provider_batch_id: str | None
    ) -> Account | None:
        """The account that can read a batch; None if no configured account can."""
        return self.resources.resolve_account(account_key, batch_id, provider_batch_id)

    def stop_account(self, account_key: str, provider: str, failure: Failure) -> None:
        """Open the circuit of an account."""
        self.circuits.stop_account(account_key, provider, failure)

    def report_unknown_call(self, account_key: str) -> None:
        """Emit the alert for a call that may have been paid for."""
        self.endings.report_unknown(Counter([account_key]))

    # -- parts

    @cached_property
    def leases(self) -> BatchLeases:
        return BatchLeases(self.resources)

    @cached_property
    def loader(self) -> ItemLoader:
        return ItemLoader(self.resources)

    @cached_property
    def requests(self) -> RequestRenderer:
        return RequestRenderer(self.resources)

    @cached_property
    def outcomes(self) -> OutcomeRules:
        return OutcomeRules(self.resources)

    @cached_property
    def circuits(self) -> AccountCircuits:
        return AccountCircuits(self.resources)

    @cached_property
    def content(self) -> ContentBuilder:
        return ContentBuilder(self.resources, self.leases, self.loader, self.requests)

    @cached_property
    def releaser(self) -> BatchReleaser:
        return BatchReleaser(self.resources, self.leases, self.outcomes)

    @cached_property
    def sender(self) -> BatchSender:
        return BatchSender(self.resources, self.leases, self.content, self.circuits, self.releaser)

    @cached_property
    def orphans(self) -> OrphanCleaner:
        return OrphanCleaner(self.resources, self.leases)

    @cached_property
    def recovery(self) -> BatchRecovery:
        return BatchRecovery(self.resources, self.leases, self.releaser, self.sender, self.orphans)

    @cached_property
    def preparer(self) -> PagePreparer:
        return PagePreparer(
            self.resources, self.leases, self.loader, self.requests, self.outcomes, self.releaser
        )

    @cached_property
    def submitter(self) -> BatchSubmitter:
        return BatchSubmitter(
            self.resources, self.leases, self.preparer, self.sender, self.releaser, self.recovery
        )

    @cached_property
    def poller(self) -> BatchPoller:
        return BatchPoller(self.resources, self.leases, self.circuits)

    @cached_property
    def files(self) -> FileCleaner:
        return FileCleaner(self.resources, self.leases)

    @cached_property
    def collector(self) -> BatchCollector:
        return BatchCollector(
            self.resources, self.leases, self.loader, self.outcomes, self.poller, self.files
        )

    @cached_property
    def kept_answers(self) -> KeptAnswers:
        return KeptAnswers(self.resources, self.leases, self.loader, self.outcomes)

    @cached_property
    def endings(self) -> CallEndings:
        return CallEndings(self.resources)

    @cached_property
    def calls(self) -> DirectCalls:
        return DirectCalls(
            self.resources,
            self.loader,
            self.requests,
            self.outcomes,
            self.circuits,
            self.endings,
        )
