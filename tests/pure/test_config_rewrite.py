"""The settings of the complaint rewrite: its limits, its routing table, its classifier's route."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError, Settings
from holdfast.config import load
from holdfast.config.show import show
from holdfast_llm.provider.route import ExecutionMode
from holdfast_rewrite.enums import Surface
from holdfast_rewrite.settings import (
    SURFACES,
    ClassifierRouteSettings,
    RewriteSettings,
    RouteSettings,
)

ROUTE = """
[[rewrite.routes]]
provider = "openai"
adapter_kind = "openai_responses"
model = "large"
high_quality = true
supports_translation = true
target_locales = ["es", "de"]
"""
CLASSIFIER = """
[rewrite.classifier_route]
provider = "openai"
adapter_kind = "openai_chat"
model = "tiny"
"""
ROW = {"provider": "openai", "adapter_kind": "openai_responses", "model": "large"}
WHOLE = ClassifierRouteSettings(provider="openai", adapter_kind="openai_chat", model="tiny")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.toml"


def read(file: Path, text: str, **env: str) -> Settings:
    file.write_text(text)
    return Settings.load(env=env, file=file)


def refusal(file: Path, text: str, **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(file, text, **env)
    return str(caught.value)


def test_the_defaults_reveal_after_a_day_and_classify_without_a_network() -> None:
    rewrite = Settings().rewrite

    assert (rewrite.classifier, rewrite.reveal_delay_seconds) == ("local", 86_400)
    assert (rewrite.routes, rewrite.classifier_route.is_empty) == ((), True)


def test_the_words_of_the_settings_are_those_of_the_application() -> None:
    assert set(SURFACES) == set(Surface)
    assert {RouteSettings(**ROW, execution_mode=mode).execution_mode for mode in ExecutionMode} == {
        "batch", "async",
    }  # fmt: skip


def test_a_file_holds_routes_in_their_order_and_a_classifier(file: Path) -> None:
    second = (
        '[[rewrite.routes]]\nprovider = "gemini"\nadapter_kind = "gemini_generate"\nmodel = "m"'
    )
    rewrite = read(file, f'[rewrite]\nclassifier = "llm"\n{ROUTE}{second}\n{CLASSIFIER}').rewrite

    assert [row.model for row in rewrite.routes] == ["large", "m"]
    assert rewrite.routes[0].target_locales == ("es", "de")
    assert rewrite.classifier_route == WHOLE


def test_the_environment_sets_what_exists_once(file: Path) -> None:
    rewrite = read(
        file,
        ROUTE + CLASSIFIER,
        HOLDFAST_REWRITE_CLASSIFIER="llm",
        HOLDFAST_REWRITE_SURFACES="weekly_harmony, other",
        HOLDFAST_REWRITE_CLASSIFIER_ROUTE_MODEL="smaller",
    ).rewrite

    assert (rewrite.classifier, rewrite.surfaces) == ("llm", ("weekly_harmony", "other"))
    assert rewrite.classifier_route.model == "smaller"


def test_the_weekly_surface_may_be_written_by_either_name(file: Path) -> None:
    both = '["weekly_feedback", "other", "weekly_harmony"]'
    route = ROUTE.rstrip() + f"\nsurfaces = {both}\n"

    read_both = read(file, f'[rewrite]\nsurfaces = ["weekly_feedback"]\n{route}').rewrite
    by_variable = read(file, "", HOLDFAST_REWRITE_SURFACES="weekly_feedback").rewrite

    assert read_both.surfaces == by_variable.surfaces == ("weekly_harmony",)
    assert read_both.routes[0].surfaces == ("weekly_harmony", "other")
    assert RouteSettings(**ROW, surfaces=("weekly_feedback",)).surfaces == ("weekly_harmony",)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (RewriteSettings, {"classifier": "oracle"}),
        (RewriteSettings, {"classifier": "llm"}),
        (RewriteSettings, {"classifier_timeout_seconds": 0}),
        (RewriteSettings, {"reveal_delay_seconds": -1}),
        (RewriteSettings, {"surfaces": ()}),
        (RewriteSettings, {"surfaces": ("weekly",)}),
        (RewriteSettings, {"keep_original_days": 0}),
        (RewriteSettings, {"keep_rewritten_days": 1, "reveal_delay_seconds": 86_400}),
        (RewriteSettings, {"abandoned_seconds": 5, "classifier_timeout_seconds": 5}),
        (RewriteSettings, {"classifier_route": None}),
        (RewriteSettings, {"classifier_route": ClassifierRouteSettings(model="tiny")}),
        (RewriteSettings, {"routes": ("somewhere",)}),
        (RouteSettings, {}),
        (RouteSettings, {**ROW, "provider": ""}),
        (RouteSettings, {**ROW, "model": "two words"}),
        (RouteSettings, {**ROW, "prompt_version": "latest"}),
        (RouteSettings, {**ROW, "execution_mode": "soon"}),
        (RouteSettings, {**ROW, "high_quality": "yes"}),
        (RouteSettings, {**ROW, "surfaces": ()}),
        (RouteSettings, {**ROW, "target_locales": ("en-US",)}),
        (RouteSettings, {**ROW, "target_locales": ("en", "en")}),
        (RouteSettings, {**ROW, "max_retries": -1}),
    ],
)
def test_what_cannot_be_is_refused(kind: type, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        kind(**wrong)


def test_a_model_that_rewrites_does_not_classify() -> None:
    large = ClassifierRouteSettings(**ROW)

    with pytest.raises(ConfigError, match="a model that also rewrites"):
        RewriteSettings(routes=(RouteSettings(**ROW),), classifier_route=large)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rewrite.routes]]\nmodel = 'm'", "adapter_kind is needed: lower-case letters"),
        (ROUTE.replace('"openai"', '"nobody"'), "rewrite.routes 1: provider = 'nobody' is not"),
        (CLASSIFIER.replace('"openai"', '"nobody"'), "rewrite.classifier_route.provider ="),
        (CLASSIFIER.replace("model =", "modle ="), "rewrite.classifier_route.modle is an unknown"),
        (ROUTE.replace("high_quality", "hi_quality"), "did you mean 'high_quality'? (route 1)"),
        ("[rewrite]\nclassifier_route = 3", "must be a table: [rewrite.classifier_route]"),
        ("[rewrite]\nroutes = 3", "must be tables: [[rewrite.routes]]"),
        ("[rewrite]\nclasifier = 'llm'", "holdfast.toml:2: rewrite.clasifier is an unknown key"),
    ],
)  # fmt: skip
def test_a_refusal_names_its_place(file: Path, text: str, says: str) -> None:
    assert says in refusal(file, text)


def test_the_settings_in_force_can_be_shown_with_their_places(file: Path) -> None:
    file.write_text(ROUTE + CLASSIFIER)

    shown = {item.key: item for item in show(load(env={}, file=file))}

    assert shown["rewrite.classifier_route.model"].value == "tiny"
    assert shown["rewrite.classifier_route.model"].where == f"{file}:13"
    assert shown["rewrite.routes"].value[0]["model"] == "large"
    assert shown["rewrite.reveal_delay_seconds"].source == "default"


def test_a_file_may_set_one_thing_about_the_orchestrators_run_and_leave_the_rest(
    tmp_path: Path,
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("[runs.rewrite_orchestrator]\nmax_runtime_seconds = 20\n")

    run = Settings.load(env={}, file=file).run_of("rewrite_orchestrator")

    assert run.max_runtime_seconds == 20
    assert (str(run.schedule), run.max_jobs_per_run) == ("every 1m", 10_000)
