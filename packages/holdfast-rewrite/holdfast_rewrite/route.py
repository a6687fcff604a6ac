"""The router: selects the route of a request from a table. Pure.

Its input is surface, strength, languages and versions; never text, preferences, roles or feelings.
Without a matching row there is no route and no fallback.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.config import Settings
from holdfast.errors import ConfigError, HoldfastError
from holdfast_llm.batch.accounts import adapter_of, capabilities_of
from holdfast_llm.provider.route import ExecutionMode, Route
from holdfast_llm.settings import BUILT_IN_PROVIDERS
from holdfast_rewrite.enums import JOB_TYPE, Lane, Strength, Surface, VerdictBy
from holdfast_rewrite.judge_prompt import judge_versions
from holdfast_rewrite.language import BadLocale, normalize
from holdfast_rewrite.prompt import prompt_versions
from holdfast_rewrite.settings import RouteSettings


class NoRoute(HoldfastError):
    """No row of the routing table matches the request. There is no fallback. Add a row to
    `[[rewrite.routes]]`."""


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """RoutingRequestV1: the input of the routing decision."""

    task: str
    surface: Surface
    rewrite_strength: Strength
    source_locale: str
    target_locale: str
    lane: Lane
    policy_version: str


class Routes:
    """The routing table of a deployment. Construction raises ConfigError with every problem."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rows = settings.rewrite.routes
        problems = [*self._faults(), *self._judge_faults(), *_never_chosen(self._rows)]
        if not self._rows:
            problems.append("there is none: add [[rewrite.routes]] to holdfast.toml")
        if problems:
            raise ConfigError("Invalid rewrite routes: " + "; ".join(problems))

    def decide(self, request: RouteRequest) -> dict[str, Any]:
        """Return RoutingDecisionV1 for *request*, also the route of its job. Raises NoRoute."""
        _check(request)
        row = next((row for row in self._rows if _takes(row, request)), None)
        if row is None:
            raise NoRoute(
                f"No route matches {request.rewrite_strength} for {request.surface} from"
                f" {request.source_locale} to {request.target_locale}. Add one to"
                " [[rewrite.routes]]."
            )
        return {
            "provider": row.provider,
            "adapter_kind": row.adapter_kind,
            "base_url": _base_url(self._settings, row.provider),
            "model": row.model,
            "prompt_version": row.prompt_version,
            "policy_version": request.policy_version,
            "execution_mode": row.execution_mode,
            "supports_translation": row.supports_translation,
            "cache_eligible": row.cache_eligible,
            "max_retries": row.max_retries,
            "lane": request.lane.value,
            "source_locale": request.source_locale,
            "target_locale": request.target_locale,
            **self._verdict(request),
        }

    def _verdict(self, request: RouteRequest) -> dict[str, Any]:
        """Return who decides about the rewrite, fixed with its route, and the judge's route."""
        own = self._settings.rewrite
        judge = own.judge_route
        if judge.provider is None:
            by = VerdictBy.GATE if own.without_judge == "gate_only" else VerdictBy.PERSON
            return {"verdict_by": by.value}
        return {
            "verdict_by": VerdictBy.JUDGE.value,
            "judge": {
                "provider": judge.provider,
                "adapter_kind": judge.adapter_kind,
                "base_url": _base_url(self._settings, judge.provider),
                "model": judge.model,
                "prompt_version": judge.prompt_version,
                "policy_version": request.policy_version,
                "execution_mode": judge.execution_mode,
                "sends_temperature": judge.sends_temperature,
                "rejects": own.judge_rejects,
                # For attempts that end before the request is sent; a judge is asked once.
                "max_retries": 2,
                "lane": request.lane.value,
                "source_locale": request.source_locale,
                "target_locale": request.target_locale,
            },
        }

    @property
    def classifier(self) -> Route | None:
        """Return the route of the model classifier; None without one."""
        return classifier_route(self._settings)

    def _faults(self) -> list[str]:
        found = [
            f"route {at} {fault}"
            for at, row in enumerate(self._rows, 1)
            for fault in self._row_faults(row)
        ]
        if (asked := self.classifier) is not None:
            found += [
                f"classifier_route {fault}"
                for fault in self._adapter_faults(asked.provider, asked.adapter_kind, "async")
            ]
        return found

    def _judge_faults(self) -> list[str]:
        judge = self._settings.rewrite.judge_route
        if judge.provider is None or judge.adapter_kind is None:
            return []
        found = self._adapter_faults(judge.provider, judge.adapter_kind, judge.execution_mode)
        if judge.prompt_version not in judge_versions():
            known = ", ".join(sorted(judge_versions()))
            found.append(f"names prompt_version {judge.prompt_version!r}; known: {known}")
        return [f"judge_route {fault}" for fault in found]

    def _row_faults(self, row: RouteSettings) -> list[str]:
        found = self._adapter_faults(row.provider, row.adapter_kind, row.execution_mode)
        if row.prompt_version not in prompt_versions():
            known = ", ".join(sorted(prompt_versions()))
            found.append(f"names prompt_version {row.prompt_version!r}; known: {known}")
        for locale in (*row.source_locales, *row.target_locales):
            if not _is_language(locale):
                found.append(f"names {locale!r}, which is not a language")
        if not (row.supports_translation or _meet(row.source_locales, row.target_locales)):
            found.append("takes nothing: without supports_translation its two lists must meet")
        return found

    def _adapter_faults(self, provider: str, kind: str, mode: str) -> list[str]:
        account = self._settings.providers[provider]
        try:
            adapter = adapter_of(provider, account, kind)
        except ConfigError as exc:
            return [f"cannot be used with provider {provider!r}: {str(exc).rstrip('.')}"]
        if mode == "batch" and not capabilities_of(account, adapter.capabilities).supports_batches:
            return [f"sends batches to {provider!r}, which takes none; use execution_mode async"]
        return []


def classifier_route(settings: Settings) -> Route | None:
    """Return the route of the model classifier in the settings; None without one."""
    said = settings.rewrite.classifier_route
    if said.provider is None or said.adapter_kind is None or said.model is None:
        return None
    return Route(
        said.provider,
        said.adapter_kind,
        said.model,
        base_url=_base_url(settings, said.provider),
        execution_mode=ExecutionMode.ASYNC,
    )


def _base_url(settings: Settings, provider: str) -> str | None:
    """Return the provider's address if it is not the default."""
    address = settings.providers[provider].base_url
    usual = BUILT_IN_PROVIDERS.get(provider)
    return None if usual is not None and usual.base_url == address else address


def _check(request: RouteRequest) -> None:
    """Validate the request; the router does not trust its caller."""
    faults = []
    if request.task != JOB_TYPE:
        faults.append("task")
    if request.surface not in tuple(Surface):
        faults.append("surface")
    if request.rewrite_strength not in tuple(Strength):
        faults.append("rewrite_strength")
    for name in ("source_locale", "target_locale"):
        if not _is_language(getattr(request, name)):
            faults.append(name)
    if request.lane != Lane.between(request.source_locale, request.target_locale):
        faults.append("lane")
    if not request.policy_version:
        faults.append("policy_version")
    if faults:
        raise NoRoute(f"The request is invalid and has no route: check {', '.join(faults)}.")


def _takes(row: RouteSettings, request: RouteRequest) -> bool:
    return (
        request.surface in row.surfaces
        and (row.high_quality or request.rewrite_strength is Strength.LIGHT_TOUCH)
        and (row.supports_translation or request.lane is Lane.SAME_LANGUAGE)
        and _lets_in(row.source_locales, request.source_locale)
        and _lets_in(row.target_locales, request.target_locale)
    )


def _lets_in(locales: tuple[str, ...], locale: str) -> bool:
    return not locales or locale in locales


def _meet(sources: tuple[str, ...], targets: tuple[str, ...]) -> bool:
    return not (sources and targets) or bool(set(sources) & set(targets))


def _never_chosen(rows: Iterable[RouteSettings]) -> list[str]:
    """Return rows that an earlier row shadows."""
    found, above = [], list[RouteSettings]()
    for at, row in enumerate(rows, 1):
        for before, other in enumerate(above, 1):
            if _covers(other, row):
                found.append(f"route {at} is never chosen: route {before} takes all that it would")
                break
        above.append(row)
    return found


def _covers(one: RouteSettings, other: RouteSettings) -> bool:
    """Return whether *one* matches everything that *other* would."""
    return (
        set(one.surfaces) >= set(other.surfaces)
        and one.high_quality >= other.high_quality
        and one.supports_translation >= other.supports_translation
        and _covers_all(one.source_locales, other.source_locales)
        and _covers_all(one.target_locales, other.target_locales)
    )


def _covers_all(locales: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return not locales or (bool(others) and set(locales) >= set(others))


def _is_language(locale: str) -> bool:
    try:
        return normalize(locale) == locale
    except BadLocale:
        return False
