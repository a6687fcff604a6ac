"""A simulated judge of rewrites: it answers the requests of holdfast-rewrite's model judge.

It reads the request as a model would: the codes from the schema, the two texts from their marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from holdfast_simulator.prompt import Prompt, Responder, Said

_FENCED = re.compile(r"^<(message|rewrite)>\n(.*)\n</\1>$", re.MULTILINE)
KEPT = "request_kept"
# Codes whose evidence is in the message, and codes that exclude a kept request.
_IN_MESSAGE = frozenset({"request_lost"})
_NOT_KEPT = frozenset({"request_lost", "request_reversed"})


def is_judging(prompt: Prompt) -> bool:
    """Return whether a request asks for a verdict on a rewrite."""
    return KEPT in _codes(prompt) and len(_FENCED.findall(prompt.text)) == 2


def judge(prompt: Prompt, found: Collection[str] = ()) -> dict[str, Any]:
    """Answer a judge's request: these codes are found, each with the whole text as its quote."""
    texts = {mark: json.loads(text) for mark, text in _FENCED.findall(prompt.text)}
    said = set(found) if _NOT_KEPT & set(found) else {*found, KEPT}

    def entry(code: str) -> dict[str, Any]:
        text = texts["message" if code in _IN_MESSAGE else "rewrite"]
        return {"found": code in said, "quote": text if code in said else ""}

    return {
        "request": "What the message asks for.",
        "codes": {code: entry(code) for code in _codes(prompt)},
    }


def with_judge(responder: Responder, found: Collection[str] = ()) -> Responder:
    """Return a responder that judges rewrites itself and leaves other requests to *responder*."""

    def answer(prompt: Prompt) -> Said | str | Mapping[str, Any]:
        return judge(prompt, found) if is_judging(prompt) else responder(prompt)

    return answer


def _codes(prompt: Prompt) -> list[str]:
    properties = (prompt.schema or {}).get("properties", {})
    return list(properties.get("codes", {}).get("properties", {}))
