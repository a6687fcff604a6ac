"""The settings of the outbox."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.setting_type import Section, number, refuse, setting, text, whole


@dataclass(frozen=True, slots=True)
class OutboxSettings(Section):
    """Leases, attempts and circuits of deliveries: `[outbox]`."""

    key: str = setting("", text(is_secret=True))
    """Secret that delivery tokens are derived from. If empty, a key stored in the database is used.
    Changing it changes the tokens of new deliveries only."""
    lease_seconds: float = setting(300.0, number(10, 86_400))
    """Lease duration of a delivery. It is renewed after a quarter while the channel is called."""
    max_attempts: int = setting(10, whole(1, 100))
    """Maximum number of attempts per delivery."""
    patience_seconds: float = setting(86_400.0, number(0, 30 * 86_400))
    """How long the outbox keeps looking up an unknown send at an unreachable channel before it
    holds the delivery for an operator."""
    circuit_seconds: float = setting(900.0, number(1, 7 * 86_400))
    """How long the circuit of a channel stays open after it rejected the credential, permission or
    address. The time grows fourfold with each rejection."""
    max_circuit_seconds: float = setting(86_400.0, number(1, 30 * 86_400))
    """Maximum time that the circuit of a channel stays open."""
    grace_seconds: float = setting(60.0, number(0, 86_400))
    """How long a delivery is left to its own job before the run `outbox_reconciler` handles it."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.max_circuit_seconds < self.circuit_seconds:
            says = (
                f"max_circuit_seconds = {self.max_circuit_seconds:g} is less than"
                f" circuit_seconds = {self.circuit_seconds:g}"
            )
            refuse("Invalid OutboxSettings", [says])
