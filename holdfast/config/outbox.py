"""The section of holdfast.toml about the outbox: its key, and its patience."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.kind import Section, number, setting, text, whole


@dataclass(frozen=True, slots=True)
class OutboxSettings(Section):
    """How deliveries are named, tried and left alone."""

    # What tokens are made with; empty means the database's own. Another key is another token.
    key: str = setting("", text(is_secret=True))
    # Longer than any channel takes for a call: nobody sends what another may still be sending.
    lease_seconds: float = setting(300.0, number(10, 86_400))
    # So many tries at the most where each may be another message.
    max_attempts: int = setting(10, whole(1, 100))
    # For so long a channel that takes nothing is tried again, and one that cannot be asked is asked
    # again.
    patience_seconds: float = setting(86_400.0, number(0, 30 * 86_400))
    # What was left for so long is the reconciler's; before that it is its own job's.
    grace_seconds: float = setting(60.0, number(0, 86_400))
