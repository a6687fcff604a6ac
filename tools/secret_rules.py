"""Convert the rules of gitleaks, a TOML file, into a rule file for Holdfast.

    python tools/secret_rules.py gitleaks.toml --version v8.30.0 --license LICENSE

Writes ``gitleaks.json`` and the licence of the rules into the folder ``secret_data`` of the
package. The patterns are for RE2; syntax that Python interprets differently is rewritten. A rule is
left out and reported if it cannot be rewritten, needs a path, or takes too long on text made of its
own keywords.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.secret_rules import BEFORE, BEHIND, Rule

FOLDER = Path(__file__).resolve().parents[1] / "packages/holdfast-jobs/holdfast/secret_data"
# A window has 700 characters: a slower rule is not linear in it.
SLOWEST_WINDOW = 0.005
POSIX = {
    "alnum": "A-Za-z0-9", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z",
    "xdigit": "A-Fa-f0-9", "word": r"\w", "space": r"\s", "punct": r"!-/:-@\[-`{-~",
}  # fmt: skip
_PIECE = re.compile(
    r"(?P<flags>\(\?(?P<on>[imsx]*)(?:-(?P<off>[imsx]+))?\))|(?P<open>\((?:\?(?:P?<\w+>|[imsx-]*:))?)"
    r"|(?P<close>\))|(?P<bar>\|)|(?P<set>\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\])|(?P<escape>\\.)|(?P<char>.)",
    re.S,
)


# An optional prefix before a keyword is not part of the secret and would be tried at every
# position.
_LEAD = re.compile(r"^((?:\(\?[imsx-]+:)*)\[[^\]]+\]\{0,\d+\}\?")


class Unsupported(ValueError):
    """A pattern that Python cannot express."""


def translate(pattern: str) -> str:
    """Translate a pattern from RE2 to Python's re.

    In RE2, inline flags apply up to the end of their group, across alternatives. Python allows them
    only for a whole group, so a group is opened after them and after each bar.
    """
    made: list[str] = []
    # For each open group, the flags that were set within it, in order.
    flags: list[list[str]] = [[]]
    for found in _PIECE.finditer(pattern):
        piece = found[0]
        if found["flags"]:
            wanted = found["on"] + (f"-{found['off']}" if found["off"] else "")
            flags[-1].append(wanted)
            made.append(f"(?{wanted}:")
        elif found["open"]:
            flags.append([])
            made.append(piece if not piece.startswith("(?<") else f"(?P{piece[2:]}")
        elif found["close"]:
            made.append(")" * (len(flags.pop()) + 1))
        elif found["bar"]:
            opened = "".join(f"(?{one}:" for one in flags[-1])
            made.append(")" * len(flags[-1]) + "|" + opened)
        elif found["set"]:
            made.append(_set(piece))
        elif found["escape"]:
            made.append(_escape(piece))
        else:
            made.append(piece)
    made.append(")" * len(flags[0]))
    return "".join(made)


def _set(piece: str) -> str:
    piece = re.sub(r"\[:(\w+):\]", lambda found: POSIX[found[1]], piece)
    head = piece[:2] if piece.startswith("[^") else "["
    return head + re.sub(r"(?<!\\)\[", r"\\[", piece[len(head) : -1]) + "]"


def _escape(piece: str) -> str:
    if piece == r"\z":
        return r"\Z"
    if piece[1] in "pPQECX":
        raise Unsupported(f"{piece} is not supported")
    return piece


def convert(document: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rules, and why others are left out."""
    kept, left_out = [], {}
    common = [document["allowlist"]] if "allowlist" in document else []
    for one in document["rules"]:
        try:
            kept.append(_rule(one, [*common, *one.get("allowlists", ())]))
        except (Unsupported, re.error) as exc:
            left_out[one["id"]] = str(exc)
    return kept, left_out


def _rule(one: Mapping[str, Any], lists: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if "regex" not in one or "path" in one:
        raise Unsupported("is about a path")
    if not one.get("keywords"):
        raise Unsupported("has no keyword")
    made = {
        "id": one["id"],
        "source": _LEAD.sub(r"\1", translate(one["regex"])),
        "keywords": sorted({word.lower() for word in one["keywords"]}),
        "group": one.get("secretGroup", 0),
        "entropy": one.get("entropy", 0.0),
        **_allowed(lists),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule = Rule.from_document(made)
        re.compile(rule.source)
    _check_speed(rule)
    return {name: value for name, value in made.items() if value}


def _allowed(lists: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {
        "allowed_values": [], "allowed_matches": [], "allowed_lines": [], "stopwords": [],
    }  # fmt: skip
    target = {"match": "allowed_matches", "line": "allowed_lines"}
    for one in lists:
        # A rule that also requires a path or a commit does not apply to plain text.
        if one.get("condition") == "AND" and ("paths" in one or "commits" in one):
            continue
        kind = target.get(one.get("regexTarget", ""), "allowed_values")
        made[kind] += map(translate, one.get("regexes", ()))
        made["stopwords"] += (word.lower() for word in one.get("stopwords", ()))
    return made


def _check_speed(rule: Rule) -> None:
    for text in _hostile(rule):
        best = 9e9
        for _ in range(3):
            began = time.process_time()
            list(rule.find(text, 0, len(text)))
            best = min(best, time.process_time() - began)
        if best > SLOWEST_WINDOW:
            raise Unsupported(f"takes {best * 1000:.0f} ms for a window")


def _hostile(rule: Rule) -> Iterator[str]:
    size = BEFORE + BEHIND
    for word in rule.keywords:
        for piece in (word, f"{word}=", f'{word} "', f"{word} a1b2", "a", " ", "=", "-"):
            yield (word + piece * size)[:size]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Convert the rules of gitleaks.")
    parser.add_argument("config", type=Path)
    parser.add_argument("--version", required=True, help="of the rules, as their source names it")
    parser.add_argument("--license", type=Path, required=True, help="the file with their licence")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    kept, left_out = convert(tomllib.loads(given.config.read_text("utf-8")))
    given.folder.mkdir(parents=True, exist_ok=True)
    name = given.config.stem
    head = {"source": name, "version": given.version, "license": f"{name}.LICENSE", "rules": kept}
    (given.folder / f"{name}.json").write_text(json.dumps(head, indent=1) + "\n", "utf-8")
    (given.folder / f"{name}.LICENSE").write_bytes(given.license.read_bytes())
    for rule, problem in left_out.items():
        print(f"left out: {rule}: {problem}")
    print(f"{len(kept)} rules in {given.folder / name}.json, {len(left_out)} left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
