"""The dashboard, the alert rules and the documentation name only existing metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from holdfast import Holdfast, Settings, errors
from holdfast.cli import cli
from holdfast.cli.worker import worker
from holdfast.engine.job import QUEUES
from holdfast.event import BatchChange, BatchTrouble, DeliveryChange, DeliveryTrouble
from holdfast.outbox.delivery import Reason
from holdfast.telemetry.gauges import (
    DELIVERY_STATES,
    DEPTH_STATES,
    WORKER_STATES,
    known_gauges,
)
from holdfast.telemetry.metrics import (
    OUTCOMES,
    RUN_OUTCOMES,
    TICKS,
    WORKER_CHANGES,
    Metrics,
)
from holdfast_llm.telemetry import BATCH_STATES
from tests.telemetry.promql import BadQuery, Query, parse

ROOT = Path(__file__).resolve().parent.parent.parent
DASHBOARD = ROOT / "deploy" / "grafana" / "holdfast.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
PAGE = ROOT / "docs" / "reference" / "metrics.md"

FUNCTIONS = frozenset({"sum", "max", "rate", "increase", "absent", "histogram_quantile"})
# Prometheus adds these to every sample.
TARGET_LABELS = frozenset({"instance", "job"})


def metrics() -> dict[str, tuple[str, frozenset[str]]]:
    """Every existing metric: its kind and its labels, by the name that is exposed."""
    hf = Holdfast(settings=Settings(db="sqlite:"))
    made = Metrics(hf)
    found = {"holdfast_db_up": ("gauge", frozenset[str]())}
    found |= {gauge.name: ("gauge", frozenset(gauge.labels)) for gauge in known_gauges(hf)}
    for collector in made.registry._collector_to_names:
        for family in collector.describe():  # type: ignore[attr-defined]
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = frozenset(getattr(collector, "_labelnames", found.get(name, ("", ()))[1]))
            found[name] = (family.type, labels)
    return found


METRICS = metrics()


def series(name: str) -> frozenset[str] | None:
    """The labels of a series; None if no series has that name."""
    for base, (kind, labels) in METRICS.items():
        if kind == "histogram":
            if name in (f"{base}_sum", f"{base}_count"):
                return labels
            if name == f"{base}_bucket":
                return labels | {"le"}
        elif name == base:
            return labels
    return None


def values(name: str, label: str) -> frozenset[str] | None:
    """The possible values of a label; None if the application defines them."""
    match name, label:
        case ("holdfast_queue_depth", "state"):
            return frozenset(DEPTH_STATES)
        case ("holdfast_workers_live", "state"):
            return frozenset(WORKER_STATES)
        case ("holdfast_worker_changes_total", "change"):
            return frozenset(WORKER_CHANGES)
        case ("holdfast_jobs_settled_total", "outcome"):
            return OUTCOMES
        case ("holdfast_runs_total", "outcome"):
            return RUN_OUTCOMES
        case ("holdfast_schedule_ticks_total", "outcome"):
            return frozenset(TICKS)
        case (
            "holdfast_batches" | "holdfast_batch_items_open" | "holdfast_batch_oldest_age_seconds",
            "state",
        ):
            return frozenset(BATCH_STATES)
        case ("holdfast_batch_changes_total" | "holdfast_batch_items_total", "change"):
            return frozenset(BatchChange)
        case ("holdfast_batch_alerts_total", "what"):
            return frozenset(BatchTrouble)
        case ("holdfast_deliveries_open" | "holdfast_delivery_oldest_age_seconds", "state"):
            return frozenset(DELIVERY_STATES)
        case ("holdfast_deliveries_total", "change"):
            return frozenset(DeliveryChange)
        case ("holdfast_delivery_sends_total", "reason"):
            return frozenset(Reason)
        case ("holdfast_delivery_alerts_total", "what"):
            return frozenset(DeliveryTrouble)
        case (_, "queue"):
            return frozenset(QUEUES)
        case (_, "error_class"):
            kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
            failures = [kind for kind in kinds if issubclass(kind, errors.Failure)]
            return frozenset(kind.error_class for kind in failures)
    return None


def problems_of(text: str) -> Iterator[str]:
    """The metrics and labels of an expression that do not exist."""
    query = parse(re.sub(r"\[\$__\w+\]", "[5m]", text))
    yield from (f"{name}()" for name in query.functions - FUNCTIONS)
    offered: set[str] = set(TARGET_LABELS)
    for name, matchers in query.selectors:
        labels = series(name)
        if labels is None:
            yield f"no metric {name}"
            continue
        offered |= labels
        for label, wanted in matchers.items():
            if label not in labels | TARGET_LABELS:
                yield f"{name} has no label {label}"
            known = values(name, label)
            words = set() if wanted.startswith("$") or "$" in wanted else set(wanted.split("|"))
            yield from (f"{name}: {label} is never {word}" for word in words - (known or words))
    yield from (f"no label {label} to group by" for label in query.grouped_by - offered)
    yield from _misused(query, text)


def _misused(query: Query, text: str) -> Iterator[str]:
    """Expressions use the rate of a counter, and never that of a gauge."""
    for name, _ in query.selectors:
        kind = METRICS.get(name, ("histogram",))[0]
        rated = re.search(rf"\b(rate|increase)\({name}\b", text) is not None
        if name in METRICS and (kind == "counter") != rated:
            yield f"{name} is a {kind}"


# -- the check itself


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sum(rate(jobs_failled_total[5m]))", "no metric jobs_failled_total"),
        ("max(jobs_duration_seconds)", "no metric jobs_duration_seconds"),
        ('max(holdfast_queue_depth{org_id="1"})', "has no label org_id"),
        ('max(holdfast_queue_depth{state="redy"})', "never redy"),
        ('max(holdfast_queue_depth{queue="q:defualt"})', "never q:defualt"),
        ("max by (shard) (holdfast_queue_depth)", "no label shard"),
        ("deadletter_total > 5", "deadletter_total is a counter"),
        ("rate(holdfast_queue_depth[5m])", "holdfast_queue_depth is a gauge"),
        ("avg(holdfast_db_up)", "avg()"),
    ],
)
def test_an_expression_that_asks_for_what_there_is_not_is_noticed(text: str, problem: str) -> None:
    assert [found for found in problems_of(text) if problem in found]


@pytest.mark.parametrize(
    "text",
    [
        "sum(rate(jobs_failed_total[5m])",
        "sum(rate(jobs_failed_total[5m]}})",
        "max(holdfast_db_up) > > ;",
        'holdfast_db_up{instance"a"}',
        "rate(jobs_failed_total[5 minutes])",
        "1 + 1",
    ],
)
def test_an_expression_that_cannot_be_read_is_noticed(text: str) -> None:
    with pytest.raises(BadQuery):
        parse(text)


# -- the dashboard


def test_the_dashboard_asks_only_for_what_there_is() -> None:
    board = json.loads(DASHBOARD.read_text())
    asked = [
        (panel["title"], target["expr"])
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]

    assert len(asked) > 30
    assert {(title, problem) for title, expr in asked for problem in problems_of(expr)} == set()


def test_the_dashboard_can_be_loaded_and_shows_each_panel_in_a_place_of_its_own() -> None:
    board = json.loads(DASHBOARD.read_text())
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in board["panels"]]
    cells = [
        (column, line)
        for x, y, width, height in places
        for column in range(x, x + width)
        for line in range(y, y + height)
    ]

    assert (board["uid"], board["title"]) == ("holdfast", "Holdfast")
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert len(set(cells)) == len(cells)
    assert max(column for column, _ in cells) < 24
    for panel in board["panels"]:
        assert panel["type"] == "row" or panel["description"]


def test_the_choices_of_the_dashboard_are_labels_that_there_are() -> None:
    board = json.loads(DASHBOARD.read_text())
    named = {item["name"] for item in board["templating"]["list"]}
    queries = [
        item["query"]["query"] for item in board["templating"]["list"] if item["type"] == "query"
    ]

    for query in queries:
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        assert found is not None
        assert found[2] in (series(found[1]) or ())
    used = set(re.findall(r"\$\{?([a-z_]+)", DASHBOARD.read_text())) - {"__rate_interval", "__all"}
    assert used <= named | {"__rate"}


# -- the alert rules


_LINE = re.compile(r'(?P<indent> *)(?P<dash>- )?(?P<key>[a-z]+):(?: (?P<value>"(?:.*)"|[\w:]+))?')


def rules() -> list[dict[str, Any]]:
    """The rules of the file.

    It keeps to a part of YAML that is read without a library: a key and a value a line, a value
    being one word or a string as in JSON, which is a string in YAML, too.
    """
    found: list[dict[str, Any]] = []
    within: dict[str, Any] = {}
    for line in ALERTS.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        depth, key, text = len(match["indent"]), match["key"], match["value"]
        assert depth % 2 == 0
        read = json.loads(text) if text and text[0] == '"' else text
        if depth <= 4 and not match["dash"]:
            assert text is None
            assert key in ("groups", "rules")
        elif depth == 2:
            assert (key, read) == ("name", "holdfast")
        elif depth == 6:
            assert key == "alert"
            within = {"alert": read}
            found.append(within)
        elif depth == 8 and text is None:
            within[key] = {}
        elif depth == 8:
            within[key] = read
        else:
            list(within.values())[-1][key] = read
    return found


RULES = rules()


def test_every_rule_says_when_how_bad_it_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in RULES]

    assert len(names) > 15
    assert len(set(names)) == len(names)
    for rule in RULES:
        assert list(rule) == ["alert", "expr", "for", "labels", "annotations"]
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert all(text.endswith(".") for text in rule["annotations"].values())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_asks_only_for_what_there_is(rule: dict[str, Any]) -> None:
    assert list(problems_of(rule["expr"])) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_names_only_labels_that_its_result_has(rule: dict[str, Any]) -> None:
    query = parse(rule["expr"])
    text = " ".join(rule["annotations"].values())

    named = set(re.findall(r"\$labels\.(\w+)", text))
    assert named <= query.grouped_by
    assert set(re.findall(r"\{\{ (\$\w+)", text)) <= {"$labels", "$value"}


def test_a_command_that_a_rule_names_can_be_typed() -> None:
    text = " ".join(rule["annotations"]["description"] for rule in RULES)
    named = re.findall(r"holdfast ([a-z-]+)(?: ([a-z]+))?", text)

    assert len(named) > 8
    for name, verb in named:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, name
        if isinstance(command, click.Group):
            assert verb in command.commands, (name, verb)


def test_what_the_requirements_ask_to_be_watched_is_watched() -> None:
    watched = {name for rule in RULES for name, _ in parse(rule["expr"]).selectors}

    assert watched >= {
        "holdfast_queue_oldest_ready_age_seconds",
        "deadletter_total",
        "holdfast_lease_losses_total",
        "holdfast_workers_live",
        "holdfast_db_oldest_xmin_age_seconds",
        "holdfast_audit_unsealed_age_seconds",
        "holdfast_dead_letters_escalated",
        "holdfast_batches",
        "holdfast_batch_overdue_seconds",
        "holdfast_batch_alerts_total",
        "holdfast_circuits_open",
    }


# -- the page


def test_every_metric_is_described_with_its_labels() -> None:
    rows = {
        found[0]: set(re.findall(r"`(\w+)`", found[1]))
        for found in re.findall(r"^\| `(\w+)` \|([^|]*)\|", PAGE.read_text(), re.M)
    }

    described = {name: set(labels) for name, (_, labels) in METRICS.items()}
    assert {name: rows.get(name) for name in described} == described


def test_the_options_of_the_worker_are_described() -> None:
    page = PAGE.read_text()
    options = [item for option in worker.params for item in option.opts if "metrics" in item]

    assert sorted(options) == ["--metrics-host", "--metrics-port"]
    assert [option for option in options if option not in page] == []
