"""Write the resources of the typed client from the OpenAPI document of the API.

    python tools/client_code.py            write holdfast/client/calls and holdfast/client/resources
    python tools/client_code.py --check    exit with 1 if a file is not up to date

Two modules per resource: ``calls`` has what it takes and returns and its calls, ``resources`` the
methods of both clients. A test checks that the modules are up to date.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from holdfast.api import create_app

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "packages" / "holdfast-jobs" / "holdfast" / "client"
FOLDERS = ("calls", "resources")
SHARED = "shared"
# Sessions are for browsers. Streams are written by hand, because they have no end.
LEFT_OUT = {"log_in", "log_out", "get_session", "stream_events", "stream_rewrites"}
# Methods whose name does not follow from the operation without its noun.
NAMES = {
    "enqueue_jobs": "enqueue_many",
    "cancel_jobs": "cancel_all",
    "count_jobs": "counts",
    "list_job_events": "events",
    "list_schedule_ticks": "ticks",
    "list_coming_ticks": "next",
    "list_dead_letter_causes": "causes",
    "act_on_dead_letters": "act_on_all",
    "act_on_deliveries": "act_on_all",
    "list_audit_events": "list",
    "get_costs": "report",
    "get_rewrite_record": "record",
}
# Fields of a body that are passed by position.
FIRST = {
    "enqueue_job": ("job_type", "payload"),
    "enqueue_jobs": ("jobs",),
    "add_webhook": ("url",),
    "create_api_key": ("name",),
    "submit_review": ("changelist_id", "review_version", "idempotency_key", "patch"),
    "add_dead_letter_note": ("body",),
    "edit_held_rewrite": ("text",),
}
# Changes whose body has an idempotency key of its own.
KEY_IN_BODY = {"submit_review"}
HEAD = '"""{name}. Written by tools/client_code.py."""\n'


def document() -> dict[str, Any]:
    """The OpenAPI document with every extension that is installed."""
    with tempfile.TemporaryDirectory() as folder, Holdfast(f"sqlite:///{folder}/api.db") as hf:
        found: dict[str, Any] = json.loads(json.dumps(create_app(hf).openapi()))
        return found


@dataclass(frozen=True)
class Argument:
    """One argument of a method."""

    name: str
    place: str
    kind: str
    is_required: bool
    is_positional: bool

    @property
    def declared(self) -> str:
        if self.is_required:
            return f"{self.name}: {self.kind}"
        if self.place == "body":
            bare = self.kind.removesuffix(" | None")
            end = " | None" if bare != self.kind else ""
            return f"{self.name}: {bare} | NotGiven{end} = NOT_GIVEN"
        kind = self.kind if self.kind.endswith("| None") else f"{self.kind} | None"
        return f"{self.name}: {kind} = None"

    @property
    def passed(self) -> str:
        return self.name if self.is_positional else f"{self.name}={self.name}"


@dataclass(frozen=True)
class Operation:
    """One operation of a resource."""

    id: str
    method: str
    path: str
    tag: str
    says: str
    arguments: tuple[Argument, ...]
    returned: str
    read: str
    has_key: bool

    @property
    def name(self) -> str:
        if self.id in NAMES:
            return NAMES[self.id]
        nouns = {word for noun in (self.tag, _singular(self.tag)) for word in noun.split("_")}
        kept = [word for word in self.id.split("_") if word not in nouns]
        return "_".join(kept) or self.id

    def signature(self) -> str:
        parts = [one.declared for one in self.arguments if one.is_positional]
        named = [one for one in self.arguments if not one.is_positional]
        named.sort(key=lambda one: not one.is_required)
        if named:
            parts += ["*", *(one.declared for one in named)]
        return ", ".join(parts)

    def passed(self) -> str:
        first = sorted(self.arguments, key=lambda one: not one.is_positional)
        return ", ".join(one.passed for one in first)


class Writer:
    """Writes the modules of a document."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.schemas: dict[str, Any] = found["components"]["schemas"]
        self.operations: dict[str, list[Operation]] = {}
        self.answers: dict[str, set[str]] = {}
        self.inputs: dict[str, set[str]] = {}
        self._tag = ""
        for path, methods in found["paths"].items():
            for method, given in methods.items():
                if given["operationId"] not in LEFT_OUT:
                    self._add(path, method.upper(), given)

    # -- reading

    def _add(self, path: str, method: str, given: dict[str, Any]) -> None:
        self._tag = tag = given["tags"][0].replace("-", "_")
        returned, read = self._answer(given)
        made = Operation(
            given["operationId"],
            method,
            path,
            tag,
            given["description"].strip(),
            tuple(self._arguments(given)),
            returned,
            read,
            given["operationId"] not in KEY_IN_BODY
            and any(one["name"] == "Idempotency-Key" for one in given.get("parameters", ())),
        )
        self.operations.setdefault(tag, []).append(made)

    def _arguments(self, given: dict[str, Any]) -> Iterator[Argument]:
        first = FIRST.get(given["operationId"], ())
        listed = given.get("parameters", [])
        for place in ("path", "query"):
            for one in listed:
                if one["in"] == place:
                    kind = self._type(one["schema"], is_input=True)
                    is_required = bool(one.get("required"))
                    yield Argument(one["name"], place, kind, is_required, place == "path")
        content = given.get("requestBody", {}).get("content", {})
        if content:
            schema = self.schemas[_name(content["application/json"]["schema"])]
            needed = {*schema.get("required", ()), *first}
            for name in sorted(schema["properties"], key=lambda one: one not in first):
                kind = self._type(schema["properties"][name], is_input=True)
                yield Argument(name, "body", kind, name in needed, name in first)
        has_key = any(one["name"] == "Idempotency-Key" for one in listed)
        # Other changes lead to a state; the client still sends a key, to repeat a lost request.
        creates = not given["responses"].keys().isdisjoint(("201", "202"))
        if has_key and creates and given["operationId"] not in KEY_IN_BODY:
            yield Argument("idempotency_key", "header", "str", False, False)

    def _answer(self, given: dict[str, Any]) -> tuple[str, str]:
        """The type of an answer, and the expression that reads it from *found*."""
        status = next(code for code in given["responses"] if code.startswith("2"))
        schema = given["responses"][status]["content"]["application/json"]["schema"]
        if "$ref" not in schema and schema.get("type") == "array" and "$ref" in schema["items"]:
            model = self._keep(self.answers, _name(schema["items"]))
            return f"tuple[{model}, ...]", f"tuple(read({model}, one) for one in found)"
        if [*schema.get("anyOf", ())] and all("$ref" in one for one in schema["anyOf"]):
            first, second = (self._keep(self.answers, _name(one)) for one in schema["anyOf"])
            return f"{first} | {second}", f"read_either({first}, {second}, found)"
        if "$ref" not in schema:
            return "Mapping[str, Any]", "dict(found)"
        name = _name(schema)
        properties = self.schemas[name]["properties"]
        if set(properties) == {"items", "next"}:
            model = self._keep(self.answers, _name(properties["items"]["items"]))
            return f"Page[{model}]", f"read_page({model}, found)"
        if set(properties) == {"items"}:
            model = self._keep(self.answers, _name(properties["items"]["items"]))
            return f"tuple[{model}, ...]", f'tuple(read({model}, one) for one in found["items"])'
        if len(properties) == 1:
            ((only, one),) = properties.items()
            if (kind := self._type(one, is_input=False)) in ("str", "bool", "int"):
                return kind, f'{kind}(found["{only}"])'
        model = self._keep(self.answers, name)
        return model, f"read({model}, found)"

    def _keep(self, where: dict[str, set[str]], name: str) -> str:
        """Remember that a resource uses a schema, and every schema inside of it."""
        if self._tag in where.setdefault(name, set()):
            return name
        where[name].add(self._tag)
        for one in self.schemas[name].get("properties", {}).values():
            self._type(one, is_input=where is self.inputs)
        return name

    def _type(self, schema: dict[str, Any], *, is_input: bool) -> str:
        if "anyOf" in schema:
            kinds = [self._type(one, is_input=is_input) for one in schema["anyOf"]]
            return " | ".join(dict.fromkeys(kinds))
        if "$ref" in schema:
            name = _name(schema)
            if "properties" not in self.schemas[name]:
                return self._type(self.schemas[name], is_input=is_input)
            return self._keep(self.inputs if is_input else self.answers, name)
        match schema.get("type"):
            case "string":
                return {"date-time": "datetime", "date": "date"}.get(
                    schema.get("format", ""), "str"
                )
            case "integer":
                return "int"
            case "number":
                return "float"
            case "boolean":
                return "bool"
            case "null":
                return "None"
            case "array":
                inner = self._type(schema["items"], is_input=is_input)
                return f"Sequence[{inner}]" if is_input else f"tuple[{inner}, ...]"
            case "object":
                more = schema.get("additionalProperties")
                inner = self._type(more, is_input=is_input) if isinstance(more, dict) else "Any"
                return f"Mapping[str, {inner}]"
        return "Any"

    # -- writing

    def modules(self) -> Iterator[tuple[str, str]]:
        """The name and the text of every module, not formatted."""
        shared = sorted(name for name, tags in self.answers.items() if len(tags) > 1)
        for folder in FOLDERS:
            says = f"The {folder} of the HTTP API. Written by tools/client_code.py."
            yield f"{folder}/__init__", f'"""{says}"""\n'
        models = "".join(map(self._model, shared))
        yield f"calls/{SHARED}", HEAD.format(name="Answers of several resources") + IMPORTS + models
        for tag, operations in sorted(self.operations.items()):
            own = [name for name, tags in self.answers.items() if tags == {tag}]
            used = [name for name in shared if tag in self.answers[name]]
            taken = [name for name, tags in self.inputs.items() if tag in tags]
            noun = tag.replace("_", " ")
            parts = [HEAD.format(name=f"Calls about {noun}"), IMPORTS]
            if used:
                parts.append(f"from holdfast.client.calls.shared import {', '.join(used)}\n")
            parts += map(self._model, own)
            parts += map(self._input, taken)
            parts += map(self._call, operations)
            yield f"calls/{tag}", "".join(parts)
            names = ", ".join([*own, *taken, *(one.id for one in operations)])
            parts = [HEAD.format(name=f"Methods about {noun}"), IMPORTS]
            parts.append(f"from holdfast.client.calls.{tag} import {names}\n")
            if used:
                parts.append(f"from holdfast.client.calls.shared import {', '.join(used)}\n")
            parts += (self._resource(tag, operations, is_async=one) for one in (False, True))
            yield f"resources/{tag}", "".join(parts)

    def _model(self, name: str) -> str:
        schema = self.schemas[name]
        says = _docstring(schema.get("description") or f"{name}.")
        lines = ["\n\n@dataclass(frozen=True, slots=True)", f"class {name}:", f"    {says}", ""]
        for field, one in schema["properties"].items():
            lines.append(f"    {field}: {self._type(one, is_input=False)}")
        return "\n".join(lines) + "\n"

    def _input(self, name: str) -> str:
        schema = self.schemas[name]
        says = _docstring(schema.get("description") or f"{name}.")
        lines = [f"\n\nclass {name}(TypedDict, total=False):", f"    {says}", ""]
        for field, one in schema["properties"].items():
            kind = self._type(one, is_input=True)
            is_needed = field in schema.get("required", ())
            lines.append(f"    {field}: {f'Required[{kind}]' if is_needed else kind}")
        return "\n".join(lines) + "\n"

    def _call(self, one: Operation) -> str:
        lines = [f"\n\ndef {one.id}({one.signature()}) -> Call[{one.returned}]:"]
        lines.append(f"    {_docstring(one.says)}")
        lines.append(f'    return Call("{one.id}", "{one.method}", "{one.path}",')
        lines.append(f"        lambda found: {one.read},")
        for place, written in (("path", "names"), ("query", "query")):
            named = [f'"{a.name}": {a.name}' for a in one.arguments if a.place == place]
            if named:
                lines.append(f"        {written}={{{', '.join(named)}}},")
        if one.has_key:
            own = any(a.place == "header" for a in one.arguments)
            key = "idempotency_key or new_key()" if own else "new_key()"
            lines.append(f'        headers={{"Idempotency-Key": {key}}},')
        if one.method != "GET":
            named = [f'"{a.name}": {a.name}' for a in one.arguments if a.place == "body"]
            lines.append(f"        body=given({{{', '.join(named)}}}),")
        return "\n".join([*lines, "    )"]) + "\n"

    def _resource(self, tag: str, operations: list[Operation], *, is_async: bool) -> str:
        name = "".join(word.capitalize() for word in tag.split("_"))
        client, start = ("AsyncCaller", "async def") if is_async else ("Caller", "def")
        wait = "await " if is_async else ""
        noun = tag.replace("_", " ")
        lines = [
            f"\n\nclass {'Async' if is_async else ''}{name}:",
            f'    """The {noun} that the key may use."""',
            "",
            f"    def __init__(self, client: {client}) -> None:",
            "        self._call = client.call",
        ]
        names = [one.name for one in operations]
        if len(set(names)) != len(names):
            raise SystemExit(f"{tag} has two methods of one name: add one to NAMES: {names}")
        for one in operations:
            signature = f"self, {one.signature()}".removesuffix(", ")
            lines += [
                "",
                f"    {start} {one.name}({signature}) -> {one.returned}:",
                f"        {_docstring(one.says, indent=8)}",
                f"        return {wait}self._call({one.id}({one.passed()}))",
            ]
        for one in operations:
            if one.returned.startswith("Page[") and one.name == "list":
                lines += _every(one, is_async=is_async)
        return "\n".join(lines) + "\n"


def _every(one: Operation, *, is_async: bool) -> list[str]:
    """The method that reads a listing page by page."""
    model = one.returned.removeprefix("Page[").removesuffix("]")
    rest = [argument for argument in one.arguments if argument.name != "cursor"]
    signature = ", ".join(argument.declared for argument in rest)
    passed = ", ".join([*(argument.passed for argument in rest), "cursor=cursor"])
    kind, start = ("AsyncIterator", "async def") if is_async else ("Iterator", "def")
    wait = "await " if is_async else ""
    given = ["for item in page.items:", "    yield item"] if is_async else ["yield from page.items"]
    return [
        "",
        f"    {start} every(self, *, {signature}) -> {kind}[{model}]:",
        '        """All items of a listing, page by page."""',
        "        cursor: str | None = None",
        "        while True:",
        f"            page = {wait}self.list({passed})",
        *(f"            {line}" for line in given),
        "            if (cursor := page.next) is None:",
        "                return",
    ]


IMPORTS = """
from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Required, TypedDict

from holdfast.client.operations import (
    NOT_GIVEN, AsyncCaller, Call, Caller, NotGiven, Page, given, new_key, read_page,
)
from holdfast.client.models import read, read_either
"""


def _singular(tag: str) -> str:
    for plural, single in (("ies", "y"), ("ches", "ch"), ("s", "")):
        if tag.endswith(plural):
            return tag.removesuffix(plural) + single
    return tag


def _name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _docstring(text: str, *, indent: int = 4) -> str:
    pad = " " * indent
    lines = [line.strip() for line in text.strip().splitlines()]
    if len(lines) == 1:
        return f'"""{lines[0]}"""'
    rest = "\n".join(f"{pad}{line}" if line else "" for line in lines[1:])
    return f'"""{lines[0]}\n{rest}\n{pad}"""'


def formatted(text: str) -> str:
    """The text in the format of the repository, without unused imports."""
    for command in (
        ["check", "-q", "--fix-only", "--select", "F401,I", "-"],
        ["format", "-q", "-"],
    ):
        ruff = Path(sys.executable).with_name("ruff")
        name = str(FOLDER / "module.py")
        text = subprocess.run(  # noqa: S603
            [ruff, *command[:-1], "--stdin-filename", name, "-"],
            input=text, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout  # fmt: skip
    return text


def modules() -> dict[Path, str]:
    """Every module with its text."""
    writer = Writer(document())
    return {FOLDER / f"{name}.py": formatted(text) for name, text in writer.modules()}


def main(arguments: list[str]) -> int:
    made = modules()
    written = [path for folder in FOLDERS for path in (FOLDER / folder).glob("*.py")]
    stale = [path for path in written if path not in made]
    changed = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in (*stale, *changed):
            print(f"{path.relative_to(ROOT)} is not up to date; run python tools/client_code.py")
        return 1 if stale or changed else 0
    for path in stale:
        path.unlink()
    for path in changed:
        path.parent.mkdir(exist_ok=True)
        path.write_text(made[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
