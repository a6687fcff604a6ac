"""The prompt of a rewrite: versioned files, and a message that stays data. Pure.

A version is a folder under prompts/: instructions.md is the same for every message of a version and
a target language, message.md is one message with what is known about it. Any other wording is
another version, since routes and outputs name the version that made them.
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

# 600 characters are at most some 700 tokens in any script, with the form around them. The rest is
# for models that think first: what they think counts, and an answer that is cut off is lost.
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
# Joiners make letters of some scripts and emoji what they are.
_JOINERS = "\u200c\u200d"


def prompt_for(request: RewriteRequest, prompt_version: str) -> Request:
    """What to ask a model for this request. The same request gives the same prompt.

    Nobody's id is in it: a model needs none.
    """
    return Request(
        inputs=(_inputs(request, prompt_version),),
        instructions=instructions_for(prompt_version, request.target_locale),
        schema=SCHEMA,
        schema_name="rewrite",
        max_output_tokens=MAX_OUTPUT_TOKENS,
        # One housemate must never read what was written for another, whatever a provider mixes up.
        wants_echo=True,
    )


@cache
def prompt_versions() -> frozenset[str]:
    """The versions that the package has."""
    return frozenset(entry.name for entry in _FOLDER.iterdir() if entry.is_dir())


@cache
def instructions_for(prompt_version: str, target_locale: str) -> str:
    """What all messages of a version and a target language have in common."""
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
    """*text* as a JSON string that cannot close the marks around it.

    Angle brackets are escaped, and so is what cannot be seen: instructions can hide in it.
    """
    data = json.dumps(text, ensure_ascii=False)
    if not data.isprintable():
        data = "".join(map(_escaped, data))
    return data.replace("<", "\\u003c").replace(">", "\\u003e")


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() or letter in _JOINERS else json.dumps(letter)[1:-1]


def _fill(template: str, **values: str) -> str:
    """The template with its places filled, in one go: what is filled in is not looked at again."""
    return re.sub(r"\{(\w+)\}", lambda place: values[place[1]], template)


@cache
def _read(prompt_version: str, name: str) -> str:
    if prompt_version not in prompt_versions():
        known = ", ".join(sorted(prompt_versions()))
        raise ConfigError(
            f"The prompt version {prompt_version!r} does not exist. There is: {known}."
        )
    return _FOLDER.joinpath(prompt_version, name).read_text("utf-8")
