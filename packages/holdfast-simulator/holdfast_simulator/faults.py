"""Fault rules: which script is played, when, how often, and against which requests."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast_simulator.message_scripts import MESSAGE_SCRIPTS
from holdfast_simulator.scripts import SCRIPTS, Moment, Script

__all__ = ["ALL_SCRIPTS", "Faults", "Moment", "Rule"]

# Scripts for model providers and for message channels.
ALL_SCRIPTS: dict[str, Script] = {**SCRIPTS, **MESSAGE_SCRIPTS}


@dataclass(slots=True)
class Rule:
    """A script and its target. A None matches everything."""

    name: str
    moment: Moment
    options: dict[str, Any]
    provider: str | None = None
    op: str | None = None
    method: str | None = None
    # A regular expression, searched in the path.
    path: str | None = None
    # Text that must occur in the request, or in the names and metadata of the batch.
    key: str | None = None
    # The first match that fires, counted from 1, and how often it fires; None: always.
    nth: int = 1
    times: int | None = 1
    probability: float = 1.0
    matched: int = 0
    fired: int = 0
    rng: random.Random = field(default_factory=random.Random, repr=False)

    def fires(self) -> bool:
        """Count one match and return whether the rule fires for it."""
        self.matched += 1
        if self.matched < self.nth or (self.times is not None and self.fired >= self.times):
            return False
        if self.probability < 1.0 and self.rng.random() >= self.probability:
            return False
        self.fired += 1
        return True


class Faults:
    """The active rules, in the order in which they were added."""

    def __init__(self, seed: int, providers: Callable[[], Collection[str]]) -> None:
        self._seed = seed
        self._providers = providers
        self._lock = threading.Lock()
        self._added = 0
        self.rules: list[Rule] = []

    def add(
        self,
        name: str,
        *,
        provider: str | None = None,
        op: str | None = None,
        method: str | None = None,
        path: str | None = None,
        key: str | None = None,
        nth: int = 1,
        times: int | None = 1,
        probability: float = 1.0,
        **options: Any,
    ) -> Rule:
        """Play the script *name* from match number *nth* on, *times* times.

        ``times=None`` means always. *op* overrides the operation that the script targets.
        """
        script = ALL_SCRIPTS.get(name)
        if script is None:
            raise ValueError(f"there is no fault {name!r}; there are {', '.join(ALL_SCRIPTS)}")
        unknown = sorted(set(options) - set(script.options))
        if unknown:
            known = ", ".join(script.options) or "none"
            raise ValueError(f"{name} has no option {', '.join(unknown)}; its options are: {known}")
        if nth < 1 or (times is not None and times < 1) or not 0.0 < probability <= 1.0:
            raise ValueError("nth and times start at 1, and probability is above 0 and at most 1")
        if provider is not None and provider not in (there := self._providers()):
            # A fault that never matches would make a test that cannot fail.
            raise ValueError(f"there is no provider {provider!r}; there are {', '.join(there)}")
        with self._lock:
            self._added += 1
            rule = Rule(
                name,
                script.moment,
                {**script.options, **options},
                provider,
                op or script.op or None,
                method,
                path,
                key,
                nth,
                times,
                probability,
                rng=random.Random(f"{self._seed} {self._added}"),
            )
            self.rules.append(rule)
            return rule

    def remove(self, rule: Rule) -> None:
        """Remove one rule. Effects that it already had remain."""
        with self._lock:
            self.rules = [other for other in self.rules if other is not rule]

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self.rules = []

    def take(
        self, moment: Moment, provider: str, labels: Iterable[str], op: str | None = None
    ) -> list[Rule]:
        """Return the rules that fire for a target with these names, at most one of each script."""
        names = list(labels)
        taken: dict[str, Rule] = {}
        with self._lock:
            for rule in self.rules:
                if (
                    rule.moment is moment
                    and rule.name not in taken
                    and rule.provider in (None, provider)
                    and (op is None or rule.op == op)
                    and (rule.key is None or any(rule.key in name for name in names))
                    and rule.fires()
                ):
                    taken[rule.name] = rule
        return list(taken.values())

    def on_exchange(
        self, provider: str, op: str, method: str, path: str, key_in: bytes
    ) -> Rule | None:
        """Return the first rule that decides how a request is answered."""
        with self._lock:
            for rule in self.rules:
                if (
                    rule.moment is Moment.EXCHANGE
                    and rule.provider in (None, provider)
                    and rule.op in (None, op)
                    and rule.method in (None, method)
                    and (rule.path is None or re.search(rule.path, path))
                    and (rule.key is None or rule.key.encode() in key_in)
                    and rule.fires()
                ):
                    return rule
        return None

    def view(self) -> list[Mapping[str, Any]]:
        """Return the rules as plain values."""
        with self._lock:
            return [
                {
                    "name": rule.name,
                    "options": rule.options,
                    "provider": rule.provider,
                    "op": rule.op,
                    "method": rule.method,
                    "path": rule.path,
                    "key": rule.key,
                    "nth": rule.nth,
                    "times": rule.times,
                    "probability": rule.probability,
                    "matched": rule.matched,
                    "fired": rule.fired,
                }
                for rule in self.rules
            ]
