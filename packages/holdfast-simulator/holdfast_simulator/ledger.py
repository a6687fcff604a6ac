"""The billing oracle: the executions that a provider would bill."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from holdfast_simulator.prompt import Prompt, Said


@dataclass(frozen=True, slots=True)
class Charge:
    """One billed execution. Input includes cached tokens, output includes reasoning tokens."""

    provider: str
    account: str
    model: str
    # The unit that must be billed once.
    unit: str
    # None for a direct call.
    custom_id: str | None
    batch_id: str | None
    at: datetime
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int

    @classmethod
    def for_prompt(
        cls, prompt: Prompt, answered: Said, account: str, unit: str, at: datetime
    ) -> Charge:
        """Build the charge for an answered request."""
        return cls(
            prompt.provider,
            account,
            answered.model or prompt.model,
            unit,
            prompt.custom_id,
            prompt.batch_id,
            at,
            answered.input_tokens or 0,
            answered.cached_tokens,
            answered.output_tokens or 0,
            answered.reasoning_tokens,
        )


class Ledger:
    """All charges, in order of execution. Reading it advances the simulation first."""

    def __init__(self, pass_time: Callable[[], None]) -> None:
        self._pass_time = pass_time
        self._charges: list[Charge] = []
        self._lock = threading.Lock()

    def charge(self, charge: Charge) -> None:
        with self._lock:
            self._charges.append(charge)

    def clear(self) -> None:
        with self._lock:
            self._charges.clear()

    @property
    def charges(self) -> list[Charge]:
        self._pass_time()
        with self._lock:
            return list(self._charges)

    def by_unit(self) -> dict[str, list[Charge]]:
        """Return the charges by unit, in the order of each unit's first charge."""
        found: dict[str, list[Charge]] = {}
        for charge in self.charges:
            found.setdefault(charge.unit, []).append(charge)
        return found

    def double_paid(self) -> dict[str, list[Charge]]:
        """Return the units that were billed more than once. It should be empty."""
        return {unit: charges for unit, charges in self.by_unit().items() if len(charges) > 1}

    def total(self) -> tuple[int, int]:
        """Return the total input and output tokens."""
        charges = self.charges
        return (
            sum(charge.input_tokens for charge in charges),
            sum(charge.output_tokens for charge in charges),
        )
