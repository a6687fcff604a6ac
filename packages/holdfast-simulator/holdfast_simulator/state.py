"""The simulated state: files and batches of all providers, one clock, and the bill.

To add a provider, write a class with the members of :class:`exchange.Router` whose constructor
takes only the state (``OpenAI(state)``), and add it to routers.py. Each route names an
:class:`exchange.Op` and calls the methods below. A route that cannot serve a request raises
:class:`exchange.Refused`, which ``Router.refuse`` renders in the provider's envelope. The
simulation is advanced and the lock is held before a route is called, so a route only reads and
writes. A route that returns results answers with ``Answer(pieces=file.blob.pieces,
size=file.size)``.

For faults, a router must render batches from :class:`models.Shown`, as returned by ``find_batch``
and ``list_batches``, and paginate listings with ``page``.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from holdfast_simulator.blob import Blob
from holdfast_simulator.clock import Clock
from holdfast_simulator.exchange import Call, Endpoint, Op, Refused, Router, Why
from holdfast_simulator.faults import Faults, Moment
from holdfast_simulator.judge import is_judging
from holdfast_simulator.leaks import Leaks
from holdfast_simulator.ledger import Charge, Ledger
from holdfast_simulator.malformed import spoil
from holdfast_simulator.messages import Messages
from holdfast_simulator.models import Batch, BatchPage, File, Pace, Shown, Stage
from holdfast_simulator.process import advance
from holdfast_simulator.prompt import Prompt, Responder, Said, completion_of, fill_in, respond
from holdfast_simulator.show import cut, show


class SimulatorState:
    """The state of all providers, by account. An account is a router and a credential."""

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 0,
        pace: Pace | None = None,
        responder: Responder = respond,
        unit_of: Callable[[Prompt], str] | None = None,
    ) -> None:
        self.clock = clock
        self.seed = seed
        self.pace = pace or Pace()
        self.responder = responder
        # Re-entrant: a responder or a test may read the state during a call.
        self.lock = threading.RLock()
        self.faults = Faults(seed, lambda: [*self.endpoints, "smtp"])
        self.leaks = Leaks()
        self.ledger = Ledger(self.pass_time)
        self.unit_of = unit_of or self._unit_of
        self.messages = Messages(lambda: self.now, self.pass_time, self.faults)
        self.routers: dict[str, Router] = {}
        # Message channels over HTTP.
        self.carriers: dict[str, Endpoint] = {}
        self.files: dict[str, File] = {}
        self.batches: dict[str, Batch] = {}
        self._made = 0
        self._later: list[tuple[datetime, int, Callable[[], object]]] = []
        self._at: datetime | None = None

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Return all endpoints by name."""
        return {**self.routers, **self.carriers}

    # -- time and names

    @property
    def now(self) -> datetime:
        return self._at or self.clock.now()

    def new_id(self, prefix: str = "", length: int = 32) -> str:
        """Return a unique id. The same seed gives the same ids in the same order."""
        self._made += 1
        return prefix + self.digest(f"id {self._made}")[:length]

    def digest(self, text: str) -> str:
        """Return 64 hex characters derived from *text* and the seed."""
        return hashlib.sha256(f"{self.seed} {text}".encode()).hexdigest()

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Run an action after a delay, such as a request that was delayed in transit."""
        with self.lock:
            self._made += 1
            heapq.heappush(self._later, (self._after(seconds), self._made, action))

    def _after(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def pass_time(self) -> None:
        """Advance everything to the current time. Called before every request."""
        with self.lock:
            until = self.clock.now()
            while self._later and self._later[0][0] <= until:
                at, _, action = heapq.heappop(self._later)
                self._advance_all(at)
                # A late request that is refused has no client to answer.
                with self.standing_at(at), suppress(Refused):
                    action()
            self._advance_all(until)

    @contextmanager
    def standing_at(self, at: datetime) -> Iterator[None]:
        """Run the block with *at* as the current time."""
        before, self._at = self._at, at
        try:
            yield
        finally:
            self._at = before

    def _advance_all(self, until: datetime) -> None:
        for batch in list(self.batches.values()):
            if not batch.stage.is_over:
                advance(self, batch, until)

    def reset(self) -> None:
        """Clear everything but the time."""
        with self.lock:
            self.files.clear()
            self.batches.clear()
            self._later.clear()
            self._made = 0
            self.faults.clear()
            self.ledger.clear()
            self.messages.clear()
            self.leaks.clear()

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values, without texts."""
        with self.lock:
            self.pass_time()
            return {
                "now": self.now.isoformat(),
                "files": [
                    {"id": file.id, "account": file.account, "name": file.name, "bytes": file.size}
                    for file in self.files.values()
                ],
                "batches": [
                    {
                        "id": batch.id,
                        "account": batch.account,
                        "stage": batch.stage,
                        "metadata": batch.metadata,
                        "total": batch.total,
                        "succeeded": batch.succeeded,
                        "failed": batch.failed,
                        "not_run": batch.not_run,
                        "faults": sorted(batch.faults),
                    }
                    for batch in self.batches.values()
                ],
                "waiting": len(self._later),
            }

    # -- files

    def add_file(
        self,
        account: str,
        name: str,
        blob: Blob,
        *,
        purpose: str = "batch",
        file_id: str | None = None,
        expires_at: datetime | None = None,
        **extra: Any,
    ) -> File:
        """Store a file. Raises Refused(ALREADY_EXISTS) if its *file_id* is taken.

        If *file_id* is None, an id in OpenAI's format is generated.
        """
        file_id = file_id or self.new_id("file-", 22)
        if self._live(account, file_id) is not None:
            raise Refused(Why.ALREADY_EXISTS, f"File {file_id} already exists.")
        file = File(file_id, account, name, purpose, blob, self.now, expires_at, extra=extra)
        provider = account.partition(":")[0]
        for rule in self.faults.take(Moment.UPLOADED, provider, [name, file_id]):
            file.visible_at = self._after(rule.options["seconds"])
        self.leaks.forbid("file name", name, file_id)
        self.files[f"{account} {file_id}"] = file
        return file

    def find_file(self, account: str, file_id: str) -> File:
        """Return a file of the account, or raise Refused(NOT_FOUND)."""
        file = self._live(account, file_id)
        if file is None or (file.visible_at is not None and file.visible_at > self.now):
            raise Refused(Why.NOT_FOUND, f"No such File object: {file_id}", param="id")
        return file

    def has_file(self, account: str, file_id: str) -> bool:
        """Return whether the file exists, visible or not."""
        return self._live(account, file_id) is not None

    def list_files(self, account: str) -> list[File]:
        """List the files of the account, newest first."""
        return [
            file for file in reversed(self.files.values()) if self._live(account, file.id) is file
        ]

    def delete_file(self, account: str, file_id: str) -> None:
        """Delete a file, or raise Refused(NOT_FOUND)."""
        self.find_file(account, file_id)
        del self.files[f"{account} {file_id}"]

    def _live(self, account: str, file_id: str) -> File | None:
        file = self.files.get(f"{account} {file_id}")
        if file is None or (file.expires_at is not None and file.expires_at <= self.now):
            return None
        return file

    # -- batches

    def create_batch(
        self,
        router: Router,
        account: str,
        source: File | Blob,
        *,
        batch_id: str,
        model: str = "",
        endpoint: str = "",
        name: str = "",
        metadata: Mapping[str, str] | None = None,
        window: timedelta | None = None,
        **extra: Any,
    ) -> Shown:
        """Create a batch from an uploaded file or from inline lines.

        *window* is given if the client may choose it.
        """
        lasts = window or router.batch_rules.window
        batch = Batch(
            batch_id,
            router.name,
            account,
            model,
            self.now,
            source if isinstance(source, Blob) else source.blob,
            endpoint,
            source.id if isinstance(source, File) else None,
            name,
            dict(metadata or {}),
            None if lasts is None else self.now + lasts,
            extra,
        )
        batch.times[Stage.VALIDATING] = self.now
        labels = [name, *batch.metadata.values()]
        if isinstance(source, File):
            labels.append(source.name)
        for rule in self.faults.take(Moment.CREATED, router.name, labels, op=Op.CREATE):
            batch.faults[rule.name] = dict(rule.options)
        self.leaks.forbid("batch", name, *batch.metadata, *batch.metadata.values())
        self.batches[f"{account} {batch_id}"] = batch
        if "file_deleted_before_validation" in batch.faults and isinstance(source, File):
            del self.files[f"{account} {source.id}"]
        return show(batch)

    def find_batch(self, account: str, batch_id: str) -> Shown:
        """Return the client's view of a batch, or raise Refused(NOT_FOUND)."""
        batch = self._batch(account, batch_id)
        vanishes = batch.faults.get("batch_vanishes")
        if vanishes is not None and batch.stage.is_over and vanishes["calls"] != 0:
            if vanishes["calls"] is not None:
                vanishes["calls"] -= 1
            raise _no_batch(batch_id)
        return show(batch, asked_for=True)

    def list_batches(self, account: str) -> list[Shown]:
        """List the batches of the account as clients see them, newest first."""
        provider = account.partition(":")[0]
        rules = self.faults.take(Moment.LISTED, provider, [])
        faults = {rule.name: rule.options for rule in rules}
        if "foreign_batches" in faults:
            self._add_foreign(provider, account, **faults["foreign_batches"])
        seen = [
            batch
            for batch in self.batches.values()
            if batch.account == account and self._is_listed(batch)
        ]
        seen.reverse()
        seen.sort(key=lambda batch: batch.created_at, reverse=True)
        return [show(batch, faults) for batch in seen]

    def page(
        self,
        account: str,
        listed: Iterable[Shown],
        limit: int,
        *,
        after: str | None = None,
        before: str | None = None,
    ) -> BatchPage:
        """Return the page after the batch *after*, or before the batch *before*."""
        provider = account.partition(":")[0]
        rules = self.faults.take(Moment.PAGED, provider, [])
        return cut(list(listed), limit, after, before, {rule.name: rule.options for rule in rules})

    def cancel_batch(self, account: str, batch_id: str) -> Shown:
        """Cancel a batch; one that has ended does not change. Raises Refused(NOT_FOUND).

        Routers whose provider rejects canceling an ended batch check the batch first.
        """
        batch = self._batch(account, batch_id)
        if not batch.stage.is_over and batch.stage is not Stage.CANCELING:
            if "cancel_races_completion" in batch.faults:
                shown = replace(show(batch), stage=Stage.CANCELING)
                batch.faults["cancel_races_completion"]["finish"] = True
                advance(self, batch, self.now)
                return shown
            batch.stage = Stage.CANCELING
            batch.times[Stage.CANCELING] = self.now
        return show(batch)

    def delete_batch(self, account: str, batch_id: str) -> None:
        """Delete a batch and its results, where supported. Raises Refused(NOT_FOUND)."""
        batch = self._batch(account, batch_id)
        for file in (batch.output, batch.errors):
            if file is not None:
                self.files.pop(f"{account} {file.id}", None)
        del self.batches[f"{account} {batch_id}"]

    def _batch(self, account: str, batch_id: str) -> Batch:
        batch = self.batches.get(f"{account} {batch_id}")
        if batch is None:
            raise _no_batch(batch_id)
        return batch

    def _is_listed(self, batch: Batch) -> bool:
        lag = batch.faults.get("list_lag")
        return lag is None or batch.created_at + timedelta(seconds=lag["seconds"]) <= self.now

    def _add_foreign(self, provider: str, account: str, count: int, items: int) -> None:
        """Add batches of another user of the account."""
        if any(batch.is_foreign and batch.account == account for batch in self.batches.values()):
            return
        for number in range(count):
            blob = Blob(b"{}\n" * items)
            batch_id = self.new_id("batch_")
            batch = Batch(batch_id, provider, account, "another-model", self.now, blob)
            batch.metadata = {"made_by": "somebody else", "number": str(number)}
            batch.starts = blob.line_starts()
            batch.done = items
            batch.is_foreign = True
            batch.stage = Stage.COMPLETED
            batch.times = {Stage.VALIDATING: self.now, Stage.COMPLETED: self.now}
            self.batches[f"{account} {batch_id}"] = batch

    # -- answers

    def answer(
        self, prompt: Prompt, account: str, spoiled: Callable[[Said], Said] | None = None
    ) -> Said:
        """Execute and bill one request; the tokens and the model are filled in.

        *spoiled* is the fault to apply to the answer.
        """
        self.leaks.scan(prompt)
        answered = completion_of(self.responder(prompt), prompt)
        if spoiled is not None:
            answered = spoiled(answered)
        answered = fill_in(prompt, answered)
        if answered.is_billed:
            self.ledger.charge(
                Charge.for_prompt(prompt, answered, account, self.unit_of(prompt), self.now)
            )
        return answered

    def direct(self, router: Router, call: Call, model: str, body: Mapping[str, Any]) -> Said:
        """Answer a direct call with the body *body*; a failed call has its error set."""
        prompt = router.prompt(model, body)
        rules = self.faults.take(Moment.CREATED, router.name, [prompt.text], op=Op.CALL)

        def spoiled(answered: Said) -> Said:
            for rule in rules:
                answered = spoil(rule.name, rule.options, prompt, answered)
            return answered

        return self.answer(prompt, call.account, spoiled)

    def _unit_of(self, prompt: Prompt) -> str:
        """Return the default unit. The verdict on a text is paid for beside the text itself."""
        unit = self._unit(prompt)
        return f"verdict:{unit}" if is_judging(prompt) else unit

    def _unit(self, prompt: Prompt) -> str:
        """Return the billing unit: the person whose canary is in the text, or the item."""
        return self.leaks.owner(prompt.text) or prompt.custom_id or self.new_id("call_")


def _no_batch(batch_id: str) -> Refused:
    return Refused(Why.NOT_FOUND, f"No batch found with id '{batch_id}'.", param="id")
