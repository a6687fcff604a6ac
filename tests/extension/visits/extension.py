"""A small extension with one of everything: it counts the visitors of a tenant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.config.run import RunSettings
from holdfast.config.setting_type import Cadence, Section, setting, whole
from holdfast.engine.periodic_task import PeriodicTask, RunBudget
from holdfast.engine.worker.housekeeping import Chore
from holdfast.errors import Permanent
from holdfast.event import Event, ExtensionEvent, Subscriber
from holdfast.extension import Extension
from holdfast.operate.doctor.finding import CheckContext, Finding, Severity
from holdfast.operate.doctor.finding import DoctorCheck as DoctorCheck
from holdfast.operate.verify.check import Check, selects
from holdfast.store import Component, Statements

if TYPE_CHECKING:
    from holdfast import Holdfast

SQL = Statements("tests.extension.visits", "visits.sql")


class NotWelcome(Permanent):
    """A visitor that is not let in."""

    error_class = "NOT_WELCOME"


@dataclass(frozen=True, slots=True)
class VisitSettings(Section):
    most: int = setting(10, whole(1, 100))


@dataclass(frozen=True, slots=True)
class Visited(ExtensionEvent):
    visitor: str

    @property
    def log_name(self) -> str:
        return "visit.counted"


class ForgetVisits:
    eligible_statuses: Sequence[str] = ()

    def __init__(self, app: Holdfast) -> None:
        self.app = app

    def count_pending(self, budget: RunBudget) -> int:
        return int(self.app.store.read(lambda tx: tx.one(SQL.count_visits))["visits"])

    def perform(self, budget: RunBudget) -> None:
        budget.counts.claimed += self.app.store.write(lambda tx: tx.affected(SQL.forget_visits))


def check_crowd(context: CheckContext) -> Iterator[Finding]:
    (row,) = context.many(SQL.count_visits)
    if row["visits"] > context.settings.visits.most:
        yield Finding("visits", Severity.WARNING, "There are too many visitors.", "Wait.")


class Visits(Extension):
    name = "visits"
    settings = {"visits": VisitSettings}
    runs = {
        "forget_visits": RunSettings(
            queues=("q:maintenance",), schedule=Cadence(every=timedelta(hours=1))
        )
    }
    component = Component("visits", "tests.extension.visits", needs={"core": 15})
    error_classes = (NotWelcome,)
    commands = {"visits": "tests.extension.visits.command:visits"}

    def install(self, app: Holdfast) -> None:
        self.app = app
        app.job("visit.count")(self._count)

    def add(self, visitor: str, *, org_id: str) -> None:
        self.app.store.write(lambda tx: tx.affected(SQL.add_visit, org_id=org_id, visitor=visitor))
        self.app.events.emit(Visited(visitor))

    def _count(self, job: Any, payload: dict[str, Any]) -> None:
        raise NotWelcome("Nobody is let in.")

    def verify_checks(self) -> Sequence[Check]:
        return (Check("V1", "Every visitor has a name.", selects(SQL.find_unnamed)),)

    def doctor_checks(self) -> Mapping[str, DoctorCheck]:
        return {"visits": check_crowd}

    def metrics(self, registry: Any, labels: Any) -> Subscriber | None:
        from prometheus_client import Counter

        counter = Counter("holdfast_visits_total", "Visitors.", registry=registry)

        def count(event: Event) -> None:
            if isinstance(event, Visited):
                counter.inc()

        return count

    def tasks(self, app: Holdfast) -> Mapping[str, PeriodicTask]:
        return {"forget_visits": ForgetVisits(app)}

    def maintenance(self, app: Holdfast) -> Sequence[Chore]:
        return [Chore("visits", 60.0, lambda: None)]
