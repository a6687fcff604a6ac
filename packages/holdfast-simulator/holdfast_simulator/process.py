"""Batch processing as time passes: validate, execute item by item, publish the results."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast_simulator.blob import Blob
from holdfast_simulator.fault_player import apply_output_faults
from holdfast_simulator.malformed import spoil
from holdfast_simulator.models import BadLine, Batch, File, Item, Problem, Stage
from holdfast_simulator.prompt import ItemError, NotRun, Said

if TYPE_CHECKING:
    from holdfast_simulator.exchange import Router
    from holdfast_simulator.state import SimulatorState

# Providers also stop counting at some point.
MOST_PROBLEMS = 100


def advance(state: SimulatorState, batch: Batch, until: datetime) -> None:
    """Advance one batch to its state at *until*, through every stage."""
    while not batch.stage.is_over:
        before = batch.stage
        match before:
            case Stage.VALIDATING:
                _validating(state, batch, until)
            case Stage.RUNNING:
                _running(state, batch, until)
            case Stage.FINALIZING:
                _finalizing(state, batch, until)
            case _:
                _canceling(state, batch, until)
        if batch.stage is before:
            return


def _enter(batch: Batch, stage: Stage, at: datetime) -> None:
    batch.stage = stage
    batch.times[stage] = at


def _ends(batch: Batch, seconds: float) -> datetime:
    """Return when the current stage ends."""
    return batch.times[batch.stage] + timedelta(seconds=seconds)


def _expires(batch: Batch, until: datetime, instead_of: datetime) -> bool:
    """Return whether the window ends before the stage does and is over by now."""
    return (
        batch.expires_at is not None
        and batch.expires_at <= until
        and batch.expires_at <= instead_of
    )


# -- validating


def _validating(state: SimulatorState, batch: Batch, until: datetime) -> None:
    end = _ends(batch, state.pace.validating)
    if "stuck_validating" in batch.faults:
        end = datetime.max.replace(tzinfo=until.tzinfo)
    if _expires(batch, until, end):
        assert batch.expires_at is not None
        batch.starts = batch.input.line_starts()
        _finish(state, batch, Stage.EXPIRED, batch.expires_at)
    elif end <= until:
        # Evaluate at the end of the stage: the input may have been deleted since.
        with state.standing_at(end):
            batch.problems = _problems(state, batch)
        if batch.problems:
            _enter(batch, Stage.FAILED, end)
        else:
            batch.picks = _picks(state, batch)
            _enter(batch, Stage.RUNNING, end)


def _problems(state: SimulatorState, batch: Batch) -> list[Problem]:
    """Return the problems of the input as the provider reports them."""
    router = state.routers[batch.provider]
    if batch.file_id is not None and not state.has_file(batch.account, batch.file_id):
        return [Problem("file_not_found", f"The input file {batch.file_id} does not exist.")]
    batch.starts = batch.input.line_starts()
    if "token_limit_async" in batch.faults:
        return [
            Problem(
                "token_limit_exceeded",
                f"Enqueued token limit reached for {batch.model}. Limit: 2,000,000 enqueued "
                "tokens. Please try again once some in_progress batches have been completed.",
            )
        ]
    if "validation_failed" in batch.faults:
        return _invalid_lines(batch, batch.faults["validation_failed"])
    if batch.total == 0:
        return [Problem("empty_file", "The input file has no lines.")]
    if batch.total > router.batch_rules.max_items:
        return [
            Problem(
                "too_many_tasks", f"A batch has at most {router.batch_rules.max_items} requests."
            )
        ]
    if batch.input.size > router.batch_rules.max_bytes:
        return [
            Problem("file_too_large", f"A file has at most {router.batch_rules.max_bytes} bytes.")
        ]
    return _line_problems(router, batch) if router.batch_rules.validates else []


def _invalid_lines(batch: Batch, fault: Mapping[str, Any]) -> list[Problem]:
    """Return the lines that the fault marks as invalid, by number or by a word in them."""
    lines = fault["lines"]
    if fault["word"] is not None:
        word = fault["word"].encode()
        lines = [index + 1 for index in range(batch.total) if word in bytes(batch.line(index))]
    return [
        Problem("invalid_json_line", "This line is not valid.", line if fault["numbered"] else None)
        for line in lines[:MOST_PROBLEMS]
    ]


def _line_problems(router: Router, batch: Batch) -> list[Problem]:
    problems: list[Problem] = []
    names: set[str] = set()
    models: set[str] = set()
    for index in range(batch.total):
        number = index + 1
        try:
            item = router.read(batch, number, batch.line(index))
            if item.custom_id in names:
                raise BadLine("duplicate_custom_id", "The custom_id is already used.", "custom_id")
            names.add(item.custom_id)
            models.add(item.model)
            if len(models) > 1:
                models.discard(item.model)
                raise BadLine("model_mismatch", "All lines must have the same model.", "body.model")
        except BadLine as bad:
            problems.append(Problem(bad.code, bad.message, number, bad.param))
            if len(problems) >= MOST_PROBLEMS:
                break
    if models and not batch.model:
        batch.model = min(models)
    return problems


# -- running


def _running(state: SimulatorState, batch: Batch, until: datetime) -> None:
    """Execute items one after the other, at equal intervals."""
    seconds = state.pace.running
    began = batch.times[Stage.RUNNING]
    end = _ends(batch, seconds)
    stop, becomes = _stop(batch)
    if batch.faults.get("cancel_races_completion", {}).get("finish"):
        _execute(state, batch, batch.total)
        _finish(state, batch, Stage.COMPLETED, until)
        return
    cut_short = end if batch.expires_at is None else min(end, batch.expires_at)
    passed = (min(until, cut_short) - began).total_seconds()
    share = 1.0 if seconds <= 0 or passed >= seconds else passed / seconds
    _execute(state, batch, min(stop, math.floor(share * batch.total)))
    if becomes is Stage.CANCELING and batch.done >= stop:
        _enter(batch, Stage.CANCELING, min(until, end))
    elif batch.expires_at is not None and until >= batch.expires_at:
        # Items after the end of the window expire; finished items are published as usual.
        if batch.done < batch.total:
            _finish(state, batch, Stage.EXPIRED, batch.expires_at)
        else:
            _enter(batch, Stage.FINALIZING, min(end, batch.expires_at))
    elif becomes is None and end <= until:
        _enter(batch, Stage.FINALIZING, end)


def _stop(batch: Batch) -> tuple[int, Stage | None]:
    """Return how many items are executed at most, and the state of the batch then."""
    if "expired_nothing" in batch.faults:
        return 0, Stage.EXPIRED
    for name, stage in (("expired_partial", Stage.EXPIRED), ("canceled_partial", Stage.CANCELING)):
        if name in batch.faults:
            return math.floor(batch.faults[name]["share"] * batch.total), stage
    return batch.total, None


def _execute(state: SimulatorState, batch: Batch, upto: int) -> None:
    if batch.done >= upto:
        return
    router = state.routers[batch.provider]
    began = batch.times[Stage.RUNNING]
    step = timedelta(seconds=state.pace.running) / batch.total
    for index in range(batch.done, upto):
        with state.standing_at(began + step * (index + 1)):
            _execute_one(state, router, batch, index)
    batch.done = upto


def _execute_one(state: SimulatorState, router: Router, batch: Batch, index: int) -> None:
    try:
        item = router.read(batch, index + 1, batch.line(index))
    except BadLine as bad:
        # Only for providers where a bad line fails alone; it may have no name.
        item = Item("", batch.model, {})
        said = Said(error=ItemError(400, bad.code, bad.message), model=batch.model)
    else:
        said = _answer(state, router, batch, index, item)
    name = item.custom_id
    swapped: Mapping[int, int] = batch.picks.get("cross_wired", {})
    if index in swapped:
        name = router.read(batch, 0, batch.line(swapped[index])).custom_id
    _count(batch, said)
    _write(router, batch, index, said.error is not None, router.render(batch, item, name, said))


def _write(router: Router, batch: Batch, index: int, is_error: bool, line: bytes) -> None:
    if is_error and router.batch_rules.has_error_file:
        batch.written_errors.write(line)
    else:
        batch.written.write(line)
        batch.order.append(index)


def _answer(state: SimulatorState, router: Router, batch: Batch, index: int, item: Item) -> Said:
    prompt = replace(
        router.prompt(item.model, item.body), custom_id=item.custom_id, batch_id=batch.id
    )

    def spoiled(said: Said) -> Said:
        for name, options in batch.faults.items():
            if name == "error_file_only" or index in batch.picks.get(name, ()):
                said = spoil(name, options, prompt, said)
        return said

    return state.answer(prompt, batch.account, spoiled)


def _count(batch: Batch, said: Said) -> None:
    if said.error is not None:
        batch.failed += 1
    elif said.is_billed:
        batch.input_tokens += said.input_tokens or 0
        batch.cached_tokens += said.cached_tokens
        batch.output_tokens += said.output_tokens or 0
        batch.reasoning_tokens += said.reasoning_tokens


def _picks(state: SimulatorState, batch: Batch) -> dict[str, Any]:
    """Return the items that each fault of the batch affects, drawn once."""
    found: dict[str, Any] = {}
    for name, options in batch.faults.items():
        rng = random.Random(state.digest(f"pick {batch.id} {name}"))
        if name == "cross_wired" and batch.total > 1:
            one, other = sorted(rng.sample(range(batch.total), 2))
            found[name] = {one: other, other: one}
        elif "items" in options:
            found[name] = _pick(rng, batch.total, options)
    return found


def _pick(rng: random.Random, total: int, options: Mapping[str, Any]) -> frozenset[int]:
    if options["items"] is not None:
        return frozenset(options["items"])
    share, count = options["share"], options["count"]
    many = count if share is None else max(1, round(share * total))
    return frozenset(rng.sample(range(total), min(many, total)))


# -- the end


def _finalizing(state: SimulatorState, batch: Batch, until: datetime) -> None:
    fault = batch.faults.get("long_finalizing")
    end = _ends(batch, state.pace.finalizing if fault is None else fault["seconds"])
    if batch.faults.get("cancel_races_completion", {}).get("finish"):
        end = min(end, until)
    if end <= until:
        _finish(state, batch, Stage.COMPLETED, end)


def _canceling(state: SimulatorState, batch: Batch, until: datetime) -> None:
    end = _ends(batch, state.pace.canceling)
    if end <= until:
        if not batch.starts:
            batch.starts = batch.input.line_starts()
        _finish(state, batch, Stage.CANCELED, end)


def _finish(state: SimulatorState, batch: Batch, stage: Stage, at: datetime) -> None:
    """Publish the results and end the batch."""
    router = state.routers[batch.provider]
    with state.standing_at(at):
        _put_out(state, router, batch, stage, at)
    _enter(batch, stage, at)


def _put_out(
    state: SimulatorState, router: Router, batch: Batch, stage: Stage, at: datetime
) -> None:
    is_lost = stage is Stage.EXPIRED and not router.batch_rules.keeps_partial
    reason = NotRun.EXPIRED if stage is Stage.EXPIRED else NotRun.CANCELED
    for index in range(batch.done, batch.total):
        batch.not_run += 1
        if router.batch_rules.tells_not_run:
            item = router.read(batch, index + 1, batch.line(index))
            said = Said(not_run=reason, model=item.model)
            _write(router, batch, index, True, router.render(batch, item, item.custom_id, said))
    if not is_lost:
        output = apply_output_faults(state, router, batch, batch.written)
        errors = batch.written_errors
        is_empty_told = router.batch_rules.always_error_file or "empty_error_file" in batch.faults
        if output.size:
            batch.output = _file(state, batch, "output", output, at)
        if errors.size or (router.batch_rules.has_error_file and is_empty_told):
            batch.errors = _file(state, batch, "error", errors, at)


def _file(state: SimulatorState, batch: Batch, kind: str, blob: Blob, at: datetime) -> File:
    """Create a result file with the router's file name."""
    router = state.routers[batch.provider]
    file_id = router.new_file_id()
    seconds = batch.extra.get("output_expires_after")
    file = File(
        file_id,
        batch.account,
        f"{batch.id}_{kind}.jsonl",
        "batch_output",
        blob,
        at,
        None if seconds is None else at + timedelta(seconds=seconds),
        batch_id=batch.id,
    )
    state.files[f"{batch.account} {file_id}"] = file
    return file
