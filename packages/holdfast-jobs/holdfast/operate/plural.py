"""Counts in messages."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 job``, ``5 jobs``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
