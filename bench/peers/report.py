"""Tables of measured figures, and the generated sections of bench/RESULTS.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.peers.environments import ROOT

RESULTS = ROOT / "bench" / "RESULTS.md"


@dataclass(frozen=True, slots=True)
class Record:
    """The figure of one contender in one measure of one round."""

    database: str
    measure: str
    contender: str
    number: int
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Facts:
    """The data that a reader needs to judge the figures of a run."""

    date: str
    machine: str
    command: str
    versions: dict[str, str] = field(default_factory=dict)
    # The options of the run that its tables name.
    options: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure by rounds, and its target."""

    what: str
    rounds: list[float]
    required: float | None = None
    stretch: float | None = None
    at_most: bool = False
    digits: int = 2

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def is_reached(self, bound: float) -> bool:
        return self.median <= bound if self.at_most else self.median >= bound


def goal_table(head: str, rows: Sequence[Row]) -> list[str]:
    """A table of medians beside their targets; rows without figures are left out."""
    lines = [
        f"| {head} | median | required | stretch | rounds |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if not row.rounds:
            continue
        listed = ", ".join(_number(value, row.digits) for value in row.rounds)
        bounds = " | ".join(_bound(row, bound) for bound in (row.required, row.stretch))
        lines.append(
            f"| {row.what} | **{_number(row.median, row.digits)}** | {bounds} | {listed} |"
        )
    return lines


def _bound(row: Row, bound: float | None) -> str:
    if bound is None:
        return ""
    sign = "≤" if row.at_most else "≥"
    return f"{sign} {bound:,g}, {'met' if row.is_reached(bound) else 'missed'}"


def figure_table(
    database: str, figures: Sequence[tuple[str, str, str, int]], records: Sequence[Record]
) -> list[str]:
    """A table of medians: a row per figure, a column per contender."""
    own = [record for record in records if record.database == database]
    contenders = list(dict.fromkeys(record.contender for record in own))
    lines = [
        f"| {database} | {' | '.join(contenders)} |",
        f"| --- |{' --- |' * len(contenders)}",
    ]
    for what, measure, value, digits in figures:
        cells = []
        for contender in contenders:
            found = [
                record.values[value]
                for record in own
                if (record.contender, record.measure) == (contender, measure)
                and record.values.get(value)
            ]
            cells.append(_number(statistics.median(found), digits) if found else "")
        if any(cells):
            lines.append(f"| {what} | {' | '.join(cells)} |")
    return lines


def heading(facts: Facts, records: Sequence[Record]) -> str:
    """A paragraph on the run: when, where, what, how quiet the machine was."""
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    text = f"{facts.date}, {facts.machine}. {versions}. `{facts.command}`."
    shares = [record.values["foreign"] for record in records if "foreign" in record.values]
    if shares:
        most = statistics.median(shares)
        text += f" Other programs used {most:.0%} of the machine at the median"
        text += f" of the drains, {max(shares):.0%} at most."
    return text


def write_section(name: str, lines: Sequence[str], path: Path = RESULTS) -> None:
    """Replace the generated section *name*; everything else of the page stays."""
    page = path.read_text()
    begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} has no section {begin} … {end}: add the two lines where it goes")
    body = "\n".join(lines).strip()
    path.write_text(f"{head}{begin}\n\n{body}\n\n{end}{tail}")


def save(path: Path, facts: Facts, records: Sequence[Record]) -> None:
    """Keep the figures of a run, so that its section can be written again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"facts": asdict(facts), "records": [asdict(record) for record in records]}
    path.write_text(json.dumps(content, indent=1) + "\n")


def load(path: Path) -> tuple[Facts, list[Record]]:
    content = json.loads(path.read_text())
    return Facts(**content["facts"]), [Record(**record) for record in content["records"]]


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"
