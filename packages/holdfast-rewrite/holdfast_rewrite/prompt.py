"""The prompt of a rewrite: versioned files, with the message passed as data. Pure.

A version is a folder under prompts/: instructions.md is the same for all messages of a version and
target language; message.md is one message with its context. Any change of wording needs a new
version, because routes and outputs name their version.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast.document import canonical
from holdfast.errors import ConfigError
from holdfast_llm.provider.request import Request
from holdfast_rewrite.model import RewriteRequest

# 600 characters are at most some 700 tokens in any script, including the JSON. The rest is for
# reasoning models: their reasoning counts, and a truncated answer is lost.
MAX_OUTPUT_TOKENS = 2_000

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "rewritten_text": {"type": "string"},
        "output_language": {"type": "string"},
    },
    "required": ["rewritten_text", "output_language"],
    "additionalProperties": False,
}

_FOLDER = files("holdfast_rewrite").joinpath("prompts")
# Some scripts and emoji need joiners.
_JOINERS = "\u200c\u200d"


def prompt_for(request: RewriteRequest, prompt_version: str) -> Request:
    """Build the prompt for a request. The same request gives the same prompt.

    It contains no ids of people.
    """
    return Request(
        inputs=(_inputs(request, prompt_version),),
        instructions=instructions_for(prompt_version, request.target_locale),
        schema=SCHEMA,
        schema_name="rewrite",
        max_output_tokens=MAX_OUTPUT_TOKENS,
        # Detects provider mix-ups: a housemate must never read a message for another.
        wants_echo=True,
    )


@cache
def prompt_versions() -> frozenset[str]:
    """Return the versions in the package."""
    return frozenset(entry.name for entry in _FOLDER.iterdir() if entry.is_dir())


@cache
def instructions_for(prompt_version: str, target_locale: str) -> str:
    """Return the instructions for a version and target language."""
    return _fill(_read(prompt_version, "instructions.md"), target_locale=target_locale)


def _inputs(request: RewriteRequest, prompt_version: str) -> str:
    context = request.context_pack.document
    del context["recipient_user_id"]
    brief = {
        "source_language": request.source_locale,
        "target_language": request.target_locale,
        "intent": request.intent.value,
        "topics": [topic.value for topic in request.topics],
        "policy": request.policy.document,
        "context": context,
    }
    return _fill(
        _read(prompt_version, "message.md"),
        brief=canonical(brief),
        message=as_data(request.original_text),
    )


def as_data(text: str) -> str:
    """Return *text* as a JSON string that cannot close the surrounding marks.

    Angle brackets and invisible characters, which can hide instructions, are escaped.
    """
    data = json.dumps(text, ensure_ascii=False)
    if not data.isprintable():
        data = "".join(map(_escaped, data))
    return data.replace("<", "\\u003c").replace(">", "\\u003e")


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() or letter in _JOINERS else json.dumps(letter)[1:-1]


def _fill(template: str, **values: str) -> str:
    """Fill the template in one pass: inserted text is not expanded again."""
    return re.sub(r"\{(\w+)\}", lambda place: values[place[1]], template)


@cache
def _read(prompt_version: str, name: str) -> str:
    if prompt_version not in prompt_versions():
        known = ", ".join(sorted(prompt_versions()))
        raise ConfigError(
            f"The prompt version {prompt_version!r} does not exist. Known versions: {known}."
        )
    return _FOLDER.joinpath(prompt_version, name).read_text("utf-8")
