"""Checks of Prometheus's text format, as in promtool, and of its labels, as in S-9.

The text is parsed by hand, independently of the library that wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SAMPLE = re.compile(r"(?P<name>[^\s{]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: (?P<at>-?\d+))?")
_PAIR = re.compile(r'(?P<name>[^=,{}"]+)="(?P<value>(?:[^"\\\n]|\\[\\n"])*)"(?:,|$)')
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.I)

SUFFIXES = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}
# Labels whose values a caller or a tenant could create without limit.
UNBOUNDED = frozenset(
    {"org_id", "tenant", "project_id", "job_id", "id", "worker_id", "request_id", "correlation_id"}
)

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """The samples under one HELP and TYPE."""

    name: str
    says: str = ""
    kind: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    @property
    def labels(self) -> set[str]:
        return {name for _, labels in self.samples for name, _ in labels} - {"le"}


def value(text: str, name: str, **labels: str) -> float:
    """The value of one sample, which must exist."""
    wanted = tuple(sorted(labels.items()))
    for family in read(text).values():
        for (sample, found), number in family.samples.items():
            if (sample, found) == (name, wanted):
                return number
    raise AssertionError(f"no {name}{labels} in\n{text}")


def read(text: str) -> dict[str, Family]:
    families, problems = _read(text)
    assert problems == []
    return families


def problems_of(text: str) -> list[str]:
    """All errors of the text; none if Prometheus can read it."""
    families, problems = _read(text)
    for family in families.values():
        problems += _problems_of(family)
    return problems


def _read(text: str) -> tuple[dict[str, Family], list[str]]:
    families: dict[str, Family] = {}
    problems: list[str] = []
    current = Family("")
    if text and not text.endswith("\n"):
        problems.append("the last line does not end")
    for number, line in enumerate(text.splitlines(), 1):
        where = f"line {number}: "
        if line.startswith("# HELP "):
            name, _, says = line.removeprefix("# HELP ").partition(" ")
            if name in families:
                problems.append(f"{where}{name} is there twice, or in two places")
            current = families[name] = Family(name, says)
        elif line.startswith("# TYPE "):
            name, _, kind = line.removeprefix("# TYPE ").partition(" ")
            if name != current.name or current.kind or current.samples:
                problems.append(f"{where}TYPE of {name} does not follow its HELP")
            if kind not in SUFFIXES:
                problems.append(f"{where}{name} is of type {kind!r}")
            current.kind = kind
        elif line:
            problems += [where + problem for problem in _read_sample(current, line)]
    return families, problems


def _read_sample(family: Family, line: str) -> Iterator[str]:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        yield f"not a sample: {line}"
        return
    name = found["name"]
    if not NAME.fullmatch(name):
        yield f"bad name {name}"
    if name not in [family.name + suffix for suffix in SUFFIXES.get(family.kind, ())]:
        yield f"{name} has no HELP and TYPE before it"
    written = found["labels"] or ""
    pairs = list(_PAIR.finditer(written))
    if "".join(pair[0] for pair in pairs) != written:
        yield f"bad labels {written}"
    names = [pair["name"] for pair in pairs]
    if len(set(names)) != len(names) or not all(LABEL.fullmatch(item) for item in names):
        yield f"bad label names {names}"
    labels = tuple(sorted((pair["name"], pair["value"]) for pair in pairs))
    if (name, labels) in family.samples:
        yield f"{name}{dict(labels)} is there twice"
    try:
        family.samples[name, labels] = float(found["value"])
    except ValueError:
        yield f"bad value {found['value']}"


def _problems_of(family: Family) -> Iterator[str]:
    if not family.says:
        yield f"{family.name} has no HELP"
    if family.name.endswith("_total") != (family.kind == "counter"):
        yield f"{family.name} is a {family.kind}"
    if family.kind == "counter" and any(number < 0 for number in family.samples.values()):
        yield f"{family.name} is below zero"
    for name in sorted(family.labels & UNBOUNDED):
        yield f"{family.name} has the label {name}"
    shapes = {frozenset(name for name, _ in labels if name != "le") for _, labels in family.samples}
    if len(shapes) > 1:
        yield f"{family.name} has samples of different labels"
    for _, labels in family.samples:
        for name, text in labels:
            if _ID.search(text) or len(text) > 100:
                yield f"{family.name} has the value {name}={text[:60]!r}"
    if family.kind == "histogram":
        yield from _problems_of_histogram(family)


def _problems_of_histogram(family: Family) -> Iterator[str]:
    series: dict[Labels, dict[float, float]] = {}
    for (name, labels), number in family.samples.items():
        own = tuple(pair for pair in labels if pair[0] != "le")
        buckets = series.setdefault(own, {})
        if name.endswith("_bucket"):
            bound = dict(labels).get("le")
            if bound is None:
                yield f"{name}{dict(own)} has a bucket without le"
            else:
                buckets[float(bound)] = number
    for own, buckets in series.items():
        yield from _problems_of_series(family.name, family.samples, own, buckets)


def _problems_of_series(
    name: str,
    samples: Mapping[tuple[str, Labels], float],
    own: Labels,
    buckets: Mapping[float, float],
) -> Iterator[str]:
    counted = samples.get((f"{name}_count", own))
    if counted is None or (f"{name}_sum", own) not in samples:
        yield f"{name}{dict(own)} lacks _count or _sum"
    if buckets.get(float("inf")) != counted:
        yield f"{name}{dict(own)}: the bucket +Inf is not the count"
    ordered = [buckets[bound] for bound in sorted(buckets)]
    if ordered != sorted(ordered):
        yield f"{name}{dict(own)}: the buckets do not add up"
