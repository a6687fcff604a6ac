"""docs/reference/errors.md: every error class, from the docstrings of the classes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.errors import Failure, HoldfastError, Signal
from reference_pages.page import Page, code, introduction, paragraphs
from reference_pages.source import subclasses

TITLES = {
    "holdfast": "the core",
    "holdfast_llm": "batch processing",
    "holdfast_rewrite": "the complaint rewrite",
    "holdfast_review": "the review critic",
}
COLUMNS = ("Error class", "Python class", "Retried", "Pages", "Meaning", "Fault", "Remedy")


def build() -> Page:
    page = Page()
    page.add(introduction("errors"), "## Failures of jobs")
    page.add(
        "A failure ends an attempt. *Error class* is the value that rows, logs, metrics and"
        " operators see. *Pages*: the log line of the dead letter has `page` set, and the alert is"
        " critical."
    )
    failures = [kind for kind in [Failure, *subclasses(Failure)] if not _is_internal(kind)]
    for package, title in TITLES.items():
        page.add(f"### Failures of {title}")
        page.table(COLUMNS, (_failure(page, kind) for kind in _of(package, failures)))
    page.add("## Errors of calls")
    page.add(
        "A wrong call raises one of these and writes nothing. All are subclasses of"
        " `HoldfastError`. *Subclass of* shows what else an `except` clause catches them with."
    )
    others = [kind for kind in subclasses(HoldfastError) if not issubclass(kind, Failure)]
    others.insert(0, HoldfastError)
    for package, title in TITLES.items():
        rows = [_error(page, kind) for kind in _of(package, others) if not _is_internal(kind)]
        if rows:
            page.add(f"### Errors of {title}")
            page.table(("Class", "Module", "Subclass of", "Meaning"), rows)
    page.add("## Signals")
    page.add(
        "A handler raises a signal to the engine. Signals are no errors: they derive from"
        " `BaseException`, so that `except Exception` in a handler does not catch them."
    )
    signals = [kind for kind in subclasses(Signal) if not _is_internal(kind)]
    page.table(("Class", "Meaning"), ([code(k.__name__), _meaning(page, k)] for k in signals))
    return page


def _is_internal(kind: type) -> bool:
    """Return whether it is a subclass with its parent's class that never leaves its module."""
    parent = kind.__mro__[1]
    if kind.__name__.startswith("_") and issubclass(kind, Failure):
        return getattr(parent, "error_class", None) == kind.error_class
    return kind.__name__.startswith("_")


def _of(package: str, kinds: Iterable[type]) -> list[type]:
    return [kind for kind in kinds if kind.__module__.partition(".")[0] == package]


def _failure(page: Page, kind: type[Failure]) -> list[str]:
    text = " ".join(" ".join(paragraphs(vars(kind).get("__doc__"))).split())
    found = re.fullmatch(r"(.*?) Fault: (.*?) Remedy: (.*)", text)
    if found is None:
        page.problems.append(f"{kind.__name__} does not name a fault and a remedy")
        return []
    meaning, fault, remedy = (part[0].upper() + part[1:] for part in found.groups())
    name = "" if kind.__name__.startswith("_") else code(kind.__name__)
    retried = "yes" if kind.retryable else "no"
    pages = "yes" if kind.pages_operator else "no"
    return [code(kind.error_class), name, retried, pages, meaning, fault, remedy]


def _error(page: Page, kind: type) -> list[str]:
    parent = kind.__mro__[1].__name__
    above = "" if parent == "Exception" else code(parent)
    module = "holdfast" if kind.__module__ == "holdfast.errors" else kind.__module__
    return [code(kind.__name__), code(module), above, _meaning(page, kind)]


def _meaning(page: Page, kind: type) -> str:
    said = " ".join(" ".join(paragraphs(vars(kind).get("__doc__"))).split())
    return page.need(kind.__name__, said)
