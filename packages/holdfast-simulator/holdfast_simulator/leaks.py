"""The leak detector: a text that belongs to one person carries a canary, and it is followed."""

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
    """Canaries are words like ``canary-7f3a`` in the texts of a test, one word a person.

    It is a leak if one request holds the canaries of two people, if an item's name comes back with
    another person's canary, and if a canary is in anything but a request: a name, metadata, an
    address, a header.
    """

    def __init__(self) -> None:
        self._found: dict[Leak, None] = {}
        self._of_item: dict[str, str] = {}

    def owner(self, text: str) -> str | None:
        """The first canary in a text."""
        found = CANARY.search(text)
        return found.group() if found else None

    def scan(self, prompt: Prompt) -> None:
        """Look at one request to a model."""
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
        """Look at texts that must not hold a canary: of the simulator or of anybody's, as logs."""
        for text in texts:
            for canary in CANARY.findall(text):
                self._add(Leak(canary, where))

    def clear(self) -> None:
        self._found.clear()
        self._of_item.clear()

    @property
    def found(self) -> list[Leak]:
        """Every leak there was, each once."""
        return list(self._found)

    def _add(self, leak: Leak) -> None:
        self._found[leak] = None


def _all_text(prompt: Prompt) -> str:
    """The provider's whole body, so that nothing hides in a field that nobody reads."""
    return str(prompt.body) if prompt.body else prompt.text
