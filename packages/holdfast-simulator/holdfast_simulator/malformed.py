"""Malformed answers: truncated, refused, empty, or from another model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from holdfast_simulator.prompt import ECHO, Finish, ItemError, Prompt, Said

FINISHES = {
    "incomplete": Finish.LENGTH,
    "filtered": Finish.FILTERED,
    "failed": Finish.FAILED,
    "refusal": Finish.REFUSED,
    "reasoning_only": Finish.REASONING_ONLY,
    "several_messages": Finish.SEVERAL,
}
# Far above any real token count; sums must not overflow.
HUGE = 2_000_000_000


def spoil(name: str, options: Mapping[str, Any], prompt: Prompt, said: Said) -> Said:
    """Apply a fault to an answer. Faults that are not about answers change nothing."""
    match name:
        case "item_error":
            return Said(error=ItemError(options["status"], options["code"]))
        case "error_file_only":
            return Said(error=ItemError(options["status"], "server_error"))
        case "odd_answers":
            return _odd(options["variant"], prompt, said)
        case "odd_usage":
            return _usage(options["variant"], said)
        case _:
            return said


def _odd(variant: str, prompt: Prompt, said: Said) -> Said:
    if variant in FINISHES:
        text = said.text[: len(said.text) // 2] if variant == "incomplete" else said.text
        # Reasoning is billed as output, so a reasoning-only answer needs some.
        thought = 12 if variant == "reasoning_only" else said.reasoning_tokens
        return replace(
            said,
            text=text,
            finish=FINISHES[variant],
            reasoning_tokens=thought,
            # A failed OpenAI response has no usage. Other providers have no such answer.
            hides_usage=variant == "failed" and prompt.provider in ("openai", "azure"),
        )
    match variant:
        case "empty":
            return replace(said, text="")
        case "wrong_locale":
            return replace(said, text=reword(said.text, lambda _: "это другой язык", prompt))
        case "invalid_json":
            return replace(said, text='{"answer": "no end')
        case "all_null":
            return replace(said, text=_nulls(said.text))
        case _:
            raise ValueError(f"odd_answers has no variant {variant!r}")


def _usage(variant: str, said: Said) -> Said:
    match variant:
        case "missing":
            return replace(said, hides_usage=True)
        case "huge":
            return replace(said, input_tokens=HUGE, output_tokens=HUGE)
        case "other_model":
            return replace(said, model="another-model-2026-01-01")
        case _:
            raise ValueError(f"odd_usage has no variant {variant!r}")


def reword(text: str, change: Callable[[str], str], prompt: Prompt | None = None) -> str:
    """Return *text* with changed words: every string if it is JSON, except echoes."""
    kept = set() if prompt is None else {name for name, _ in ECHO.findall(prompt.text)}
    try:
        value = json.loads(text)
    except ValueError:
        return change(text)
    return json.dumps(_reword(value, change, kept), ensure_ascii=False)


def _reword(value: Any, change: Callable[[str], str], kept: set[str]) -> Any:
    match value:
        case str():
            return change(value)
        case list():
            return [_reword(part, change, kept) for part in value]
        case dict():
            return {
                name: part if name in kept else _reword(part, change, kept)
                for name, part in value.items()
            }
        case _:
            return value


def _nulls(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return "null"
    return json.dumps(dict.fromkeys(value)) if isinstance(value, dict) else "null"
