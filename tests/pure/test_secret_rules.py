"""Rules of another scanner, converted: they find their secrets in linear time, with our own."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import string
from pathlib import Path
from types import ModuleType

import pytest

from holdfast import secret_rules
from holdfast.redact import redact
from holdfast.secret_rules import BEHIND, Rule, RuleSet, read_rules

ROOT = Path(__file__).resolve().parents[2]
# Written for this test, in the form that gitleaks has.
CONFIG = r"""
[allowlist]
regexes = ['''^example-''']
stopwords = ["placeholder"]

[[rules]]
id = "acme"
regex = '''(?i)[\w.-]{0,50}?(?:acme)[\w.-]{0,20}['"]? ?[=:] ?['"]?([a-z0-9-]{20,40})(?:['"]|\z)'''
keywords = ["Acme"]
entropy = 3.0

[[rules]]
id = "half"
regex = '''\b(HLF-(?i)[a-f0-9]{20}|old-[x-z]{4})\b'''
keywords = ["hlf-", "old-"]

[[rules]]
id = "listed"
regex = '''lst_(?P<body>[[:alnum:]]{24})'''
keywords = ["lst_"]
[[rules.allowlists]]
regexTarget = "line"
regexes = ['''# fixture''']

[[rules]]
id = "whole-file"
path = '''\.p12$'''

[[rules]]
id = "slow"
regex = '''slow((a+)+)+b'''
keywords = ["slow"]
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("secret_rules", ROOT / "tools/secret_rules.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def rules(tool: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> RuleSet:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "other.toml").write_text(CONFIG)
    (folder / "LICENSE").write_text("Do as you like.")
    # The slow rule would take for ever, so it is checked alone below.
    config = CONFIG[: CONFIG.index('[[rules]]\nid = "slow"')]
    (folder / "other.toml").write_text(config)
    tool.main(
        [str(folder / "other.toml"), "--version", "v1", "--license", str(folder / "LICENSE"),
         "--folder", str(folder / "made")]
    )  # fmt: skip
    made = json.loads((folder / "made/other.json").read_text())
    assert (made["source"], made["version"]) == ("other", "v1")
    assert (folder / "made" / made["license"]).read_text() == "Do as you like."
    return read_rules((folder / "made/other.json").read_text())


def token(size: int, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices(string.hexdigits.lower()[:16], k=size))


def struck(rules: RuleSet, text: str) -> list[str]:
    return [text[start:end] for start, end, _ in rules.find(text)]


def test_a_rule_finds_its_secret_and_only_that(rules: RuleSet) -> None:
    secret = token(32)

    assert struck(rules, f"ACME_KEY = '{secret}'") == [secret]
    assert struck(rules, f"hlf-{token(20)} HLF-{token(20).upper()}") == [f"HLF-{token(20).upper()}"]
    assert struck(rules, "old-xyzx") == ["old-xyzx"]
    assert struck(rules, f"x {'y' * 2_000} acme: {secret}") == [secret]


def test_entropy_and_exceptions_are_kept(rules: RuleSet) -> None:
    assert struck(rules, f"acme = '{'ab' * 16}'") == []
    assert struck(rules, f"acme = 'example-{token(24)}'") == []
    assert struck(rules, f"acme = 'placeholder{token(24)}'") == []
    assert struck(rules, f"lst_{token(24)}  # fixture") == []
    assert struck(rules, f"lst_{token(24)}  # real") == [token(24)]


def test_what_cannot_be_converted_is_left_out_and_named(tool: ModuleType) -> None:
    kept, left_out = tool.convert(
        {
            "rules": [
                {"id": "file", "path": "x"},
                {"id": "blind", "regex": "x"},
                {"id": "classes", "regex": r"\pL", "keywords": ["x"]},
            ]
        }
    )

    assert kept == []
    assert set(left_out) == {"file", "blind", "classes"}


def test_a_rule_that_takes_too_long_is_left_out(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "SLOWEST_WINDOW", 0.0)

    _, left_out = tool.convert({"rules": [{"id": "s", "regex": "slow(a+)b", "keywords": ["slow"]}]})

    assert "for a window" in left_out["s"]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"a(?i)b|c", ["ab", "aB", "C"], ["Ab"]),
        (r"(x(?i)y)z", ["xyz", "xYz"], ["xyZ"]),
        (r"(?i)a(?-i)b", ["Ab"], ["aB"]),
        (r"a\z", ["a"], ["a\n"]),
        (r"[[:digit:]x]+", ["1x"], ["a"]),
        (r"[]a]", ["]"], ["b"]),
        (r"(?<n>a)", ["a"], []),
        (r"\(\?i\)", ["(?i)"], ["x"]),
    ],
)
def test_a_pattern_means_in_python_what_it_means_in_re2(
    tool: ModuleType, pattern: str, yes: list[str], no: list[str]
) -> None:
    made = re.compile(tool.translate(pattern))

    assert [text for text in yes if not made.fullmatch(text)] == []
    assert [text for text in no if made.fullmatch(text)] == []


def test_rules_that_came_with_the_package_are_in_force(
    rules: RuleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.secret_keys.installed_rules", lambda: (rules,))

    assert redact(f"lst_{token(24)} here") == "lst_[secret] here"


def test_many_rules_take_linear_time_and_nothing_is_let_through() -> None:
    """Every rule has a keyword everywhere: more than may be scanned."""
    words = [f"w{chr(97 + at)}" for at in range(24)]
    many = RuleSet(
        [Rule(word, rf"{word}_([a-f0-9]{{32}})", (word,), entropy=3.0) for word in words]
    )
    text = (" ".join([*words, f"wx_{token(32)}"]) + " ") * 300
    windows = list(many._windows(text))

    # A character is in one window of a rule at most, and not all windows are scanned.
    assert sum(end - start for _, start, end in windows) <= len(words) * len(text)
    assert len(words) > secret_rules.MOST_SCANNED
    assert sum(token(32) in one for one in struck(many, text)) >= 300


def test_a_window_reaches_as_far_as_a_secret_is_long() -> None:
    rule = Rule("x", r"kw=(\S{40})", ("kw",))
    text = "kw" + " " * BEHIND + "kw=" + "a1" * 20

    assert struck(RuleSet([rule]), text) == ["a1" * 20]


def test_the_files_in_the_package_can_be_read() -> None:
    secret_rules.installed_rules.cache_clear()

    for found in secret_rules.installed_rules():
        for rule in found.rules:
            assert rule.pattern
            assert rule.keywords
