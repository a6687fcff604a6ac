"""The section of holdfast.toml about the outbox: its key, and its patience."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.kind import Section, number, refuse, setting, text, whole


@dataclass(frozen=True, slots=True)
class OutboxSettings(Section):
    """How deliveries are named, tried and left alone."""

    # What tokens are made with; empty means the database's own. Another key is another token.
    key: str = setting("", text(is_secret=True))
    # Longer than any channel takes for a call: nobody sends what another may still be sending.
    lease_seconds: float = setting(300.0, number(10, 86_400))
    # No delivery is tried more often.
    max_attempts: int = setting(10, whole(1, 100))
    # For so long a channel that cannot be asked is asked again.
    patience_seconds: float = setting(86_400.0, number(0, 30 * 86_400))
    # A channel that refuses us is left alone for so long, each time four times as long.
    circuit_seconds: float = setting(900.0, number(1, 7 * 86_400))
    max_circuit_seconds: float = setting(86_400.0, number(1, 30 * 86_400))
    # What was left for so long is the reconciler's; before that it is its own job's.
    grace_seconds: float = setting(60.0, number(0, 86_400))

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.max_circuit_seconds < self.circuit_seconds:
            says = (
                f"max_circuit_seconds = {self.max_circuit_seconds:g} is less than"
                f" circuit_seconds = {self.circuit_seconds:g}"
            )
            refuse("OutboxSettings cannot be used", [says])
