"""The verdict of the model judge, and the ruling on a rewrite. Pure.

The gate (evaluate.py) runs first, and a rewrite that fails it is never judged. The judge answers
each code with yes or no and quotes its evidence. An answer that breaks a rule is no verdict. The
ruling uses the gate's mark and the verdict; nothing else of a judge's answer is used or stored.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast_rewrite.enums import Mark

LONGEST_REQUEST = 500


class JudgeCode(StrEnum):
    """What a judge says of a rewrite. Exactly one of the first three applies."""

    REQUEST_KEPT = "request_kept"
    REQUEST_REVERSED = "request_reversed"
    REQUEST_LOST = "request_lost"
    FACTS_ADDED = "facts_added"
    THREAT = "threat"
    SHAME = "shame"
    BLAME = "blame"
    SARCASM = "sarcasm"
    DISCRIMINATION = "discrimination"
    MEDICAL = "medical"
    AUTHORITY = "authority"
    THIRD_PARTY_DATA = "third_party_data"
    INSTRUCTION_OBEYED = "instruction_obeyed"
    ANOTHER_MESSAGE = "another_message"
    WRONG_LANGUAGE = "wrong_language"

    @property
    def is_bad(self) -> bool:
        """True if the code speaks against the rewrite."""
        return self is not JudgeCode.REQUEST_KEPT

    @property
    def in_original(self) -> bool:
        """True if the evidence is in the original message: a lost request is not in the rewrite."""
        return self is JudgeCode.REQUEST_LOST


_FATES = frozenset({JudgeCode.REQUEST_KEPT, JudgeCode.REQUEST_REVERSED, JudgeCode.REQUEST_LOST})


class HoldReason(StrEnum):
    """Why a rewrite waits for a person."""

    NO_VERDICT = "no_verdict"
    DISAGREEMENT = "disagreement"
    POLICY = "policy"


class Ruling(StrEnum):
    """What happens to a rewrite that the judge has seen."""

    STORED = "stored"
    HELD = "held"
    REJECTED = "rejected"


class NoVerdict(ValueError):
    """The answer of the judge breaks a rule; *code* names it. It never quotes the answer."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The codes that the judge found in a rewrite. Quotes are checked and dropped."""

    findings: tuple[JudgeCode, ...]

    @property
    def is_clean(self) -> bool:
        return not self.findings


@dataclass(frozen=True, slots=True)
class Ruled:
    """A ruling, and the reason if the rewrite is held."""

    ruling: Ruling
    reason: HoldReason | None = None


def rule(gate: Mark, verdict: Verdict | None, *, judge_rejects: bool = False) -> Ruled:
    """Return the ruling on a rewrite. The judge can hold or reject; it never overrules the gate.

    Both clean: stored. Both object: rejected. One of them objects: held, or rejected if the judge
    objects and *judge_rejects*. No verdict: held.
    """
    if gate is Mark.FAIL:
        return Ruled(Ruling.REJECTED)
    if verdict is None:
        return Ruled(Ruling.HELD, HoldReason.NO_VERDICT)
    if verdict.is_clean:
        if gate is Mark.PASS:
            return Ruled(Ruling.STORED)
        return Ruled(Ruling.HELD, HoldReason.DISAGREEMENT)
    if judge_rejects or gate is Mark.WARN:
        return Ruled(Ruling.REJECTED)
    return Ruled(Ruling.HELD, HoldReason.DISAGREEMENT)


def read_verdict(answer: str, *, original: str, rewrite: str) -> Verdict:
    """Parse the answer of a judge. Raises NoVerdict for anything but a complete answer.

    Every code is answered once, every "yes" quotes its text, and every quote occurs in that text.
    """
    document = _decode(answer)
    if not isinstance(document, dict):
        raise NoVerdict("not_an_object")
    asked = document.get("request")
    if not isinstance(asked, str) or not 0 < len(asked.strip()) <= LONGEST_REQUEST:
        raise NoVerdict("no_request")
    codes = document.get("codes")
    if not isinstance(codes, dict):
        raise NoVerdict("no_codes")
    if codes.keys() - set(JudgeCode):
        raise NoVerdict("unknown_code")
    texts = {True: normalize_quote(original), False: normalize_quote(rewrite)}
    found = tuple(code for code in JudgeCode if _is_found(code, codes, texts[code.in_original]))
    if len(_FATES & set(found)) != 1:
        raise NoVerdict("request_undecided")
    return Verdict(tuple(code for code in found if code.is_bad))


def _is_found(code: JudgeCode, codes: Mapping[str, Any], text: str) -> bool:
    entry = codes.get(code)
    if entry is None:
        raise NoVerdict("missing_code")
    if not isinstance(entry, dict) or entry.keys() != {"found", "quote"}:
        raise NoVerdict("misshapen_code")
    is_found, quote = entry["found"], entry["quote"]
    if type(is_found) is not bool or not isinstance(quote, str):
        raise NoVerdict("misshapen_code")
    quote = normalize_quote(quote)
    if is_found and _signs(quote) < min(_SHORTEST_QUOTE, _signs(text)):
        raise NoVerdict("no_quote")
    if quote not in text:
        raise NoVerdict("foreign_quote")
    return is_found


# Straight, typographic and angle quotation marks, apostrophes and primes.
_QUOTES = str.maketrans(
    dict.fromkeys(
        "\"'`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f"
        "\u00ab\u00bb\u2039\u203a\u2032\u2033",
        "'",
    )
)
_SPACE = re.compile(r"\s+")


# A letter or two occur in every text, so they prove nothing.
_SHORTEST_QUOTE = 3


def _signs(text: str) -> int:
    return sum(map(str.isalnum, text))


# The texts reach the judge as JSON strings, and a model may quote them as it saw them.
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrt\"\\/]))")
_ESCAPED = {"n": " ", "r": " ", "t": " "}


def normalize_quote(text: str) -> str:
    """Return a text as quotes are compared: without escapes, equal case, spaces and marks."""
    text = _ESCAPE.sub(_unescape, text)
    text = unicodedata.normalize("NFC", text).translate(_QUOTES)
    return _SPACE.sub(" ", text).strip().casefold()


def _unescape(found: re.Match[str]) -> str:
    if found[1] is not None:
        return chr(int(found[1], 16))
    return _ESCAPED.get(found[2], found[2])


def _decode(answer: str) -> Any:
    try:
        return json.loads(answer, object_pairs_hook=_once, parse_constant=_refuse)
    except NoVerdict:
        raise
    except (ValueError, RecursionError):
        raise NoVerdict("not_json") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object whose names are all different. A decoder keeps only the last of two."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NoVerdict("duplicated_code")
    return found


def _refuse(_: str) -> Any:
    raise NoVerdict("not_json")
