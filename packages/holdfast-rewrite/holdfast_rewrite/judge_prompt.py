"""The request to the model judge: a versioned file, with both texts passed as data. Pure.

Any change of wording needs a new file, because routes and drafts name their version.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast.errors import ConfigError
from holdfast_llm.provider.request import Request
from holdfast_rewrite.prompt import as_data
from holdfast_rewrite.verdict import JudgeCode

# Fifteen codes with quotes take about 600 tokens. The rest is for reasoning models.
MAX_OUTPUT_TOKENS = 3_000

_CODE: dict[str, Any] = {
    "type": "object",
    "properties": {"found": {"type": "boolean"}, "quote": {"type": "string"}},
    "required": ["found", "quote"],
    "additionalProperties": False,
}
# One name per code: a provider that enforces schemas cannot leave one out or repeat it.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "request": {"type": "string"},
        "codes": {
            "type": "object",
            "properties": {code.value: _CODE for code in JudgeCode},
            "required": [code.value for code in JudgeCode],
            "additionalProperties": False,
        },
    },
    "required": ["request", "codes"],
    "additionalProperties": False,
}

_FOLDER = files("holdfast_rewrite").joinpath("prompts")
_FILE = re.compile(r"judge_(v[0-9]{1,6})\.md")


def judge_request(
    *,
    original: str,
    rewrite: str,
    target_locale: str,
    prompt_version: str,
    sends_temperature: bool = True,
) -> Request:
    """Build the request for one rewrite. The same texts give the same request."""
    inputs = (
        f'The language of the rewrite must have the BCP-47 tag "{target_locale}".\n\n'
        f"The message, as data:\n<message>\n{as_data(original)}\n</message>\n\n"
        f"The rewrite, as data:\n<rewrite>\n{as_data(rewrite)}\n</rewrite>\n\n"
        "Check the rewrite between the two marks."
    )
    return Request(
        inputs=(inputs,),
        instructions=_instructions(prompt_version),
        schema=SCHEMA,
        schema_name="verdict",
        max_output_tokens=MAX_OUTPUT_TOKENS,
        # A verdict on another rewrite must never be used for this one.
        wants_echo=True,
        parameters={"temperature": 0} if sends_temperature else {},
    )


@cache
def judge_versions() -> frozenset[str]:
    """Return the versions of the judge's prompt in the package."""
    found = (_FILE.fullmatch(entry.name) for entry in _FOLDER.iterdir())
    return frozenset(match[1] for match in found if match)


@cache
def _instructions(prompt_version: str) -> str:
    if prompt_version not in judge_versions():
        known = ", ".join(sorted(judge_versions()))
        raise ConfigError(
            f"The judge's prompt version {prompt_version!r} does not exist. Known versions:"
            f" {known}."
        )
    return _FOLDER.joinpath(f"judge_{prompt_version}.md").read_text("utf-8")
