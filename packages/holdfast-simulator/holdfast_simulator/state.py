"""The simulated state: the files and batches of every provider, one clock, and what is billed.

To add a provider, write a class with the members of :class:`exchange.Router`, made with the
state alone (``OpenAI(state)``), and add it to routers.py. Its routes name an :class:`exchange.Op`
each and call the methods below; a route that cannot do what it was asked raises
:class:`exchange.Refused`, and ``Router.refuse`` puts that into the provider's envelope. Time has
passed before a route is called and the state's lock is held, so a route only reads and writes. A
route that returns results answers with ``Answer(pieces=file.blob.pieces, size=file.size)``.

For faults, a router must do two things: render batches from :class:`models.Shown`, as
``find_batch`` and ``list_batches`` return it, and cut listings with ``page``.
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
from holdfast_simulator.leaks import Leaks
from holdfast_simulator.ledger import Charge, Ledger
from holdfast_simulator.malformed import spoil
from holdfast_simulator.messages import Messages
from holdfast_simulator.models import Batch, BatchPage, File, Pace, Shown, Stage
from holdfast_simulator.process import advance
from holdfast_simulator.prompt import Prompt, Responder, Said, completion_of, fill_in, respond
from holdfast_simulator.show import cut, show


class SimulatorState:
    """Everything that providers hold, by account. An account is a router and a credential."""

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
        # Re-entrant: a responder or a test may look at the state while it is asked something.
        self.lock = threading.RLock()
        self.faults = Faults(seed, lambda: [*self.endpoints, "smtp"])
        self.leaks = Leaks()
        self.ledger = Ledger(self.pass_time)
        self.unit_of = unit_of or self._unit
        self.messages = Messages(lambda: self.now, self.pass_time, self.faults)
        self.routers: dict[str, Router] = {}
        # Who carries messages, over HTTP.
        self.carriers: dict[str, Endpoint] = {}
        self.files: dict[str, File] = {}
        self.batches: dict[str, Batch] = {}
        self._made = 0
        self._later: list[tuple[datetime, int, Callable[[], object]]] = []
        self._at: datetime | None = None

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Everybody that is mounted, by name."""
        return {**self.routers, **self.carriers}

    # -- time and names

    @property
    def now(self) -> datetime:
        return self._at or self.clock.now()

    def new_id(self, prefix: str = "", length: int = 32) -> str:
        """A name that nothing else has; the same ones in the same order for the same seed."""
        self._made += 1
        return prefix + self.digest(f"id {self._made}")[:length]

    def digest(self, text: str) -> str:
        """64 hex characters that depend on *text* and the seed: a number drawn for it."""
        return hashlib.sha256(f"{self.seed} {text}".encode()).hexdigest()

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something when so much time has passed: a request that was stuck on its way."""
        with self.lock:
            self._made += 1
            heapq.heappush(self._later, (self._after(seconds), self._made, action))

    def _after(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def pass_time(self) -> None:
        """Bring everything to where it is by the clock; called before every request."""
        with self.lock:
            until = self.clock.now()
            while self._later and self._later[0][0] <= until:
                at, _, action = heapq.heappop(self._later)
                self._advance_all(at)
                # A request that arrives too late to be of use is refused to nobody.
                with self.standing_at(at), suppress(Refused):
                    action()
            self._advance_all(until)

    @contextmanager
    def standing_at(self, at: datetime) -> Iterator[None]:
        """Whatever happens in here happened at *at*, however late one looks."""
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
        """Forget everything but the time."""
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
        """What there is, as plain values, without anybody's text."""
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
        """Keep a file; Refused(ALREADY_EXISTS) if its *file_id* is taken.

        A None for *file_id* makes one in OpenAI's style.
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
        """A file of the account; Refused(NOT_FOUND)."""
        file = self._live(account, file_id)
        if file is None or (file.visible_at is not None and file.visible_at > self.now):
            raise Refused(Why.NOT_FOUND, f"No such File object: {file_id}", param="id")
        return file

    def has_file(self, account: str, file_id: str) -> bool:
        """Whether it is there, visible already or not."""
        return self._live(account, file_id) is not None

    def list_files(self, account: str) -> list[File]:
        """The files of the account, newest first."""
        return [
            file for file in reversed(self.files.values()) if self._live(account, file.id) is file
        ]

    def delete_file(self, account: str, file_id: str) -> None:
        """Delete a file; Refused(NOT_FOUND)."""
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
        """Begin a batch over an uploaded file or, where it came with the create, over its lines.

        *window* is given where the client may choose it.
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
        """A batch of the account as it is shown; Refused(NOT_FOUND)."""
        batch = self._batch(account, batch_id)
        vanishes = batch.faults.get("batch_vanishes")
        if vanishes is not None and batch.stage.is_over and vanishes["calls"] != 0:
            if vanishes["calls"] is not None:
                vanishes["calls"] -= 1
            raise _no_batch(batch_id)
        return show(batch, asked_for=True)

    def list_batches(self, account: str) -> list[Shown]:
        """The batches of the account as a listing shows them, newest first."""
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
        """The part of a listing behind the batch *after*, or in front of *before*."""
        provider = account.partition(":")[0]
        rules = self.faults.take(Moment.PAGED, provider, [])
        return cut(list(listed), limit, after, before, {rule.name: rule.options for rule in rules})

    def cancel_batch(self, account: str, batch_id: str) -> Shown:
        """Ask for a batch's end; one that is over stays as it is. Refused(NOT_FOUND).

        Whether canceling one that is over is an error is the provider's matter: look before.
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
        """Delete a batch and what it made, where a provider can. Refused(NOT_FOUND)."""
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
        """Batches of a neighbour who shares the account; they are there from then on."""
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
        """Have one request executed, and bill it; the tokens and the model are filled in.

        *spoiled* is what a fault makes of the answer.
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
        """The answer to a direct call whose body is *body*; a failed one has its error set."""
        prompt = router.prompt(model, body)
        rules = self.faults.take(Moment.CREATED, router.name, [prompt.text], op=Op.CALL)

        def spoiled(answered: Said) -> Said:
            for rule in rules:
                answered = spoil(rule.name, rule.options, prompt, answered)
            return answered

        return self.answer(prompt, call.account, spoiled)

    def _unit(self, prompt: Prompt) -> str:
        """What must be paid for once: the person whose canary is in the text, or the item."""
        return self.leaks.owner(prompt.text) or prompt.custom_id or self.new_id("call_")


def _no_batch(batch_id: str) -> Refused:
    return Refused(Why.NOT_FOUND, f"No batch found with id '{batch_id}'.", param="id")
