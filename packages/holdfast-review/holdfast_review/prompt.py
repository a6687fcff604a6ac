"""What a model is asked about a part of a change: versioned files, and code that stays data. Pure.

Any other wording is another version, since results name the version that made them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast_llm.provider.request import Request
from holdfast_review.enums import Confidence, Severity
from holdfast_review.patch import FileChange, Status
from holdfast_review.secrets import guard, text_of
from holdfast_review.setting import is_setting
from holdfast_review.split import LONGEST_LINE, Part

PROMPT_VERSION = "v1"
# Some fifty findings, and room for models that think first.
MAX_OUTPUT_TOKENS = 8_000

_FOLDER = files("holdfast_review").joinpath("prompts")


def prompt_for(part: Part, prompt_version: str = PROMPT_VERSION) -> Request:
    """What to ask a model about a part. Raises RedactionFailed if a secret is left in it."""
    return Request(
        inputs=(_data(part),),
        instructions=_instructions(prompt_version),
        schema=_schema(),
        schema_name="findings",
        max_output_tokens=MAX_OUTPUT_TOKENS,
        wants_echo=True,
    )


def _schema() -> dict[str, Any]:
    """Closed, with every property required: the form that all providers can hold a model to.

    Files and lines are compared when an answer is read: one that was made up costs its finding, and
    not the whole answer.
    """
    finding = {
        "file": {"type": "string"},
        "line": {"type": "integer"},
        "severity": {"type": "string", "enum": [word.value for word in Severity]},
        "message": {"type": "string"},
        "confidence": {"type": "string", "enum": [word.value for word in Confidence]},
    }
    return _closed({"findings": {"type": "array", "items": _closed(finding)}})


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _data(part: Part) -> str:
    shown = "\n".join(line for file in part.files for line in _shown(file))
    return f"The change, as data:\n<change>\n{shown}\n</change>"


def _shown(file: FileChange) -> Iterator[str]:
    """One JSON object for each hunk, one string for each line with its number."""
    in_settings = is_setting(file.path)
    guard(file.path)
    for hunk in file.hunks:
        # What goes out is looked at once more, whoever redacted it, and as it was redacted.
        guard(text_of(hunk), in_settings=in_settings)
        lines = []
        for old, new, line in hunk.numbered():
            is_old = file.status is Status.DELETED
            number = "" if line[0] == "-" and not is_old else f"{old if is_old else new}"
            lines.append(f"{number:>6} {line[0]} {_cut(line[1:])}")
        shown = {"file": file.path, "status": file.status.value}
        if hunk.heading:
            shown["within"] = _cut(hunk.heading)
        yield _as_data({**shown, "lines": lines})


def _cut(line: str) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + "…"


def _as_data(value: object) -> str:
    """JSON that cannot close the marks around it; what cannot be seen is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
    return text.replace("</", "<\\/")


@cache
def _instructions(prompt_version: str) -> str:
    return _FOLDER.joinpath(prompt_version, "instructions.md").read_text("utf-8")
