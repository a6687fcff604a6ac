"""The sealed set: what it covers, and that the tuning set and the tables do not share its words."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from holdfast import Settings
from holdfast_llm import ProviderSettings
from holdfast_rewrite.enums import Mark, MessageIntent, Strength
from holdfast_rewrite.settings import JudgeRouteSettings, RewriteSettings
from holdfast_simulator import Prompt, Simulator, judge
from tests.apps.household import ROUTE
from tools.rewrite_cases import EVAL
from tools.rewrite_eval import main
from tools.rewrite_judges import RecordedJudge, Recording, ScriptedJudge, Verdict
from tools.rewrite_measure import (
    MOST_BAD_STORED,
    Share,
    labeled_of,
    measure_classifier,
    measure_pairs,
    missed_targets,
)
from tools.rewrite_pairs import CERTAIN, KINDS, SEALED, TUNING, Pair, pairs_of, sealed_of
from tools.rewrite_provider_judge import ProviderJudge

LOCALES = ["de", "en", "es", "fr", "it", "nl", "pl", "pt"]
TABLES = Path(str(resources.files("holdfast_rewrite")))
_SENTENCE = re.compile(r"[^.!?…\n]+")
_WORD = re.compile(r"[^\W_]+")
# Two sentences with this share of their four-word runs in common count as one.
NEAR = 0.5
RUN = 4
STYLES = ("chat", "formal", "typos", "long", "elliptical", "older", "nonnative", "list")
# The tables have phrases of four common words: "es importante para mí".
TABLE_RUN = 5


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def runs_of(text: str, size: int = RUN) -> set[tuple[str, ...]]:
    words = words_of(text)
    return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)}


def strings_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != "sources":
                yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


@cache
def tuning_sentences() -> tuple[str, ...]:
    texts: list[str] = []
    for path in EVAL.rglob("*.*"):
        if SEALED in path.parts:
            continue
        for line in path.read_text("utf-8").splitlines():
            found = json.loads(line) if path.suffix == ".jsonl" else line
            texts += strings_in(found)
    return tuple(sentence for text in texts for sentence in _SENTENCE.findall(text))


@cache
def sealed_sentences() -> tuple[str, ...]:
    texts = [
        text
        for locale in LOCALES
        for case in sealed_of(locale)
        for text in (case.original, *case.good, *(bad for _, bad in case.bad))
    ]
    return tuple(sentence for text in texts for sentence in _SENTENCE.findall(text))


def test_no_sealed_sentence_is_in_the_tuning_set_or_nearly() -> None:
    known = {tuple(words_of(sentence)) for sentence in tuning_sentences()}
    runs = {run for sentence in tuning_sentences() for run in runs_of(sentence)}
    shared = []
    for sentence in sealed_sentences():
        words, found = words_of(sentence), runs_of(sentence)
        is_equal = len(words) >= RUN and tuple(words) in known
        if is_equal or (len(found) > 1 and len(found & runs) / len(found) >= NEAR):
            shared.append(sentence)

    assert shared == []


def test_no_table_has_a_run_of_words_that_only_the_sealed_set_has() -> None:
    common, sealed = (
        {run for sentence in sentences for run in runs_of(sentence, TABLE_RUN)}
        for sentences in (tuning_sentences(), sealed_sentences())
    )
    sealed -= common
    found = [
        f"{path.name}: {phrase}"
        for path in TABLES.rglob("*.toml")
        for phrase in strings_in(tomllib.loads(path.read_text("utf-8")))
        # An entry may list alternatives; each is one phrase.
        for part in re.split(r"[|,;()]", phrase)
        if runs_of(part, TABLE_RUN) & sealed
    ]

    assert found == []


@pytest.mark.parametrize("locale", LOCALES)
def test_every_language_has_the_kinds_the_styles_and_translations(locale: str) -> None:
    cases = sealed_of(locale)
    kinds = {kind for case in cases for kind, _ in case.bad}

    assert set(KINDS) - kinds == set()
    assert {case.style for case in cases} == set(STYLES)
    assert sum(case.source != case.target for case in cases) >= 3
    assert {case.strength for case in cases} == set(Strength)
    assert {case.intent for case in cases} == set(MessageIntent)


def test_the_sealed_set_has_four_hundred_pairs_and_each_certain_kind_eight_times() -> None:
    counts = Counter(pair.kind for pair in pairs_of(SEALED))

    assert sum(counts.values()) >= 400
    assert counts["good"] >= 160
    assert [kind for kind in CERTAIN if counts[kind] < 8] == []


def test_no_author_of_the_sealed_set_wrote_the_tuning_set_and_each_wrote_enough() -> None:
    sealed = Counter((pair.author, pair.is_good) for pair in pairs_of(SEALED))
    tuning = {pair.author for pair in pairs_of(TUNING)}

    assert {author for author, _ in sealed}.isdisjoint(tuning)
    # The last authors wrote sets to repeat the first measurement, the last one of good rewrites.
    assert {author: min(sealed[author, True], sealed[author, False]) for author, _ in sealed} == {
        "sealed-a": 164,
        "sealed-b": 160,
        "sealed-c": 212,
        "sealed-d": 83,
        "sealed-e": 40,
    }


# -- the figures


def recorded(path: Path, pairs: list[Pair]) -> RecordedJudge:
    """A recording without a verdict on the first pair."""
    lines = [json.dumps({"pair_id": pair.pair_id, "verdict": "store"}) for pair in pairs[1:]]
    path.write_text("\n".join(lines), "utf-8")
    return RecordedJudge.read(path)


def test_the_sealed_figures_meet_their_targets() -> None:
    pairs = pairs_of(SEALED)
    table = measure_pairs(pairs, ScriptedJudge.over(pairs))

    assert list(missed_targets(table)) == []


def test_the_gate_alone_stores_too_much_of_every_lane_and_strength() -> None:
    """So `hold` holds all of them, and the documents state what `gate_only` stores."""
    pairs = pairs_of(SEALED)
    table = measure_pairs(pairs, ScriptedJudge.over(pairs))
    passed: dict[tuple[str, str], list[bool]] = {}
    for one in table.bad:
        kind = (one.pair.lane, one.pair.request.rewrite_strength)
        passed.setdefault(kind, []).append(one.gate is not Mark.FAIL)
    let_through = Share(sum(sum(kind) for kind in passed.values()), len(table.bad))

    assert len(passed) == 4
    assert min(sum(kind) / len(kind) for kind in passed.values()) > MOST_BAD_STORED
    said = f"{let_through.part} of {let_through.whole}"
    pages = ("docs/applications/rewrite-judge.md", "docs/reference/settings.md")
    for path in (*pages, "holdfast.toml.example"):
        assert said in (EVAL.parent / path).read_text("utf-8"), path


def test_the_scripted_judge_errs_as_often_as_it_says() -> None:
    pairs = pairs_of(SEALED)
    judge = ScriptedJudge.over(pairs, recall=0.9, specificity=0.95)
    held = Counter(pair.is_good for pair in pairs if judge.verdict(pair) is Verdict.HOLD)
    good = sum(pair.is_good for pair in pairs)

    assert held[True] == round(0.05 * good)
    assert held[False] == len(pairs) - good - round(0.1 * (len(pairs) - good))


def test_nothing_is_stored_without_a_verdict_and_a_warning_is_held(tmp_path: Path) -> None:
    pairs = [pair for pair in pairs_of(SEALED) if pair.request.target_locale == "en"]
    table = measure_pairs(pairs, recorded(tmp_path / "verdicts", pairs))
    threat = next(one for one in table.judged if one.pair.kind == "threat")

    assert table.judged[0].judge is Verdict.NONE
    assert not table.judged[0].is_stored
    assert threat.judge is Verdict.STORE
    assert not threat.is_stored


def test_the_judge_of_a_provider_is_asked_as_in_production() -> None:
    pairs = [pair for pair in pairs_of(SEALED) if pair.request.target_locale == "en"][:4]

    asked: list[str] = []

    def respond(prompt: Prompt) -> Any:
        asked.append(prompt.text)
        match len(asked):
            case 2:
                return judge(prompt, {"threat"})
            case 3:
                return "no verdict"
            case _:
                return judge(prompt)

    with Simulator(responder=respond) as simulator:
        provider = ProviderSettings(
            base_url=simulator.url("openai"), credential_env="A_KEY", allow_private=True
        )
        route = JudgeRouteSettings(provider="openai", adapter_kind="openai_responses", model="j-1")
        settings = Settings(
            providers={"openai": provider},
            rewrite=RewriteSettings(routes=(ROUTE,), judge_route=route),
        )
        found = ProviderJudge(settings, env={"A_KEY": "not-a-real-key"})
        said = [found.verdict(pair) for pair in pairs]

    assert said == [Verdict.STORE, Verdict.HOLD, Verdict.NONE, Verdict.STORE]
    assert all(pair.request.target_locale in text for pair, text in zip(pairs, asked, strict=True))


@pytest.mark.parametrize(
    ("route", "why"),
    [
        ("no.such.module:make", "no.such.module"),
        ("json:no_such_factory", "has no no_such_factory"),
        ("no-such-file", "no-such-file is no judge"),
    ],
)
def test_an_unknown_judge_is_an_error_and_not_a_traceback(
    route: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--judge", route]) == 2
    assert why in capsys.readouterr().err


def test_verdicts_are_recorded_for_another_run(tmp_path: Path) -> None:
    pairs = pairs_of(SEALED)[:20]
    scripted = ScriptedJudge.over(pairs)
    recording = Recording(scripted, tmp_path / "verdicts")
    said = [recording.verdict(pair) for pair in pairs]
    replayed = RecordedJudge.read(tmp_path / "verdicts")

    assert [replayed.verdict(pair) for pair in pairs] == said


def test_an_interval_is_that_of_wilson() -> None:
    low, high = Share(0, 164).interval

    assert (low, round(high, 4)) == (0.0, 0.0229)
    assert str(Share(1, 4)) == "1/4 25.0% [5%-70%]"


def test_a_strength_is_rarely_too_light_on_sealed_messages() -> None:
    score = measure_classifier(labeled_of(SEALED))

    # An error in the other direction is safe: it reframes a calm message.
    # 9 % and 16 % measured.
    assert score.sharp_missed.value <= 0.1
    assert score.calm_reframed.value <= 0.2
