"""Views of batches and pagination of listings, with faults applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast_simulator.models import Batch, BatchPage, File, Shown, Stage

Faulty = Mapping[str, Mapping[str, Any]]


def show(batch: Batch, listing: Faulty | None = None, *, asked_for: bool = False) -> Shown:
    """Return the client's view of a batch, fetched by id or listed, with faults applied."""
    faults = batch.faults
    stage = batch.stage
    strange = None
    if "unknown_status" in faults and stage in (Stage.RUNNING, Stage.FINALIZING):
        strange = str(faults["unknown_status"]["status"])
    if asked_for and stage.is_over and _goes_back(batch):
        stage = Stage.RUNNING
    off = int(faults["counts_disagree"]["by"]) if "counts_disagree" in faults else 0
    is_early = stage is Stage.VALIDATING
    return Shown(
        batch,
        stage,
        strange,
        _name(batch, listing or {}),
        _metadata(batch, listing or {}),
        0 if is_early else batch.total,
        max(0, batch.succeeded - off),
        batch.failed,
        batch.not_run,
        _file_id(batch.output, batch, stage),
        _file_id(batch.errors, batch, stage),
        tuple(batch.problems) if stage.is_over else (),
    )


def _goes_back(batch: Batch) -> bool:
    """Return whether this view goes back: the first shows the end, the next ones do not."""
    fault = batch.faults.get("status_regresses")
    if fault is None:
        return False
    looks = int(fault.get("looks", 0)) + 1
    fault["looks"] = looks
    return 1 < looks <= 1 + int(fault["calls"])


def _file_id(file: File | None, batch: Batch, stage: Stage) -> str | None:
    if file is not None and stage.is_over:
        return file.id
    return "" if "empty_string_ids" in batch.faults else None


def _name(batch: Batch, listing: Faulty) -> str:
    if "list_without_metadata" in listing:
        return ""
    if "metadata_altered" in listing:
        return batch.name[: int(listing["metadata_altered"]["length"])]
    return batch.name


def _metadata(batch: Batch, listing: Faulty) -> Mapping[str, str] | None:
    if "list_without_metadata" in listing:
        return None
    if "metadata_altered" in listing:
        length = int(listing["metadata_altered"]["length"])
        return {name: value[:length] for name, value in batch.metadata.items()}
    return dict(batch.metadata)


def cut(
    listed: list[Shown], limit: int, after: str | None, before: str | None, faults: Faulty
) -> BatchPage:
    """Return one page of a listing."""
    ids = [shown.batch.id for shown in listed]
    start = ids.index(after) + 1 if after in ids else 0
    stop = ids.index(before) if before in ids else len(listed)
    # The page directly before the batch, not the first page.
    if before in ids and after is None:
        start = max(0, stop - limit)
    part = listed[start:stop]
    page, has_more = part[:limit], len(part) > limit
    match faults.get("list_page_shifts", {}).get("variant"):
        case "repeat" if page:
            page = [listed[start - 1] if start else page[0], *page]
        case "skip" if page:
            page = page[1:]
        case _:
            pass
    if "has_more_wrong" in faults:
        has_more = not has_more
    return BatchPage(tuple(page), has_more)
