"""The settings of the complaint rewrite."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.config import BUILT_IN_QUEUES, Cadence, RunSettings
from holdfast.config.setting_type import (
    FLAG,
    PLAIN_NAME,
    Section,
    number,
    one_of,
    refuse,
    rows,
    setting,
    text,
    texts,
    whole,
)
from holdfast_llm.settings import batch_runs

MODES = ("batch", "async")
CLASSIFIERS = ("local", "llm")
WITHOUT_JUDGE = ("hold", "gate_only")
SURFACES = ("weekly_harmony", "direct_message", "other")
# Alternative surface names, and the stored ones.
ALSO_CALLED = {"weekly_feedback": "weekly_harmony"}

_MODEL = text("a model's name", re.compile(r"[^\s*]{1,200}"))
_VERSION = text("the version of a prompt such as v1", re.compile(r"v[0-9]{1,6}"))
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_SURFACES = texts(
    f"a list of at least one surface: {', '.join((*SURFACES, *ALSO_CALLED))}",
    lambda v: v in SURFACES or v in ALSO_CALLED,
    some=True,
)
_LANGUAGES = texts('a list of languages such as "en"', lambda v: _LANGUAGE.fullmatch(v) is not None)


@dataclass(frozen=True, slots=True)
class RouteSettings(Section):
    """One row of the routing table: which requests it takes, and which model rewrites them.

    The first row that matches a request is used.
    """

    provider: str = setting("", PLAIN_NAME)
    """Provider of `[providers.NAME]`."""
    adapter_kind: str = setting("", PLAIN_NAME)
    """Adapter for the provider's API, such as `openai_responses`."""
    model: str = setting("", _MODEL)
    """Model name."""
    prompt_version: str = setting("v1", _VERSION)
    """Version of the prompt: `v1` or `v2`."""
    execution_mode: str = setting("batch", one_of(MODES))
    """`batch` uses the provider's batch API, `async` makes a direct call."""
    high_quality: bool = setting(False, FLAG)
    """Whether the model may do full reframes. If false, the route takes light touches only."""
    supports_translation: bool = setting(False, FLAG)
    """Whether the model may translate. If false, the route takes requests within one language
    only."""
    surfaces: tuple[str, ...] = setting(SURFACES, _SURFACES)
    """Surfaces that the route takes."""
    source_locales: tuple[str, ...] = setting((), _LANGUAGES)
    """Languages of messages that the route takes. If empty, all languages."""
    target_locales: tuple[str, ...] = setting((), _LANGUAGES)
    """Languages of recipients that the route takes. If empty, all languages."""
    max_retries: int = setting(2, whole(0, 10))
    """Number of retries of a failed model request."""
    cache_eligible: bool = setting(False, FLAG)
    """Whether the output of an identical request between the same two people may be reused."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        _keep_one_name(self)


@dataclass(frozen=True, slots=True)
class ClassifierRouteSettings(Section):
    """The model that classifies messages. It must not be a model that rewrites."""

    provider: str | None = setting(None, PLAIN_NAME)
    """Provider of `[providers.NAME]`. Set all three keys or none."""
    adapter_kind: str | None = setting(None, PLAIN_NAME)
    """Adapter for the provider's API, such as `openai_responses`."""
    model: str | None = setting(None, _MODEL)
    """Model name. It must differ from the models that rewrite."""

    @property
    def is_whole(self) -> bool:
        """True if provider, model and the other required keys are all set."""
        return None not in (self.provider, self.adapter_kind, self.model)

    @property
    def is_empty(self) -> bool:
        """True if none of the keys is set."""
        return self == ClassifierRouteSettings()


@dataclass(frozen=True, slots=True)
class JudgeRouteSettings(Section):
    """The model that judges rewrites. It must not be a model that rewrites."""

    provider: str | None = setting(None, PLAIN_NAME)
    """Provider of `[providers.NAME]`. Set provider, adapter_kind and model, or none of them."""
    adapter_kind: str | None = setting(None, PLAIN_NAME)
    """Adapter for the provider's API, such as `openai_responses`."""
    model: str | None = setting(None, _MODEL)
    """Model name. It must differ from the models that rewrite."""
    prompt_version: str = setting("v1", _VERSION)
    """Version of the judge's prompt."""
    execution_mode: str = setting("batch", one_of(MODES))
    """`batch` uses the provider's batch API, `async` makes a direct call."""
    sends_temperature: bool = setting(True, FLAG)
    """Whether temperature 0 is sent. Set it to false for models that refuse the parameter."""

    @property
    def is_whole(self) -> bool:
        """True if provider, adapter_kind and model are all set."""
        return None not in (self.provider, self.adapter_kind, self.model)

    @property
    def is_empty(self) -> bool:
        """True if none of them is set."""
        return (self.provider, self.adapter_kind, self.model) == (None, None, None)


@dataclass(frozen=True, slots=True)
class RewriteSettings(Section):
    """Classifier, routes and retention of the complaint rewrite: `[rewrite]`."""

    classifier: str = setting("local", one_of(CLASSIFIERS))
    """Classifier of messages: `local` uses rules without network access, `llm` the model of
    `[rewrite.classifier_route]`."""
    classifier_timeout_seconds: float = setting(5.0, number(0.05, 120))
    """Timeout of the classifier. After it, safe defaults are used."""
    reveal_delay_seconds: float = setting(86_400.0, number(0, 30 * 86_400))
    """Delay from the completion of a rewrite until its sender may read it."""
    surfaces: tuple[str, ...] = setting(SURFACES, _SURFACES)
    """Surfaces that messages are accepted from. In the environment variable, separate names by
    commas."""
    keep_original_days: int = setting(30, whole(1, 3650))
    """How long original messages are kept."""
    keep_rewritten_days: int = setting(365, whole(1, 3650))
    """How long rewrites are kept. It must be longer than the reveal delay."""
    abandoned_seconds: float = setting(300.0, number(1, 86_400))
    """How long a request may wait between two steps before another orchestrator continues it. It
    must be longer than the classifier timeout."""
    routes: tuple[RouteSettings, ...] = rows("[[rewrite.routes]]", RouteSettings)
    """Routing table. The first route that matches a request is used. A request without a matching
    route fails."""
    classifier_route: ClassifierRouteSettings = field(
        default_factory=ClassifierRouteSettings, metadata={"section": ClassifierRouteSettings}
    )
    """Model of the `llm` classifier."""
    judge_route: JudgeRouteSettings = field(
        default_factory=JudgeRouteSettings, metadata={"section": JudgeRouteSettings}
    )
    """Model that judges every rewrite that passed the gate."""
    judge_rejects: bool = setting(False, FLAG)
    """Whether a finding of the judge alone rejects a rewrite. If false, the rewrite is held for a
    person. A rewrite that both the gate and the judge object to is always rejected."""
    without_judge: str = setting("hold", one_of(WITHOUT_JUDGE))
    """What happens to rewrites that the gate did not refuse if `[rewrite.judge_route]` is not set.
    `hold` holds all of them for a person. `gate_only` stores them without a verdict on their
    meaning, also those that the gate warned about: on the sealed set, 267 of 869 bad rewrites
    (31 %). With a judge of 90 % recall and 95 % specificity it is 26 of 869 (3.0 %)."""
    held_alert_hours: float = setting(24.0, number(0.1, 24 * 365))
    """Age of a held rewrite from which `holdfast doctor` reports it."""
    keep_held_days: int = setting(30, whole(1, 3650))
    """How long a rewrite is held for a person. After that it is rejected and its text is erased."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        _keep_one_name(self)
        refuse(
            "Invalid RewriteSettings",
            [*self._lengths_at_odds(), *self._classifying(), *self._judging()],
        )

    def _lengths_at_odds(self) -> list[str]:
        found = []
        if self.abandoned_seconds <= self.classifier_timeout_seconds:
            found.append(
                f"abandoned_seconds = {self.abandoned_seconds:g} must be more than"
                f" classifier_timeout_seconds = {self.classifier_timeout_seconds:g}: a request that"
                " is being classified is not abandoned"
            )
        if self.keep_rewritten_days * 86_400 <= self.reveal_delay_seconds:
            found.append(
                f"keep_rewritten_days = {self.keep_rewritten_days} ends before the sender may read"
                f" the rewrite, after reveal_delay_seconds = {self.reveal_delay_seconds:g}"
            )
        return found

    def _classifying(self) -> list[str]:
        route, found = self.classifier_route, []
        if not isinstance(route, ClassifierRouteSettings):
            return ["classifier_route must be a ClassifierRouteSettings"]
        if not (route.is_whole or route.is_empty) or (route.is_empty and self.classifier == "llm"):
            found.append("classifier_route needs provider, adapter_kind and model")
        rewriting = {(row.provider, row.model) for row in self.routes}
        if (route.provider, route.model) in rewriting:
            found.append("classifier_route names a model that also rewrites; it must be another")
        return found

    def _judging(self) -> list[str]:
        route = self.judge_route
        if not isinstance(route, JudgeRouteSettings):
            return ["judge_route must be a JudgeRouteSettings"]
        found = []
        if not (route.is_whole or route.is_empty):
            found.append("judge_route needs provider, adapter_kind and model")
        if (route.provider, route.model) in {(row.provider, row.model) for row in self.routes}:
            found.append("judge_route names a model that also rewrites; it must be another")
        return found


def _keep_one_name(section: RouteSettings | RewriteSettings) -> None:
    kept = dict.fromkeys(ALSO_CALLED.get(name, name) for name in section.surfaces)
    object.__setattr__(section, "surfaces", tuple(kept))


def unknown_providers(rewrite: RewriteSettings, known: Collection[str]) -> list[str]:
    """Return the routes to undeclared providers."""
    named = [
        (f"rewrite.routes {at}: provider", row.provider) for at, row in enumerate(rewrite.routes, 1)
    ]
    if rewrite.classifier_route.provider is not None:
        named.append(("rewrite.classifier_route.provider", rewrite.classifier_route.provider))
    if rewrite.judge_route.provider is not None:
        named.append(("rewrite.judge_route.provider", rewrite.judge_route.provider))
    return [
        f"{where} = {provider!r} is not declared; there is: {', '.join(sorted(known))}"
        for where, provider in named
        if provider not in known
    ]


# The specification names the two scheduled functions of batch processing; they replace the generic
# runs of holdfast_llm.
BATCH_SUBMITTER = "rewrite_batch_submitter"
BATCH_COLLECTOR = "rewrite_batch_collector"
REWRITE_RUNS: Mapping[str, RunSettings] = {
    "rewrite_orchestrator": RunSettings(
        queues=tuple(BUILT_IN_QUEUES),
        max_jobs_per_run=10_000,
        schedule=Cadence(every=timedelta(minutes=1)),
    ),
    **batch_runs(BATCH_SUBMITTER, BATCH_COLLECTOR),
}
