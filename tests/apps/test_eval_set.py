"""The evaluation set: what it covers, and what the lexicons and the judge make of it."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from importlib import resources
from pathlib import Path

import pytest

from holdfast_rewrite.enums import Code, MessageIntent, PowerMode, Strength, Topic
from holdfast_rewrite.lexicon import Lexicon
from tools import rewrite_eval
from tools.rewrite_cases import EVAL, cases_of, polite_of
from tools.rewrite_eval import HARD, Outcome, Report, Score, measure

LOCALES = ["de", "en", "es", "fr", "it", "nl", "pl", "pt"]
FLOOR = 0.95
LEXICONS = Path(str(resources.files("holdfast_rewrite"))) / "lexicons"


@cache
def measured(locale: str) -> Report:
    return measure([locale])


def score_of(locale: str) -> Score:
    return measured(locale).scores[locale]


def wrong(locale: str, part: str) -> list[str]:
    outcomes = measured(locale).outcomes.items()
    return [f"{name}: {it.said}" for name, it in outcomes if part in name and not it.is_right]


# -- the numbers


@pytest.mark.req("V-02")
@pytest.mark.parametrize("locale", LOCALES)
def test_the_lexicon_finds_the_hard_codes_and_little_else(locale: str) -> None:
    score = score_of(locale)
    recall, precision = score.recall(HARD), score.precision(HARD)

    assert recall is not None
    assert precision is not None
    assert recall >= FLOOR, wrong(locale, "original")
    assert precision >= FLOOR, wrong(locale, "original")


@pytest.mark.parametrize("locale", LOCALES)
def test_no_polite_sentence_raises_a_hard_code(locale: str) -> None:
    assert len(set(polite_of(locale))) >= 200
    assert wrong(locale, "polite") == []


@pytest.mark.parametrize("locale", LOCALES)
def test_good_rewrites_pass_the_judge(locale: str) -> None:
    score = score_of(locale)

    assert score.good_passed / score.good >= FLOOR, wrong(locale, " good ")


@pytest.mark.parametrize("locale", LOCALES)
def test_bad_rewrites_fail_with_their_codes(locale: str) -> None:
    score = score_of(locale)

    assert score.bad_failed / score.bad >= FLOOR, wrong(locale, " bad ")


# -- what the set covers


@pytest.mark.parametrize("locale", LOCALES)
def test_every_topic_meets_every_power_twice_and_both_strengths(locale: str) -> None:
    cases = cases_of(locale)
    pairs = Counter((case.topic, case.power_mode) for case in cases)
    strengths = {(case.topic, case.rewrite_strength) for case in cases}

    assert len(cases) >= 42
    assert [pair for pair in ((t, p) for t in Topic for p in PowerMode) if pairs[pair] < 2] == []
    assert strengths == {(topic, strength) for topic in Topic for strength in Strength}


@pytest.mark.parametrize("locale", LOCALES)
def test_every_intent_and_every_code_occurs(locale: str) -> None:
    cases = cases_of(locale)
    codes = {code for case in cases for code in case.expected_lexicon_violations} | {
        code for case in cases for bad in case.bad_rewrites for code in bad.codes
    }

    assert {case.expected_intent for case in cases} == set(MessageIntent)
    assert codes == set(Code)


@pytest.mark.parametrize("locale", LOCALES)
def test_every_case_is_distinct_and_has_rewrites_of_both_kinds(locale: str) -> None:
    cases = cases_of(locale)
    texts = [case.original_text for case in cases]

    assert len({case.case_id for case in cases}) == len(cases)
    assert len(set(texts)) == len(texts)
    assert all(1 <= len(case.good_rewrites) <= 2 for case in cases)
    assert all(1 <= len(case.bad_rewrites) <= 2 for case in cases)


@pytest.mark.parametrize("locale", LOCALES)
def test_six_cases_or_more_go_from_one_language_to_another(locale: str) -> None:
    across = [case for case in cases_of(locale) if case.source_locale != case.target_locale]

    assert len(across) >= 6
    assert len({(case.source_locale, case.target_locale) for case in across}) >= 3


@pytest.mark.parametrize("topic", Topic)
def test_english_has_vulgar_cynical_and_boundary_variants_of_every_topic(topic: Topic) -> None:
    cases = [case for case in cases_of("en") if case.topic is topic]
    codes = Counter(code for case in cases for code in case.expected_lexicon_violations)

    assert len(cases) >= 9
    assert codes[Code.VULGARITY] >= 5
    assert codes[Code.SARCASM_WARN] >= 2
    assert sum(case.expected_intent is MessageIntent.BOUNDARY for case in cases) >= 2


# -- the tool


def five_of(folder: Path) -> None:
    """The first five cases and sentences of English, as a folder like eval/."""
    for name in ("cases/en.jsonl", "polite/en.txt"):
        lines = (EVAL / name).read_text("utf-8").splitlines(keepends=True)
        (folder / name).parent.mkdir()
        (folder / name).write_text("".join(lines[:5]), "utf-8")


@pytest.mark.req("V-06")
def test_a_lexicon_that_lost_a_word_shows_what_it_let_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    five_of(tmp_path)
    weaker = (LEXICONS / "en.toml").read_text("utf-8").replace('version = "3"', 'version = "0"')
    (tmp_path / "en.toml").write_text(weaker.replace('"damn"', '"darn"'), "utf-8")

    before = rewrite_eval.measure_elsewhere(str(tmp_path), ["en"], folder=tmp_path)
    after = measure(["en"], folder=tmp_path)
    is_kept = rewrite_eval.compare(before, after)

    assert is_kept
    shown = capsys.readouterr().out
    assert "before: en-0\nafter:  en-3" in shown
    assert "from right to wrong: 0\n\nfrom wrong to right: 1\n  en-noise-01 bad 1" in shown
    assert not rewrite_eval.compare(after, before)


def test_an_outcome_that_turned_wrong_is_a_regression(capsys: pytest.CaptureFixture[str]) -> None:
    before = Report({"xx": "xx-1"}, {}, {"xx-1 good 1": Outcome(True, "pass -")})
    after = Report({"xx": "xx-2"}, {}, {"xx-1 good 1": Outcome(False, "fail blame")})

    assert not rewrite_eval.compare(before, after)
    assert "from right to wrong: 1" in capsys.readouterr().out
    assert rewrite_eval.compare(after, before)


@pytest.mark.req("V-06")
def test_the_answers_of_two_prompts_are_judged_and_compared(tmp_path: Path) -> None:
    five_of(tmp_path)
    case = next(case for case in cases_of("en", tmp_path) if case.bad_rewrites[0].codes)
    good, bad = case.good_rewrites[0], case.bad_rewrites[0].text
    for name, texts in (("v1", (good, good)), ("v2", (bad, good))):
        answers = [
            {"case_id": case.case_id, "rewritten_text": text, "output_language": "en"}
            for text in texts
        ]
        (tmp_path / name).write_text("\n".join(map(json.dumps, answers)), "utf-8")
    kind, unkind = (
        measure(["en"], rewrites=tmp_path / name, folder=tmp_path) for name in ("v1", "v2")
    )

    assert (kind.scores["en"].rewrites_passed, kind.scores["en"].rewrites) == (2, 2)
    assert unkind.scores["en"].rewrites_passed == 1
    assert not rewrite_eval.compare(kind, unkind)


def test_an_answer_that_is_missing_is_worse_than_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    five_of(tmp_path)
    answers = [
        json.dumps(
            {
                "case_id": case.case_id,
                "rewritten_text": case.good_rewrites[0],
                "output_language": case.target_locale,
            }
        )
        for case in cases_of("en", tmp_path)
    ]
    (tmp_path / "full").write_text("\n".join(answers), "utf-8")
    (tmp_path / "part").write_text(answers[0], "utf-8")
    asked = ["--cases", str(tmp_path), "--rewrites", str(tmp_path / "part")]

    code = rewrite_eval.main([*asked, "--against", str(tmp_path / "full")])

    assert code == 1
    shown = capsys.readouterr().out
    assert "from right to wrong: 0" in shown
    assert "there before, missing now: 4" in shown


@pytest.mark.parametrize(
    ("args", "text", "says"),
    [
        (["--rewrites", "{}/gone"], "", "gone is no file of UTF-8 text that can be read."),
        (["--rewrites", "{}/v1"], "\n{", "v1, line 2: it is not JSON."),
        (["--rewrites", "{}/v1"], '{"case_id": "en-noise-01"}', "v1, line 1: it must be an object"),
        (
            ["--rewrites", "{}/v1"],
            '{"case_id": "other", "rewritten_text": "Hi", "output_language": "en"}',
            "v1, line 1: 'other' is no case under",
        ),
        (["--rewrites", "{}/v1"], "\n", "v1 holds no answer."),
        (["--against", "{}/v1"], "\n", "v1 is a file of rewrites: name the others"),
        (
            ["--against", "nonexist"],
            "",
            "nonexist is neither a folder, nor a file, nor a revision.",
        ),
        (["xx"], "", "xx has no cases; there are: en."),
        (["--cases", "{}/gone"], "", "gone is no folder like eval/"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_sentence_before_anything_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    text: str,
    says: str,
) -> None:
    five_of(tmp_path)
    (tmp_path / "v1").write_text(text, "utf-8")
    monkeypatch.setattr(rewrite_eval, "measure", None)
    given = [arg.format(tmp_path) for arg in args]

    code = rewrite_eval.main(["--cases", str(tmp_path), *given])

    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_number_below_its_floor_is_named() -> None:
    report = Report({"xx": "xx-1"})
    score = report.score_of("xx")
    score.found["slur"], score.missed["slur"], score.polite_hard = 9, 1, 2

    assert list(rewrite_eval.below(report)) == [
        "xx: recall 0.900 is below 0.95",
        "xx: 2 polite sentences raise a hard code",
    ]


def test_a_lexicon_without_words_is_below_every_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    five_of(tmp_path)
    empty = Lexicon({"version": "0", "locale": "en"}, locale="en")
    monkeypatch.setattr(Lexicon, "for_locale", lambda locale: empty)

    faults = list(rewrite_eval.below(measure(["en"], folder=tmp_path)))

    assert faults[0] == "en: recall 0.000 is below 0.95"
