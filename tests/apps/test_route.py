"""The router: the first row that takes a request decides, and where none does there is no route."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from holdfast import ConfigError, Settings
from holdfast_llm.provider.route import ExecutionMode, Route
from holdfast_llm.settings import BUILT_IN_PROVIDERS, ProviderSettings
from holdfast_rewrite.enums import JOB_TYPE, Lane, Strength, Surface
from holdfast_rewrite.route import NoRoute, RouteRequest, Routes
from holdfast_rewrite.settings import ClassifierRouteSettings, RewriteSettings, RouteSettings

SMALL = RouteSettings(
    provider="openai",
    adapter_kind="openai_responses",
    model="small",
    surfaces=("weekly_harmony",),
)
LARGE = RouteSettings(
    provider="openai",
    adapter_kind="openai_responses",
    model="large",
    execution_mode="async",
    high_quality=True,
    supports_translation=True,
    surfaces=("weekly_harmony", "direct_message"),
)


def routes(*rows: RouteSettings, **more: Any) -> Routes:
    return Routes(Settings(rewrite=RewriteSettings(routes=rows), **more))


def asked(
    strength: Strength = Strength.LIGHT_TOUCH,
    source: str = "en",
    target: str = "en",
    surface: Surface = Surface.WEEKLY_HARMONY,
) -> RouteRequest:
    lane = Lane.between(source, target)
    return RouteRequest(JOB_TYPE, surface, strength, source, target, lane, "v1")


@pytest.mark.req("J-21")
def test_a_decision_has_every_field_and_is_the_route_of_a_job() -> None:
    decision = routes(SMALL, LARGE).decide(asked(Strength.FULL_REFRAME, "en", "es"))

    assert decision == {
        "provider": "openai",
        "adapter_kind": "openai_responses",
        "base_url": None,
        "model": "large",
        "prompt_version": "v1",
        "policy_version": "v1",
        "execution_mode": "async",
        "supports_translation": True,
        "cache_eligible": False,
        "max_retries": 2,
        "lane": "cross_language",
        "source_locale": "en",
        "target_locale": "es",
        "verdict_by": "person",
    }
    route = Route.read(decision)
    assert route.group_key == "openai|large|v1|v1|async|cross_language|en|es"
    assert route.max_attempts == 3


@pytest.mark.parametrize(
    ("request_", "model"),
    [
        (asked(), "small"),
        (asked(source="de", target="de"), "small"),
        # A small model gets light touches only.
        (asked(Strength.FULL_REFRAME), "large"),
        # One that does not translate gets one language only.
        (asked(source="en", target="es"), "large"),
        (asked(surface=Surface.DIRECT_MESSAGE), "large"),
    ],
)
def test_strength_surface_and_languages_decide(request_: RouteRequest, model: str) -> None:
    assert routes(SMALL, LARGE).decide(request_)["model"] == model


def test_the_first_row_that_takes_a_request_decides() -> None:
    spanish = replace(LARGE, model="spanish", target_locales=("es",))

    table = routes(spanish, LARGE)

    assert table.decide(asked(source="en", target="es"))["model"] == "spanish"
    assert table.decide(asked(source="es", target="en"))["model"] == "large"


@pytest.mark.parametrize(
    "request_",
    [
        asked(surface=Surface.OTHER),
        replace(asked(), task="summary"),
        replace(asked(), surface="weekly_feedback"),
        replace(asked(), rewrite_strength="gentle"),
        replace(asked(), lane=Lane.CROSS_LANGUAGE),
        replace(asked(), source_locale=""),
        replace(asked(), target_locale="unknown", lane=Lane.CROSS_LANGUAGE),
        replace(asked(), source_locale="en-US", target_locale="en-US"),
        replace(asked(), policy_version=""),
    ],
)
def test_what_no_row_takes_or_is_no_request_has_no_route(request_: RouteRequest) -> None:
    with pytest.raises(NoRoute):
        routes(SMALL, LARGE).decide(request_)


def test_there_is_no_fallback_to_a_weaker_model() -> None:
    small = replace(SMALL, supports_translation=True)

    with pytest.raises(NoRoute, match="full_reframe for weekly_harmony from en to es"):
        routes(small).decide(asked(Strength.FULL_REFRAME, "en", "es"))


@pytest.mark.req("L-13")
def test_the_lane_is_language_equality_and_nothing_else() -> None:
    table = routes(LARGE)
    for strength in Strength:
        for surface in (Surface.WEEKLY_HARMONY, Surface.DIRECT_MESSAGE):
            assert table.decide(asked(strength, "pt", "pt", surface))["lane"] == "same_language"
            assert table.decide(asked(strength, "pt", "es", surface))["lane"] == "cross_language"


@pytest.mark.req("O-14", "J-22")
def test_the_router_has_no_place_for_a_text_a_preference_a_role_or_a_feeling() -> None:
    assert {item.name for item in fields(RouteRequest)} == {
        "task",
        "surface",
        "rewrite_strength",
        "source_locale",
        "target_locale",
        "lane",
        "policy_version",
    }


def test_the_same_request_gets_the_same_decision() -> None:
    one, other = routes(SMALL, LARGE), routes(SMALL, LARGE)

    assert one.decide(asked()) == other.decide(asked()) == one.decide(asked())


@pytest.mark.req("J-14")
def test_an_address_is_named_where_it_is_not_the_usual_one() -> None:
    moved = replace(BUILT_IN_PROVIDERS["openai"], base_url="https://eu.example.com/v1")

    decision = routes(LARGE, providers={"openai": moved}).decide(asked())

    assert decision["base_url"] == "https://eu.example.com/v1"


# -- what is wrong is told at the start


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ((), "there is none: add [[rewrite.routes]]"),
        (
            (replace(LARGE, adapter_kind="carrier_pigeon"),),
            "route 1 cannot be used with provider 'openai'",
        ),
        ((replace(LARGE, prompt_version="v9"),), "names prompt_version 'v9'; known: v1"),
        ((replace(LARGE, target_locales=("xq",)),), "names 'xq', which is not a language"),
        ((LARGE, replace(SMALL, surfaces=("direct_message",))), "route 2 is never chosen: route 1"),
        ((LARGE, LARGE), "route 2 is never chosen"),
        ((replace(LARGE, target_locales=("es", "de")), replace(LARGE, target_locales=("de",))),
         "route 2 is never chosen"),
        ((replace(SMALL, source_locales=("en",), target_locales=("de",)),), "takes nothing"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_work_is_refused_at_the_start(
    rows: tuple[RouteSettings, ...], says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        routes(*rows)

    assert says in str(refused.value)


def test_every_fault_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        routes(replace(LARGE, prompt_version="v9"), replace(SMALL, adapter_kind="pigeon"))

    assert "route 1 " in str(refused.value)
    assert "route 2 " in str(refused.value)


def test_a_row_that_differs_in_one_thing_is_no_double() -> None:
    routes(SMALL, LARGE, replace(LARGE, surfaces=("other",)))
    routes(replace(LARGE, target_locales=("es",)), LARGE)


def test_batches_are_not_routed_to_a_server_that_takes_none() -> None:
    inhouse = ProviderSettings(
        base_url="http://10.0.0.7/v1", allow_private=True, supports_batches=False
    )
    row = replace(LARGE, provider="inhouse", execution_mode="batch")

    with pytest.raises(ConfigError, match="takes none; use execution_mode async"):
        routes(row, providers={"inhouse": inhouse})
    assert routes(replace(row, execution_mode="async"), providers={"inhouse": inhouse})


def test_the_classifier_has_a_route_of_its_own_or_none() -> None:
    tiny = ClassifierRouteSettings(provider="openai", adapter_kind="openai_responses", model="tiny")
    settings = Settings(rewrite=RewriteSettings(routes=(LARGE,), classifier_route=tiny))

    found = Routes(settings).classifier

    assert found is not None
    assert (found.model, found.execution_mode) == ("tiny", ExecutionMode.ASYNC)
    assert routes(LARGE).classifier is None
    wrong = replace(tiny, adapter_kind="pigeon")
    with pytest.raises(ConfigError, match="classifier_route cannot be used"):
        Routes(Settings(rewrite=RewriteSettings(routes=(LARGE,), classifier_route=wrong)))
