"""Rewrites: the complaint rewrite of one Holdfast application."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from holdfast.actor import Actor, Role
from holdfast.app import Holdfast
from holdfast.arguments import anything, checked, each, having, instance
from holdfast.engine.handler import Producer
from holdfast.engine.job import DEFAULT_QUEUE
from holdfast.engine.retry import RetryPolicy
from holdfast.errors import ConfigError
from holdfast.operate.authorization import OperatorContext
from holdfast_llm.provider.adapters import ADAPTERS
from holdfast_llm.settings import COLLECTOR, SUBMITTER
from holdfast_rewrite import context_pack, erase, export, show
from holdfast_rewrite.classify import Classifier
from holdfast_rewrite.classify_llm import ModelClassifier
from holdfast_rewrite.classify_local import LocalClassifier
from holdfast_rewrite.detect import Detector, local_detector
from holdfast_rewrite.directory import Directory, SqlDirectory
from holdfast_rewrite.draft import SQL as DRAFTS
from holdfast_rewrite.enums import (
    JOB_TYPE,
    JUDGE_STAGE,
    JUDGE_TYPE,
    ORCHESTRATOR_RUN,
    STAGE,
)
from holdfast_rewrite.extension import RewriteExtension
from holdfast_rewrite.failure import InvalidRewrite
from holdfast_rewrite.finish import OrchestratorTask
from holdfast_rewrite.held import HeldRewrites
from holdfast_rewrite.judge import JudgeWork
from holdfast_rewrite.language import DEFAULT, normalize
from holdfast_rewrite.orchestrate import Orchestrator
from holdfast_rewrite.route import Routes
from holdfast_rewrite.settings import BATCH_COLLECTOR, BATCH_SUBMITTER
from holdfast_rewrite.validation import Answer, Submission
from holdfast_rewrite.work import SQL, RewriteWork

MAX_ATTEMPTS = 2
JUDGE_ATTEMPTS = 3


NEVER_REPLAYED = (
    "a rewrite belongs to one request, and a second job for it would rewrite the message twice;"
    " fix it forward by a new request with a new rewrite_request_id, or discard it"
)


NEVER_JUDGED_TWICE = (
    "a rewrite is judged once, and without a verdict it is held for a person; decide it with"
    " `holdfast rewrite held`, then discard the dead letter"
)


@checked(
    InvalidRewrite,
    checks={
        "classifier": having("classify"),
        "detector": having("detect"),
        "directory": having("look"),
        "hf": instance(Holdfast),
        "limit": anything,
        "submission": instance(Submission),
        "submissions": each(instance(Submission)),
    },
    init=True,
    without=("install",),
)
class Rewrites(RewriteExtension):
    """The complaint rewrite of one application.

    Enabling it declares the job type and the orchestrator's run. *directory* knows the members of
    homes, *classifier* classifies messages, *detector* detects languages; each has a default that
    needs only this database and this process. With *hf* it is enabled at once, and the local
    classifier is loaded, which takes a second; the first message does not wait for it.
    """

    hf: Holdfast
    routes: Routes
    detector: Detector
    directory: Directory
    orchestrator: Orchestrator

    def __init__(
        self,
        hf: Holdfast | None = None,
        *,
        directory: Directory | None = None,
        classifier: Classifier | None = None,
        detector: Detector | None = None,
    ) -> None:
        self._given = (directory, classifier, detector)
        if hf is not None:
            hf.add_extension(self)
            self._load()

    def _load(self) -> None:
        """Load what the first message would wait for; the commands of the CLI do without."""
        context_pack.load_tables()
        # An adapter that cannot be imported is reported by the route that needs it.
        with suppress(ConfigError):
            list(ADAPTERS.values())
        if isinstance(classifier := self.orchestrator.classifier, LocalClassifier):
            classifier.load()

    def install(self, app: Holdfast) -> None:
        """Declare the job type and the orchestrator's run."""
        self.hf = hf = app
        directory, classifier, detector = self._given
        # Load the language registry now: a failure after storing a message would leave it without a
        # locale.
        normalize(DEFAULT)
        self.routes = Routes(hf.settings)
        self.detector = detector or _local_detector()
        self.directory = directory or SqlDirectory(hf)
        # Only the orchestrator may enqueue rewrites; other code submits messages.
        producer = Producer("rewrites.submit(…)")
        self.orchestrator = Orchestrator(
            hf,
            producer=producer,
            directory=self.directory,
            classifier=classifier or self._classifier(),
            routes=self.routes,
        )
        self._declare(producer)

    @classmethod
    def for_app(cls, hf: Holdfast) -> Rewrites:
        """Return the instance that is enabled on *hf*, or one with the defaults."""
        return hf.extension(cls)

    def _classifier(self) -> Classifier:
        route = self.routes.classifier
        if self.hf.settings.rewrite.classifier == "local" or route is None:
            return LocalClassifier(self.detector)
        return ModelClassifier(self.hf.batch.accounts, route, service=lambda: self.hf.batch.service)

    def _declare(self, producer: Producer) -> None:
        hf = self.hf
        hf.batch(
            JOB_TYPE,
            queue=DEFAULT_QUEUE,
            max_attempts=MAX_ATTEMPTS,
            retry=RetryPolicy.by_run(),
            # A draft that is stored at once is written before its output.
            stores=(DRAFTS.insert_drafts, SQL.insert_outputs),
            stage=STAGE,
            producer=producer,
            cancel_role=Role.ADMIN,
            replay_refusal=NEVER_REPLAYED,
        )(RewriteWork(self.detector, hf.clock))
        hf.batch(
            JUDGE_TYPE,
            queue=DEFAULT_QUEUE,
            max_attempts=JUDGE_ATTEMPTS,
            retry=RetryPolicy.by_run(),
            stores=(DRAFTS.settle_drafts, SQL.insert_outputs),
            stage=JUDGE_STAGE,
            producer=producer,
            cancel_role=Role.ADMIN,
            replay_refusal=NEVER_JUDGED_TWICE,
        )(JudgeWork())
        tasks = hf.registry.tasks
        tasks[ORCHESTRATOR_RUN] = RewriteTask(self)
        tasks[BATCH_SUBMITTER] = tasks[SUBMITTER]
        tasks[BATCH_COLLECTOR] = tasks[COLLECTOR]

    # -- submitting

    def submit(self, submission: Submission) -> Answer:
        """Submit one message. It is queued, or failed without a reason."""
        return self.orchestrator.submit(submission)

    def submit_many(self, submissions: Iterable[Submission]) -> list[Answer]:
        """Submit any number of messages; each has its own answer."""
        return self.orchestrator.submit_many(submissions)

    # -- for senders and recipients

    def find_sent(self, rewrite_request_id: str, *, home_id: str, user_id: str) -> show.Sent:
        """Return a rewrite for its sender, with the text once it is revealed."""
        return show.find_sent(self.hf.store, rewrite_request_id, home_id=home_id, user_id=user_id)

    def list_sent(
        self, *, home_id: str, user_id: str, limit: int = 50, before: str = show.NEWEST
    ) -> list[show.Sent]:
        """List the rewrites that a member of a home sent, newest first."""
        return show.list_sent(
            self.hf.store, home_id=home_id, user_id=user_id, limit=limit, before=before
        )

    def list_received(
        self, *, home_id: str, user_id: str, limit: int = 50, before: str = show.NEWEST
    ) -> list[show.Received]:
        """List the rewrites for a member of a home, newest first."""
        return show.list_received(
            self.hf.store, home_id=home_id, user_id=user_id, limit=limit, before=before
        )

    # -- for operators

    def operate(
        self, *, actor: Actor | str, role: Role | str, org_id: str | None = None
    ) -> RewriteDesk:
        """Return the operator API of rewrites, for one home or for all."""
        context = self.hf.operate(actor=actor, role=role, org_id=org_id).context
        return RewriteDesk(context, self.detector)


def _local_detector() -> Detector:
    """Return the local detector, and check that it is installed."""
    found = local_detector()
    found.check_extra()
    return found


class RewriteTask(OrchestratorTask):
    """The orchestrator's run of one application's rewrites."""

    def __init__(self, rewrites: Rewrites) -> None:
        self.rewrites = rewrites
        orchestrator = rewrites.orchestrator
        super().__init__(
            rewrites.hf,
            resume=orchestrator.resume_once,
            count_unfinished=orchestrator.count_unfinished,
            judge=orchestrator.judge_once,
        )


@checked(InvalidRewrite)
class RewriteDesk:
    """The complaint rewrite for operators: records without text, held rewrites, erasure, export."""

    def __init__(self, context: OperatorContext, detector: Detector | None = None) -> None:
        self._context = context
        self._detector = detector

    @property
    def held(self) -> HeldRewrites:
        """The rewrites that wait for a person."""
        return HeldRewrites(self._context, self._detector)

    def show(self, rewrite_request_id: str) -> dict[str, Any]:
        """Everything on record of a rewrite, with its events and without any text."""
        return show.find_record(self._context, rewrite_request_id)

    def erase(
        self, *, user_id: str | None = None, home_id: str | None = None, reason: str
    ) -> erase.Erased:
        """Erase what there is of a person, in one home or in all, or of a whole home."""
        return erase.erase_data(self._context, user_id=user_id, home_id=home_id, reason=reason)

    def export(
        self, *, user_id: str | None = None, home_id: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Documents of all that is stored of a person or a home."""
        return export.export_data(self._context, user_id=user_id, home_id=home_id)
