"""Who may do what: the orchestrator decides, by code; a model writes; who executes does neither."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

import holdfast_rewrite
from holdfast.config import Settings
from holdfast_rewrite.decide import decide
from holdfast_rewrite.enums import Level, MessageIntent, SafetyFlag, Strength, Topic
from holdfast_rewrite.prompt import prompt_for
from holdfast_rewrite.route import Routes
from holdfast_rewrite.settings import RewriteSettings
from tests.apps.household import RECIPIENT, ROUTE, intake, result_of

PACKAGES = Path(__file__).resolve().parents[2] / "packages"
REWRITE = Path(holdfast_rewrite.__file__).parent


def modules_with(pattern: str, suffix: str = "py") -> set[str]:
    """The files of the package, without the migrations, that hold a pattern."""
    return {
        "/".join(path.relative_to(PACKAGES).parts[1:])
        for path in PACKAGES.glob(f"*/holdfast*/**/*.{suffix}")
        if "migrations" not in path.parts and re.search(pattern, path.read_text("utf-8"))
    }


def imported_by(*names: str) -> set[str]:
    """The modules of the rewrite that these import."""
    texts = ((REWRITE / f"{name}.py").read_text("utf-8") for name in names)
    return {
        found for text in texts for found in re.findall(r"holdfast_rewrite\.(\w+) import", text)
    }


@pytest.mark.req("O-01")
@pytest.mark.parametrize(
    "table",
    ["rewrite_request", "rewrite_message", "recipient_snapshot", "recipient_preference_snapshot"],
)
def test_only_the_orchestrator_stores_messages_and_snapshots(table: str) -> None:
    assert modules_with(rf"INSERT INTO holdfast\.{table}\b", "sql") == {
        "holdfast_rewrite/orchestrate.sql"
    }
    assert modules_with(r'"orchestrate\.sql"') == {
        "holdfast_rewrite/enqueue_rewrites.py",
        "holdfast_rewrite/intake.py",
    }


@pytest.mark.req("O-01")
def test_only_the_orchestrator_classifies_resolves_and_enqueues() -> None:
    at = "from holdfast_rewrite"

    # The command line classifies a text that nobody sent; it stores nothing.
    assert modules_with(rf"{at}\.classify import [^\n]*classify_safely") == {
        "holdfast_rewrite/orchestrate.py",
        "holdfast_rewrite/cli.py",
    }
    assert modules_with(rf"{at}\.language import [^\n]*\bresolve\b") == {
        "holdfast_rewrite/decide.py"
    }
    assert modules_with(rf"{at}\.enqueue_rewrites import") == {"holdfast_rewrite/orchestrate.py"}
    assert modules_with(r"insert_steps|insert_jobs|hf\.enqueue") & {
        f"holdfast_rewrite/{path.relative_to(REWRITE)}" for path in REWRITE.rglob("*.py")
    } == {"holdfast_rewrite/enqueue_rewrites.py", "holdfast_rewrite/judging.py"}


# What decides on locales, lane, recipient, policy and route.
DECIDING = (
    "validation",
    "intake",
    "decide",
    "language",
    "context_pack",
    "policy",
    "route",
    "enqueue_rewrites",
)


@pytest.mark.req("E-10")
def test_what_decides_has_no_model_at_hand() -> None:
    assert imported_by(*DECIDING) & {"classify", "classify_llm", "detect"} == set()
    texts = [(REWRITE / f"{name}.py").read_text("utf-8") for name in DECIDING]
    # The router checks that a provider's adapter exists; nobody calls one.
    assert not any(re.search(r"provider\.(adapter|direct|http)|\.call\(", text) for text in texts)


@pytest.mark.req("E-10")
def test_whatever_a_classifier_says_code_decides_for_whom_in_which_language_and_where() -> None:
    """Only its strength and its sure language count, and both by rules."""
    routes = Routes(Settings(rewrite=RewriteSettings(routes=(ROUTE,))))
    seen = set()
    for topic, intent, flag, (language, level) in itertools.product(
        Topic,
        MessageIntent,
        SafetyFlag,
        [("fr", Level.LOW), ("unknown", Level.HIGH), ("en", Level.HIGH)],
    ):
        said = result_of(
            Strength.FULL_REFRAME,
            language=language,
            confidence=level,
            topics=(topic,),
            intent=intent,
            flags=(flag,),
        )
        made, again = (decide(intake(), said, None, routes) for _ in range(2))
        request = made.request
        assert request is not None
        assert (request, made.routing_decision) == (again.request, again.routing_decision)
        seen.add(
            (
                request.recipient_user_id,
                request.source_locale,
                request.target_locale,
                request.lane,
                str(made.routing_decision),
            )
        )

    assert len(seen) == 1
    assert next(iter(seen))[:4] == (RECIPIENT, "en", "de", "cross_language")


@pytest.mark.req("E-10")
def test_a_model_may_answer_a_text_and_its_language_and_nothing_else() -> None:
    routes = Routes(Settings(rewrite=RewriteSettings(routes=(ROUTE,))))
    request = decide(intake(), result_of(), None, routes).request
    assert request is not None

    schema = prompt_for(request, "v1").schema

    assert schema is not None
    assert set(schema["properties"]) == {"rewritten_text", "output_language"}
    assert schema["additionalProperties"] is False


DECIDES = {
    "classify",
    "classify_llm",
    "classify_local",
    "context_pack",
    "decide",
    "directory",
    "enqueue_rewrites",
    "finish",
    "intake",
    "orchestrate",
    "policy",
    "rewrites",
    "route",
    "show",
    "validation",
}


@pytest.mark.req("E-07")
@pytest.mark.req("E-08")
@pytest.mark.req("E-09")
@pytest.mark.req("O-07")
def test_what_executes_a_rewrite_knows_nothing_that_could_decide_deliver_or_reveal() -> None:
    sql = (REWRITE / "work.sql").read_text("utf-8")
    tables = set(re.findall(r"holdfast\.(\w+) AS|INTO holdfast\.(\w+)", sql))

    assert imported_by("work", "output", "payload", "judge", "verdict") & DECIDES == set()
    assert {one or other for one, other in tables} == {
        "job",
        "rewrite_draft",
        "rewrite_output",
        "rewrite_request",
    }
