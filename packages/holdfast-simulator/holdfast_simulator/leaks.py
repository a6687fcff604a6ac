"""The leak detector: tracks canary words that mark one person's text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast_simulator.prompt import Prompt

CANARY = re.compile(r"canary-[0-9A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Leak:
    """A canary text that was found where it must not be."""

    canary: str
    where: str
    detail: str = ""


class Leaks:
    """Canaries are words like ``canary-7f3a`` in test texts, one per person.

    These are leaks: one request with the canaries of two people, an item that returns with another
    person's canary, and a canary outside a request body, such as in a name, metadata, a URL or a
    header.
    """

    def __init__(self) -> None:
        self._found: dict[Leak, None] = {}
        self._of_item: dict[str, str] = {}

    def owner(self, text: str) -> str | None:
        """Return the first canary in a text."""
        found = CANARY.search(text)
        return found.group() if found else None

    def scan(self, prompt: Prompt) -> None:
        """Check one request to a model."""
        seen = sorted(set(CANARY.findall(_all_text(prompt))))
        item = prompt.custom_id
        for canary in seen[1:]:
            self._add(Leak(canary, "request", f"together with {seen[0]}"))
        if item is not None and seen:
            first = self._of_item.setdefault(item, seen[0])
            if first != seen[0]:
                self._add(Leak(seen[0], "item", f"{item} was {first}'s before"))
        self.forbid("custom_id", item or "")
        self.forbid("instructions", prompt.instructions)

    def forbid(self, where: str, *texts: str) -> None:
        """Check texts that must not contain a canary, such as names, headers or logs."""
        for text in texts:
            for canary in CANARY.findall(text):
                self._add(Leak(canary, where))

    def clear(self) -> None:
        self._found.clear()
        self._of_item.clear()

    @property
    def found(self) -> list[Leak]:
        """Return all leaks, without duplicates."""
        return list(self._found)

    def _add(self, leak: Leak) -> None:
        self._found[leak] = None


def _all_text(prompt: Prompt) -> str:
    """Return all text of the provider's body, including fields that are not parsed."""
    return str(prompt.body) if prompt.body else prompt.text
