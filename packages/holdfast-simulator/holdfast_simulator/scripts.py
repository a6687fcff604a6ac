"""All faults of model providers, by number, name and effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Moment(StrEnum):
    """When a fault is evaluated."""

    # A request arrived; the fault decides how it is answered.
    EXCHANGE = "exchange"
    # A file was stored.
    UPLOADED = "uploaded"
    # A batch was created; the fault stays with it.
    CREATED = "created"
    # Batches are listed and paginated.
    LISTED = "listed"
    PAGED = "paged"
    # A message was accepted; the fault stays with it.
    TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Script:
    """A fault. *options* lists its options with their defaults."""

    number: int
    name: str
    moment: Moment
    summary: str
    options: Mapping[str, Any] = field(default_factory=dict)
    # The default target operation; "" if only the moment matters.
    op: str = ""


# The items of a batch that a fault affects: by list, count or share, drawn from the seed.
PICK: Mapping[str, Any] = {"items": None, "count": 1, "share": None}


def _exchange(number: int, name: str, summary: str, op: str = "create", **options: Any) -> Script:
    return Script(number, name, Moment.EXCHANGE, summary, options, op)


def _created(number: int, name: str, summary: str, **options: Any) -> Script:
    return Script(number, name, Moment.CREATED, summary, options, "create")


SUBMIT = (
    _exchange(1, "reset_before", "reset before anything is processed"),
    _exchange(2, "accept_then_reset", "processed, then the connection is reset"),
    _exchange(3, "accept_then_500", "processed, then answered with 500"),
    _exchange(4, "accept_then_hang", "processed, then no answer", seconds=30.0),
    _exchange(5, "zombie_create", "reset, and processed later all the same", minutes=20.0),
    _exchange(
        6,
        "proxy_html",
        "an HTML page from a proxy; accepted=True: processed behind it",
        status=502,
        accepted=False,
    ),
    _exchange(7, "truncated_json", "processed, and the JSON of the answer is cut off"),
    _exchange(8, "rate_limited", "429 with Retry-After in seconds", seconds=7),
    _exchange(9, "rate_limited_date", "429 with Retry-After as a date", seconds=30),
    _exchange(10, "rate_limited_ms", "429 with retry-after-ms", ms=1500),
    _exchange(11, "rate_limited_long", "429 with Retry-After of an hour", seconds=3600),
    _exchange(12, "quota_exhausted", "429: quota or credit is used up"),
    _exchange(13, "slow_down", "429: slow down"),
    _exchange(14, "overloaded", "503: overloaded"),
    _exchange(15, "overloaded_529", "529: overloaded"),
    _exchange(16, "key_rotated", "401: the key is not valid any more"),
    _exchange(17, "forbidden", "403"),
    _exchange(18, "conflict", "409"),
    _exchange(19, "too_large", "413"),
    _exchange(20, "upload_answer_lost", "the file is stored, the answer lost", op="upload"),
    Script(
        21, "file_not_visible", Moment.UPLOADED, "a file is found only later", {"seconds": 30.0}
    ),
    _created(22, "file_deleted_before_validation", "the input is gone when it is to be validated"),
    _exchange(23, "upload_name_taken", "the file is stored and said to have existed", op="upload"),
    _exchange(24, "upload_interrupted", "reset in the middle of the body", op="upload"),
)

LISTING = (
    _created(25, "list_lag", "not in listings for a while", seconds=60.0),
    Script(
        26,
        "list_page_shifts",
        Moment.PAGED,
        "a page repeats one batch (variant repeat) or leaves one out (skip)",
        {"variant": "repeat"},
        "list",
    ),
    Script(27, "list_without_metadata", Moment.LISTED, "listings leave metadata out", op="list"),
    Script(
        28,
        "metadata_altered",
        Moment.LISTED,
        "listings cut metadata and names off",
        {"length": 8},
        "list",
    ),
    Script(
        29,
        "foreign_batches",
        Moment.LISTED,
        "a neighbour's batches are in the same account",
        {"count": 3, "items": 3},
        "list",
    ),
    Script(
        30,
        "has_more_wrong",
        Moment.PAGED,
        "says there is more or not, and is wrong",
        op="list",
    ),
    _exchange(31, "list_500", "listing fails with 500", op="list"),
)

LIFECYCLE = (
    _created(32, "stuck_validating", "never leaves its first stage; the window ends it"),
    _created(33, "token_limit_async", "created, then failed: too many tokens are waiting"),
    _exchange(34, "token_limit_at_create", "400: too many tokens are waiting"),
    _created(
        35,
        "validation_failed",
        "failed, with the numbers of lines",
        lines=(1,),
        word=None,
        numbered=True,
    ),
    _created(36, "long_finalizing", "finalizing lasts long", seconds=6 * 3600.0),
    _created(37, "expired_partial", "the window ends when a part is done", share=0.5),
    _created(38, "expired_nothing", "the window ends and nothing was done"),
    _created(39, "canceled_partial", "canceled by the provider when a part is done", share=0.5),
    _created(40, "cancel_races_completion", "a cancel arrives too late: the batch completes"),
    _created(41, "unknown_status", "an unknown status", status="paused_for_review"),
    _created(42, "status_regresses", "once over, it is shown as running again", calls=1),
    _created(43, "error_file_only", "every item fails: completed, and no output", status=500),
    _created(44, "empty_string_ids", 'absent files are shown as ""'),
    _created(45, "empty_error_file", "an error file of no bytes"),
    _created(46, "counts_disagree", "its counts are not those of its lines", by=1),
    _created(47, "batch_vanishes", "404 once it is over; calls=None for good", calls=2),
)

RESULTS = (
    _created(48, "shuffled", "results in another order"),
    _created(49, "missing_line", "an item has no line", **PICK),
    _created(50, "duplicate_identical", "a line is there twice", **PICK),
    _created(51, "duplicate_conflicting", "an item has two different lines", **PICK),
    _created(52, "unknown_custom_id", "a line of an unknown item", custom_id="item-0"),
    _created(53, "cross_wired", "two items have each other's answers"),
    _created(
        54,
        "odd_lines",
        "malformed, blank, crlf, bom, no_final_newline, separators, long_line or invalid_utf8",
        variant="malformed",
        item=None,
    ),
    _exchange(
        55, "truncated_download", "the body ends early", op="content", framing="fixed", share=0.5
    ),
    _exchange(
        56,
        "slow_download",
        "slow: it stops in the middle; range_416; gone_404",
        op="content",
        variant="slow",
        seconds=30.0,
    ),
    _created(
        57,
        "odd_answers",
        "200 and incomplete, filtered, failed, refusal, empty, reasoning_only, several_messages, "
        "wrong_locale, invalid_json or all_null",
        variant="incomplete",
        **PICK,
    ),
    _created(58, "odd_usage", "usage missing or huge, or other_model", variant="missing", **PICK),
)

# Beyond the 58: ordinary behaviour of every provider.
ITEMS = (_created(59, "item_error", "an item fails", status=500, code="server_error", **PICK),)

SCRIPTS: dict[str, Script] = {
    script.name: script for script in (*SUBMIT, *LISTING, *LIFECYCLE, *RESULTS, *ITEMS)
}
