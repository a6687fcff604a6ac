"""docs/reference/python-api.md: every public name, from the docstrings."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from typing import Any

import holdfast
from holdfast.job_lookup import JobLookup
from reference_pages.page import Page, code, introduction, paragraphs
from reference_pages.settings import attribute_docs
from reference_pages.source import DISTRIBUTIONS

TITLES = {
    "holdfast": "The engine, outbox, artifacts and operations.",
    "holdfast_llm": "Batch processing of model requests.",
    "holdfast_rewrite": "The complaint rewrite.",
    "holdfast_review": "The review critic.",
    "holdfast_simulator": "Simulated providers and channels, for tests.",
}


def build() -> Page:
    page = Page()
    page.add(introduction("python_api"))
    for package in DISTRIBUTIONS:
        module = importlib.import_module(package)
        page.add(f"## `{package}`", TITLES[package])
        names = [*module.__all__, *_names_of_extras(module)]
        for name in sorted(names, key=str.lower):
            _add_name(page, package, name, getattr(module, name))
    return page


def _names_of_extras(module: Any) -> list[str]:
    extras: dict[str, str] = getattr(module, "_MODULES_OF_EXTRAS", {})
    return [name for names in extras.values() for name in names.split()]


def _add_name(page: Page, package: str, name: str, value: Any) -> None:
    where = f"{package}.{name}"
    if inspect.isclass(value):
        _add_class(page, where, name, value)
    elif callable(value) and inspect.isfunction(inspect.unwrap(value)):
        page.add(f"### `{name}`", signature(name, value), *_described(page, where, value))
    else:
        page.add(f"### `{name}`", page.need(where, CONSTANTS.get(name)))


# Values and aliases, which have no docstring.
CONSTANTS = {
    "ALL_SCRIPTS": "The scripts of all simulated faults, of providers and of channels, by name.",
    "MESSAGE_SCRIPTS": "The scripts of the faults of simulated channels, by name.",
    "SCRIPTS": "The scripts of the faults of simulated providers, by name.",
    "Responder": "The type of a function that answers a prompt: it takes the prompt and returns"
    " the answer.",
    "Lookup": "The type of the answer to a lookup: what a channel knows about a message.",
}


def _described(page: Page, where: str, value: Any) -> list[str]:
    said = inspect.getdoc(value)
    if inspect.isclass(value):
        own = [vars(kind).get("__doc__") for kind in value.__mro__ if kind is not object]
        said = inspect.cleandoc(own[0]) if own and own[0] else None
    if said and inspect.isclass(value) and said.startswith(f"{value.__name__}("):
        said = None
    page.need(where, said)
    return paragraphs(said)


def _add_class(page: Page, where: str, name: str, value: type) -> None:
    kind = "Exception" if issubclass(value, BaseException) else "Class"
    above = [one.__name__ for one in value.__bases__ if one.__name__ not in ("object", "Generic")]
    page.add(f"### `{name}`", f"*{kind}*" + (f", subclass of `{above[0]}`." if above else "."))
    page.add(*_described(page, where, value))
    if issubclass(value, enum.Enum):
        page.add("Members: " + ", ".join(code(member.name) for member in value) + ".")
    elif dataclasses.is_dataclass(value):
        _add_fields(page, value)
    elif not issubclass(value, BaseException):
        page.add(signature(name, value))
    for inner, found in _members(value).items():
        if not inner.startswith("_") and _is_method(found):
            _add_method(page, where, name, inner, found)


def _members(value: Any) -> dict[str, Any]:
    """What a class defines; for Holdfast also its part that reads jobs."""
    parts = (JobLookup,) if value is holdfast.Holdfast else ()
    return {**{name: one for kind in parts for name, one in vars(kind).items()}, **vars(value)}


def _add_fields(page: Page, value: Any) -> None:
    docs = attribute_docs(value)
    rows = []
    for field in dataclasses.fields(value):
        if field.name.startswith("_"):
            continue
        default = "" if field.default is dataclasses.MISSING else _short(repr(field.default))
        rows.append([code(field.name), code(field.type), code(default), docs.get(field.name, "")])
    if rows and any(row[3] for row in rows):
        page.table(("Field", "Type", "Default", "Meaning"), rows)
    elif rows:
        page.table(("Field", "Type", "Default"), (row[:3] for row in rows))


def _short(text: str) -> str:
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text if len(text) <= 60 and "<" not in text else "…"


def _is_method(found: Any) -> bool:
    return inspect.isfunction(found) or isinstance(found, (property, classmethod, staticmethod))


def _add_method(page: Page, where: str, name: str, inner: str, found: Any) -> None:
    said = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    described = _described(page, f"{where}.{inner}", said)
    if isinstance(found, property):
        page.add(f"#### `{name}.{inner}`", "*Property.* " + " ".join(described[:1]), *described[1:])
    else:
        page.add(f"#### `{name}.{inner}`", signature(f"{name}.{inner}", said), *described)


def signature(name: str, value: Any) -> str:
    """Return the call of a function or class as a text block, without `self`."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    params = [
        item.replace(annotation=_plain(item.annotation))
        for item in found.parameters.values()
        if item.name not in ("self", "cls")
    ]
    shown = str(found.replace(parameters=params, return_annotation=_plain(found.return_annotation)))
    shown = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", shown)
    shown = re.sub(r"<[^<>]* at 0x[0-9a-f]+>", "…", shown)
    text = f"{name}{shown}"
    if len(text) > 88:
        inner = ",\n    ".join(str(item) for item in _split(text[len(name) + 1 :]))
        text = f"{name}(\n    {inner}"
    return f"```text\n{text}\n```"


class _Annotation:
    """An annotation as written, without the quotes of a string."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _plain(annotation: Any) -> Any:
    return _Annotation(annotation) if isinstance(annotation, str) else annotation


def _split(text: str) -> list[str]:
    """Split the parameters of a signature at the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0:
            parts.append(text[start:at].strip())
            return [*parts[:-1], f"{parts[-1]},\n{text[at:]}"]
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return parts
