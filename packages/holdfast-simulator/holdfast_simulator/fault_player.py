"""Faults in result files: wrong order, missing or extra lines, unusual bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast_simulator.blob import Blob
from holdfast_simulator.malformed import reword
from holdfast_simulator.models import Batch
from holdfast_simulator.prompt import completion_of, fill_in

if TYPE_CHECKING:
    from holdfast_simulator.exchange import Router
    from holdfast_simulator.state import SimulatorState

MANGLES = {
    "shuffled",
    "missing_line",
    "duplicate_identical",
    "duplicate_conflicting",
    "unknown_custom_id",
    "odd_lines",
}
LONG_LINE = 10 * 1024 * 1024
# Line separators for parsers that do not split at 0x0A only.
SEPARATORS = "\u2028\u2029\u0085"


def apply_output_faults(state: SimulatorState, router: Router, batch: Batch, output: Blob) -> Blob:
    """Return the results with the faults of the batch applied."""
    if not MANGLES & set(batch.faults) or not output.size:
        return output
    starts = output.line_starts()
    places = list(range(len(starts) - 1))
    rng = random.Random(state.digest(f"mangle {batch.id}"))
    if "shuffled" in batch.faults:
        rng.shuffle(places)
    hit = batch.picks
    odd = batch.faults.get("odd_lines", {}).get("variant")
    victim = rng.choice(places)
    if batch.faults.get("odd_lines", {}).get("item") in batch.order:
        victim = batch.order.index(batch.faults["odd_lines"]["item"])
    mangled = Blob()
    if odd == "bom":
        mangled.write(b"\xef\xbb\xbf")
    for place in places:
        index = batch.order[place]
        line = output.read(starts[place], starts[place + 1] - starts[place])
        if index in hit.get("missing_line", ()):
            continue
        if odd is not None:
            line = _odd_line(state, router, batch, index, line, odd, place == victim)
        mangled.write(line)
        if index in hit.get("duplicate_identical", ()):
            mangled.write(line)
        if index in hit.get("duplicate_conflicting", ()):
            mangled.write(_again(state, router, batch, index, lambda text: f"{text} Or not."))
    if "unknown_custom_id" in batch.faults:
        name = str(batch.faults["unknown_custom_id"]["custom_id"])
        mangled.write(_again(state, router, batch, batch.order[0], str, name))
    if odd == "no_final_newline":
        return _copy(mangled, mangled.size - 1)
    return mangled


def _odd_line(
    state: SimulatorState,
    router: Router,
    batch: Batch,
    index: int,
    line: bytes,
    odd: str,
    is_victim: bool,
) -> bytes:
    if odd == "crlf":
        return line[:-1] + b"\r\n"
    if not is_victim or odd in ("bom", "no_final_newline"):
        return line
    match odd:
        case "malformed":
            return line[: len(line) // 2] + b"\n"
        case "garbage":
            return b"<html>upstream error</html>\n" + line
        case "blank":
            return b"\n  \n" + line
        case "separators":
            raw = _again(state, router, batch, index, lambda text: f"{text} {SEPARATORS}")
            for mark in SEPARATORS:
                raw = raw.replace(json.dumps(mark)[1:-1].encode(), mark.encode())
            return raw
        case "long_line":
            return line[:1] + b" " * (LONG_LINE - len(line)) + line[1:]
        case "invalid_utf8":
            middle = line.rfind(b"e", 0, len(line) // 2)
            return line[:middle] + b"\xff\xfe" + line[middle:]
        case _:
            raise ValueError(f"odd_lines has no variant {odd!r}")


def _again(
    state: SimulatorState,
    router: Router,
    batch: Batch,
    index: int,
    change: Callable[[str], str],
    name: str | None = None,
) -> bytes:
    """Return a duplicate line for an item with other text, neither executed nor billed."""
    item = router.read(batch, index + 1, batch.line(index))
    prompt = replace(
        router.prompt(item.model, item.body), custom_id=item.custom_id, batch_id=batch.id
    )
    answered = fill_in(prompt, completion_of(state.responder(prompt), prompt))
    worded = replace(answered, text=reword(answered.text, change, prompt))
    return router.render(batch, item, name or item.custom_id, worded)


def _copy(blob: Blob, size: int) -> Blob:
    copied = Blob()
    for piece in blob.pieces(0, size):
        copied.write(piece)
    return copied
