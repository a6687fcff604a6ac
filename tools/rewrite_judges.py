"""Judges for the evaluation: scripted with known error rates, recorded, of a provider or module."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Protocol, cast

from holdfast.config import Settings
from holdfast.errors import ConfigError
from tools.rewrite_pairs import Pair


class Verdict(StrEnum):
    """The answer of a judge. Without an answer a rewrite is held."""

    STORE = "store"
    HOLD = "hold"
    NONE = "none"


class EvalJudge(Protocol):
    """Judges one pair. It must not read the label of the pair, unless it is scripted."""

    @property
    def name(self) -> str: ...

    def verdict(self, pair: Pair) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class ScriptedJudge:
    """Knows the labels and errs at known rates, on pairs chosen by the hash of their id.

    Of the bad pairs it finds the share *recall*, of the good pairs it passes the share
    *specificity*, both rounded to whole pairs.
    """

    name: str
    errs: frozenset[str]

    @classmethod
    def over(
        cls,
        pairs: Iterable[Pair],
        *,
        recall: float = 0.90,
        specificity: float = 0.95,
        seed: int = 0,
    ) -> ScriptedJudge:
        """Build the judge for a set of pairs; another seed errs on other pairs."""
        good: list[str] = []
        bad: list[str] = []
        for pair in pairs:
            (good if pair.is_good else bad).append(pair.pair_id)
        errs = [*_share(good, 1 - specificity, seed), *_share(bad, 1 - recall, seed)]
        return cls(f"scripted, recall {recall:.0%}, specificity {specificity:.0%}", frozenset(errs))

    def verdict(self, pair: Pair) -> Verdict:
        is_passed = pair.is_good != (pair.pair_id in self.errs)
        return Verdict.STORE if is_passed else Verdict.HOLD


def _share(ids: list[str], share: float, seed: int) -> list[str]:
    ranked = sorted(ids, key=lambda one: sha256(f"{seed} {one}".encode()).digest())
    return ranked[: round(share * len(ids))]


@dataclass(frozen=True, slots=True)
class RecordedJudge:
    """Replays verdicts from a file of ``{"pair_id", "verdict"}`` lines; unknown pairs get none."""

    name: str
    verdicts: Mapping[str, Verdict]

    @classmethod
    def read(cls, path: Path) -> RecordedJudge:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        return cls(
            f"recorded, {path.name}",
            {line["pair_id"]: Verdict(line["verdict"]) for line in lines},
        )

    def verdict(self, pair: Pair) -> Verdict:
        return self.verdicts.get(pair.pair_id, Verdict.NONE)


class UnknownJudge(Exception):
    """A route that names no judge; the message lists the valid routes."""


def load_judge(route: str, pairs: Iterable[Pair]) -> EvalJudge:
    """Return the judge of a route. Raises UnknownJudge.

    `scripted`; `provider`, the judge of holdfast.toml; a file of recorded verdicts; or
    `module:factory`, whose factory takes no arguments and returns an EvalJudge.
    """
    if route == "scripted":
        return ScriptedJudge.over(pairs)
    if route == "provider":
        return _provider()
    if ":" in route and not Path(route).exists():
        return _made_by(route)
    try:
        return RecordedJudge.read(Path(route))
    except (OSError, ValueError, KeyError, TypeError):
        raise UnknownJudge(
            f"{route} is no judge: name scripted, provider, module:factory, or a file of lines"
            ' like {"pair_id": "…", "verdict": "store"}.'
        ) from None


def _provider() -> EvalJudge:
    from tools.rewrite_provider_judge import ProviderJudge

    try:
        return ProviderJudge(Settings.load())
    except ConfigError as exc:
        raise UnknownJudge(str(exc)) from None


def _made_by(route: str) -> EvalJudge:
    module, _, factory = route.partition(":")
    try:
        return cast(Callable[[], EvalJudge], getattr(importlib.import_module(module), factory))()
    except ImportError as exc:
        raise UnknownJudge(f"{route} is no judge: {exc}.") from None
    except AttributeError:
        raise UnknownJudge(f"{route} is no judge: {module} has no {factory}.") from None


@dataclass(slots=True)
class Recording:
    """Keeps the verdicts of another judge in a file, for RecordedJudge."""

    judge: EvalJudge
    path: Path

    @property
    def name(self) -> str:
        return self.judge.name

    def verdict(self, pair: Pair) -> Verdict:
        found = self.judge.verdict(pair)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"pair_id": pair.pair_id, "verdict": found.value}) + "\n")
        return found
