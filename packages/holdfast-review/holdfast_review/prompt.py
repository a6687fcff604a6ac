"""The prompt for a part of a change: versioned files, with the code passed as data. Pure.

Any change of wording needs a new version, because results name their version.
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
# Some fifty findings, plus space for reasoning models.
MAX_OUTPUT_TOKENS = 8_000

_FOLDER = files("holdfast_review").joinpath("prompts")


def prompt_for(part: Part, prompt_version: str = PROMPT_VERSION) -> Request:
    """Build the prompt for a part. Raises RedactionFailed if a secret is left in it."""
    return Request(
        inputs=(_data(part),),
        instructions=_instructions(prompt_version),
        schema=_schema(),
        schema_name="findings",
        max_output_tokens=MAX_OUTPUT_TOKENS,
        wants_echo=True,
    )


def _schema() -> dict[str, Any]:
    """Return a closed schema with every property required, which all providers can enforce.

    Files and lines are checked when an answer is parsed. An invented one costs only its finding,
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
    """Render one JSON object for each hunk, one string for each line with its number."""
    in_settings = is_setting(file.path)
    guard(file.path)
    for hunk in file.hunks:
        # Check all outgoing text again, with the same settings as the redaction.
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
    """Return JSON that cannot close the surrounding marks; invisible characters are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
    return text.replace("</", "<\\/")


@cache
def _instructions(prompt_version: str) -> str:
    return _FOLDER.joinpath(prompt_version, "instructions.md").read_text("utf-8")
