"""Identifiers that the glossary replaced stay out of the code.

Only identifiers count: modules, classes, functions, parameters, attributes, module variables,
import aliases, SQL files and SQL statements. Prose and local variables may use any word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tree import ROOT, source

FOLDERS = ("packages", "tools", "examples", "bench")

# One line per group: the kind of identifier, the places, the names. A place is the beginning of a
# path below its distribution; ``*`` is everywhere. ``any`` stands for every kind.
RETIRED = """
any *: labour Labour JobLabour ErrandLabour labour_of errand Errand Assignment errands
any *: pour Poured _deal whole_room spend_room FairIntake Hands hands Keeper keeper
any *: Presence presence Colleague settler Settler settle_apart look_around _employ agenda CatchUp
any *: write_letters Duty duty duty_of workplace Visit Desk desk BatchLane Unusable
any *: call_end Called Gatherer sweep_zombies sweep_strays Grip Tally Collected Dispatched Tidied
any *: Elsewhere WithInApp LookupDown HttpWire Vault FileVault S3Vault was_stopped goes_on go_on
any *: Kept take_turns spend_queue spend_keys bury_broken bury_broken_in retry_or_bury
any *: run_upkeep tidy_runs list_lane tell_worker leave_worker request_field
any *: Door Mount Looks take_over mangle may_pass reach unanswered _Try _Begun
module *: borrow confine authorize catch_up letter lane room point desk watch leased asked
module holdfast_llm/: verdict
module *: micro thing world odd trouble outlet words gate delta fold reversal conclude advance hour
module *: phrase
module holdfast/: intake ledger counts upkeep ask
module holdfast/config/: kind
module holdfast_llm/: intent errand
module holdfast_rewrite/: intent
class *: Ask Letter Asked Word Point Look Turn Round Room Intake Several Frames
class holdfast/: Lane Seen Watch Case Counts Plan Batch Intent
class holdfast/outbox/: Page
class holdfast/engine/schedule: Entry
class holdfast/config/: Kind
class holdfast_llm/: Seen Phase Name Wire Artifact Intent Verdict Entry Lane Member Page
class holdfast_simulator/: Plan
class holdfast_rewrite/: Intent
function *: told said tell because fewer steady wanted of
function *: look_at_schema look_at_settings look_at_connections look_at_clock look_at_transactions
function *: look_at_bloat look_at_deliveries look_at_channels look_at_file look_at_isolation
function *: look_at_grants look_at_workers look_at_queues look_at_rescue look_at_audit
function *: look_at_letters look_at_schedules look_at_lane look_at_batches look_at_credentials
function *: look_at_accounts holding
function holdfast/engine/: _look judge conclude plan reached
function holdfast/store/: _look
function holdfast/config/: fits complaint
function holdfast/telemetry/: give_back
function holdfast_llm/provider/: part parts whole word ask
function holdfast_rewrite/: conclude fold
parameter *: bad lane
parameter holdfast/engine/: plan turn drops
attribute holdfast/engine/: plan turn kept frames lane
attribute holdfast/engine/settle holdfast/engine/claim: held
alias *: given bad
"""

# Retired identifiers that the code still has, each with the reason. The table only shrinks: an
# entry that is no longer needed fails the test.
ALLOWED: dict[str, str] = {
    "Batch": "a provider batch in the typed client, named as in the API",
    "gate": "the deterministic checks of a rewrite, before the model judge",
}

STATEMENT = re.compile(r"^-- (\w+) :(?:one|maybe|many|affected)\b", re.M)


class Found(NamedTuple):
    kind: str
    name: str
    place: str


def below_its_distribution(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[2:] if parts[0] == "packages" else parts)


def all_identifiers() -> Iterator[Found]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = below_its_distribution(path)
            yield from (Found(kind, name, place) for kind, name in source(path).identifiers)
        for path in sorted((ROOT / folder).rglob("*.sql")):
            place = below_its_distribution(path)
            yield Found("module", path.name.split(".")[0], place)
            for name in STATEMENT.findall(path.read_text()):
                yield Found("statement", name, place)


def retired() -> dict[str, list[tuple[str, str]]]:
    """The kinds and places in which each name is retired."""
    rules: dict[str, list[tuple[str, str]]] = {}
    for line in RETIRED.strip().splitlines():
        head, names = line.split(":")
        kind, *places = head.split()
        for name in names.split():
            rules.setdefault(name, []).extend((kind, place) for place in places)
    return rules


def is_retired(found: Found, rules: dict[str, list[tuple[str, str]]]) -> bool:
    return any(
        kind in ("any", found.kind) and (place == "*" or found.place.startswith(place))
        for kind, place in rules.get(found.name, ())
    )


def retired_identifiers() -> list[Found]:
    rules = retired()
    return [found for found in all_identifiers() if is_retired(found, rules)]


def test_no_retired_identifier_is_used_and_every_exception_is_still_needed() -> None:
    found = retired_identifiers()

    refused = [one for one in found if one.name not in ALLOWED]
    assert [f"{one.place}: {one.kind} {one.name}" for one in refused] == []
    assert sorted(ALLOWED.keys() - {one.name for one in found}) == []
