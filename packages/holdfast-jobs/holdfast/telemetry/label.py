"""Metric label values from closed sets, so that callers cannot create series.

A job type, a queue or an error class may come from a caller. Only declared ones are kept; all
others become ``other``. Ids and tenants are never labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.app import Holdfast
from holdfast.config import Settings
from holdfast.errors import Failure
from holdfast.outbox.in_app import CHANNEL as IN_APP

OTHER = "other"
OWN_ERROR_CLASSES = 100
"""The maximum number of application error classes; further ones become ``other``."""

_ERROR_CLASS = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


class Labels:
    """The closed sets of one application. Later declarations are included."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._queues: frozenset[str] = frozenset()
        self._own: dict[str, None] = {}
        self._ours = frozenset(
            kind.error_class for kind in _failures(Failure) if _is_ours(kind)
        ) | {Failure.error_class}

    @property
    def job_types(self) -> list[str]:
        return list(self._hf.registry.handlers)

    def job_type(self, given: str) -> str:
        return given if given in self._hf.registry else OTHER

    def queue(self, given: str) -> str:
        if given not in self._queues:
            self._queues = frozenset(self._hf.known_queues)
        return given if given in self._queues else OTHER

    def error_class(self, given: str) -> str:
        if given in self._ours or given in self._own:
            return given
        self._look_for_own()
        return given if given in self._own or given in self._of_extensions() else OTHER

    def _of_extensions(self) -> set[str]:
        return {
            kind.error_class
            for extension in self._hf.extensions.available()
            for kind in extension.error_classes
        }

    @property
    def settings(self) -> Settings:
        return self._hf.settings

    def channel(self, given: str) -> str:
        return given if given == IN_APP or given in self._hf.settings.channels else OTHER

    def run(self, given: str) -> str:
        return given if given in self._hf.settings.runs else OTHER

    def schedule(self, given: str) -> str:
        settings = self._hf.settings
        # A run with a cadence is also a schedule of the same name.
        declared = (self._hf.schedules.by_name, settings.schedules, settings.runs)
        return given if any(given in names for names in declared) else OTHER

    def _look_for_own(self) -> None:
        """Find the error classes that the application declared."""
        for kind in _failures(Failure):
            if len(self._own) >= OWN_ERROR_CLASSES:
                return
            name = kind.error_class
            if name not in self._ours and _ERROR_CLASS.fullmatch(name):
                self._own[name] = None


def _is_ours(kind: type[Failure]) -> bool:
    return kind.__module__.partition(".")[0] == "holdfast"


def _failures(kind: type[Failure]) -> Iterator[type[Failure]]:
    for child in kind.__subclasses__():
        yield child
        yield from _failures(child)
