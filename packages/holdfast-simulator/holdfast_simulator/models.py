"""Files, batches and items of the simulated providers, and the view of a batch."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from holdfast_simulator.blob import Blob


class Stage(StrEnum):
    """The progress of a batch. Providers with fewer statuses map several stages to one."""

    VALIDATING = "validating"
    RUNNING = "running"
    FINALIZING = "finalizing"
    CANCELING = "canceling"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELED = "canceled"

    @property
    def is_over(self) -> bool:
        return self in (Stage.COMPLETED, Stage.FAILED, Stage.EXPIRED, Stage.CANCELED)


@dataclass(frozen=True, slots=True)
class Pace:
    """The duration of the stages of a batch, in seconds of the simulator's clock."""

    validating: float = 5.0
    running: float = 60.0
    finalizing: float = 5.0
    canceling: float = 5.0


@dataclass(frozen=True, slots=True)
class BatchRules:
    """How a provider treats batches."""

    max_items: int = 50_000
    max_bytes: int = 200 * 1024 * 1024
    # The batch expires after this time; None: it runs until it is done.
    window: timedelta | None = timedelta(hours=24)
    # An expired batch keeps its finished results.
    keeps_partial: bool = True
    # Items that were not run have a line in the results.
    tells_not_run: bool = True
    # Failed items are in a separate file.
    has_error_file: bool = True
    # The error file exists even if it is empty.
    always_error_file: bool = False
    # Bad lines fail the whole batch; otherwise each fails alone when it is executed.
    validates: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the input of a batch is rejected; line None means the whole input."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BadLine(Exception):
    """Raised by Router.read."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a batch's input."""

    custom_id: str
    model: str
    body: Mapping[str, Any]


@dataclass(slots=True)
class File:
    """A file at a provider, uploaded or written by a batch."""

    id: str
    account: str
    name: str
    purpose: str
    blob: Blob
    created_at: datetime
    expires_at: datetime | None = None
    # Requests do not find the file before this time.
    visible_at: datetime | None = None
    batch_id: str | None = None
    # Other stored values: MIME type, display name …
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.blob.size


@dataclass(slots=True)
class Batch:
    """The real state of a batch; clients see :class:`Shown`."""

    id: str
    provider: str
    account: str
    model: str
    created_at: datetime
    input: Blob
    endpoint: str = ""
    # None if the input was sent inline.
    file_id: str | None = None
    name: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    expires_at: datetime | None = None
    # Other values of the create request that the provider returns.
    extra: dict[str, Any] = field(default_factory=dict)
    stage: Stage = Stage.VALIDATING
    # When each stage was entered.
    times: dict[Stage, datetime] = field(default_factory=dict)
    starts: array[int] = field(default_factory=lambda: array("Q"))
    # Items executed, items that failed, and items that ended without being executed.
    done: int = 0
    failed: int = 0
    not_run: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    problems: list[Problem] = field(default_factory=list)
    output: File | None = None
    errors: File | None = None
    # The faults of this batch with their options, and the items that they affect.
    faults: dict[str, dict[str, Any]] = field(default_factory=dict)
    picks: dict[str, Any] = field(default_factory=dict)
    # Result lines before they are published, and the item of each line of the first file.
    written: Blob = field(default_factory=Blob)
    written_errors: Blob = field(default_factory=Blob)
    order: array[int] = field(default_factory=lambda: array("Q"))
    # Belongs to another user of the same account.
    is_foreign: bool = False

    @property
    def total(self) -> int:
        return max(0, len(self.starts) - 1)

    @property
    def succeeded(self) -> int:
        return self.done - self.failed

    def line(self, index: int) -> bytes:
        """Return the bytes of one input line, without its newline."""
        start, stop = self.starts[index], self.starts[index + 1]
        return self.input.read(start, stop - start).rstrip(b"\r\n")


@dataclass(frozen=True, slots=True)
class Shown:
    """A batch as a client sees it. Routers render only this, not the batch's state."""

    batch: Batch
    stage: Stage
    # An unknown status word, rendered unchanged.
    strange_status: str | None
    # The client's name for the batch, from its display name or metadata; faults may alter it.
    name: str
    metadata: Mapping[str, str] | None
    total: int
    succeeded: int
    failed: int
    # Items canceled or expired before they were executed.
    not_run: int
    # None: no output file. "": no output file, rendered as an empty id.
    output_id: str | None
    error_id: str | None
    problems: tuple[Problem, ...]

    @property
    def pending(self) -> int:
        return max(0, self.total - self.succeeded - self.failed - self.not_run)

    def entered(self, stage: Stage) -> datetime | None:
        """Return when a stage was entered, according to what is shown."""
        at = self.batch.times.get(stage)
        return None if at is not None and not self._reached(stage) else at

    def _reached(self, stage: Stage) -> bool:
        order = (Stage.VALIDATING, Stage.RUNNING, Stage.FINALIZING)
        if self.stage in order:
            return stage in order[: order.index(self.stage) + 1]
        return not stage.is_over or stage is self.stage


@dataclass(frozen=True, slots=True)
class BatchPage:
    """One page of a listing."""

    batches: tuple[Shown, ...]
    has_more: bool
