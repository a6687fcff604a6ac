"""Measure the lexicons and the validation of the complaint rewrite on the cases under eval/.

    python tools/rewrite_eval.py
    python tools/rewrite_eval.py --against main
    python tools/rewrite_eval.py --against /path/to/lexicons
    python tools/rewrite_eval.py --rewrites v2.jsonl --against v1.jsonl

Prints precision and recall of every code on the originals, how many good rewrites pass and bad ones
fail, and the matches in the polite sentences; then the gate alone, the gate with a judge, and the
classifier, on the tuning and the sealed set side by side. --judge names the judge: scripted, a file
of recorded verdicts, or module:factory for a route to a provider. --against validates the same
cases with the lexicons of a folder, or with a revision's lexicons and code. --rewrites also
validates answers of a model, one {"case_id", "rewritten_text", "output_language"} per line; against
a second such file it compares two prompts. A comparison lists results that changed between right
and wrong, and results that are missing. The exit code is 1 if a number misses its target, or a
result became wrong or is missing; 2 if the input cannot be read.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from holdfast_rewrite.detect import local_detector
from holdfast_rewrite.enums import Code, Mark
from holdfast_rewrite.evaluate import Evaluation, evaluate
from holdfast_rewrite.lexicon import SECTIONS, Lexicon

# Last, so that the holdfast of --against takes precedence.
sys.path.append(str(Path(__file__).resolve().parent.parent))

from tools.rewrite_cases import EVAL, ROOT, Case, cases_of, locales, originals_of, polite_of
from tools.rewrite_judges import Recording, UnknownJudge, load_judge
from tools.rewrite_measure import (
    labeled_of,
    measure_classifier,
    measure_pairs,
    missed_targets,
    show_classifier,
    show_tables,
    show_wrong,
)
from tools.rewrite_pairs import SEALED, TUNING, pairs_of

FLOOR = 0.95


@dataclass(slots=True)
class Score:
    """The counts of one language."""

    found: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    good: int = 0
    good_passed: int = 0
    bad: int = 0
    bad_failed: int = 0
    polite: int = 0
    polite_hard: int = 0
    polite_warned: int = 0
    rewrites: int = 0
    rewrites_passed: int = 0

    def recall(self, codes: Iterable[str]) -> float | None:
        names = list(codes)
        found = sum(self.found[name] for name in names)
        return _share(found, found + sum(self.missed[name] for name in names))

    def precision(self, codes: Iterable[str]) -> float | None:
        names = list(codes)
        found = sum(self.found[name] for name in names)
        return _share(found, found + sum(self.wrong[name] for name in names))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one text: whether it is right, and the details."""

    is_right: bool
    said: str


@dataclass(slots=True)
class Report:
    """All measurements by language, and the result for every text."""

    versions: dict[str, str] = field(default_factory=dict)
    scores: dict[str, Score] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def score_of(self, locale: str) -> Score:
        return self.scores.setdefault(locale, Score())


HARD = tuple(code.value for code in SECTIONS)
# The codes that the gate can find in a rewrite; the others are for the judge.
DECIDED = frozenset({*SECTIONS, Code.NEW_FACT, Code.NON_TARGET_LOCALE})


def measure(wanted: Iterable[str], *, rewrites: Path | None = None, folder: Path = EVAL) -> Report:
    """Run every case and sentence of these languages."""
    report = Report()
    answers = read_answers(rewrites, folder) if rewrites else {}
    for locale in wanted:
        lexicon = Lexicon.for_locale(locale)
        report.versions[locale] = lexicon.version if lexicon else "none"
        score = report.score_of(locale)
        for name, text, codes in originals_of(locale, folder):
            _measure_original(report, locale, name, text, codes)
        for case in cases_of(locale, folder):
            _measure_original(
                report,
                # A cross-language case has its original in the source language.
                case.source_locale,
                case.case_id,
                case.original_text,
                case.expected_lexicon_violations,
            )
            _measure_rewrites(report, score, case)
            for at, (text, language) in enumerate(answers.get(case.case_id, ()), 1):
                judged = judge(case, text, language)
                is_right = judged.verdict is not Mark.FAIL
                score.rewrites += 1
                score.rewrites_passed += is_right
                name = f"{case.case_id} rewrite {at}"
                report.outcomes[name] = Outcome(is_right, _judged(judged))
        for at, sentence in enumerate(polite_of(locale, folder) if lexicon else (), 1):
            assert lexicon is not None
            codes = lexicon.check(sentence).codes
            score.polite += 1
            score.polite_hard += any(code.is_hard for code in codes)
            score.polite_warned += bool(codes) and not any(code.is_hard for code in codes)
            is_right = not any(code.is_hard for code in codes)
            report.outcomes[f"{locale}-polite-{at:03}"] = Outcome(is_right, _said(codes))
    return report


def _measure_original(
    report: Report, locale: str, name: str, text: str, expected: tuple[Code, ...]
) -> None:
    lexicon = Lexicon.for_locale(locale)
    if lexicon is None:
        return
    score = report.score_of(locale)
    found = tuple(code for code in lexicon.check(text).codes if code in SECTIONS)
    expected = tuple(code for code in expected if code in SECTIONS)
    score.found.update(code.value for code in found if code in expected)
    score.wrong.update(code.value for code in found if code not in expected)
    score.missed.update(code.value for code in expected if code not in found)
    report.outcomes[f"{name} original"] = Outcome(set(found) == set(expected), _said(found))


def _measure_rewrites(report: Report, score: Score, case: Case) -> None:
    for at, text in enumerate(case.good_rewrites, 1):
        judged = judge(case, text, case.target_locale)
        is_right = judged.verdict is not Mark.FAIL
        score.good += 1
        score.good_passed += is_right
        report.outcomes[f"{case.case_id} good {at}"] = Outcome(is_right, _judged(judged))
    for at, bad in enumerate(case.bad_rewrites, 1):
        judged = judge(case, bad.text, case.target_locale)
        if not bad.codes or not DECIDED.issuperset(bad.codes):
            continue
        missing = set(bad.codes) - set(judged.result.violations)
        is_right = judged.verdict is Mark.FAIL and not missing
        score.bad += 1
        score.bad_failed += is_right
        report.outcomes[f"{case.case_id} bad {at}"] = Outcome(is_right, _judged(judged))


def judge(case: Case, text: str, language: str) -> Evaluation:
    """Validate a rewrite of a case."""
    return evaluate(
        case.request, rewritten_text=text, output_language=language, detector=local_detector()
    )


class Refused(Exception):
    """The input cannot be measured; the message gives the reason."""


def read_answers(path: Path, folder: Path = EVAL) -> dict[str, list[tuple[str, str]]]:
    """Return a model's answers by case. Raises Refused for an invalid line."""
    known = {case.case_id for locale in locales(folder) for case in cases_of(locale, folder)}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeError):
        raise Refused(f"{path} is no file of UTF-8 text that can be read.") from None
    found: dict[str, list[tuple[str, str]]] = {}
    for at, line in enumerate(lines, 1):
        if line.strip():
            case_id, *answer = _answer(f"{path}, line {at}", line)
            if case_id not in known:
                raise Refused(
                    f"{path}, line {at}: {case_id!r} is no case under {folder / 'cases'}."
                )
            found.setdefault(case_id, []).append((answer[0], answer[1]))
    if not found:
        raise Refused(f"{path} holds no answer.")
    return found


def _answer(where: str, line: str) -> tuple[str, ...]:
    try:
        said = json.loads(line)
    except ValueError:
        raise Refused(f"{where}: it is not JSON.") from None
    keys = ("case_id", "rewritten_text", "output_language")
    if not isinstance(said, dict) or not all(isinstance(said.get(key), str) for key in keys):
        raise Refused(f"{where}: it must be an object with the texts {', '.join(keys)}.")
    return tuple(said[key] for key in keys)


def _said(codes: Iterable[Code]) -> str:
    return " ".join(code.value for code in codes) or "-"


def _judged(judged: Evaluation) -> str:
    flags = " ".join(judged.result.flags)
    said = f"{judged.verdict.value} {_said(judged.result.violations)}"
    return f"{said} intent={judged.result.intent_preserved.value} {flags}".strip()


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# -- output


def show(report: Report) -> None:
    """Print the table."""
    known = [locale for locale in report.versions if locale in report.scores]
    print("lexicon on originals: precision / recall, and how often a code is expected\n")
    print(f"{'':22}" + "".join(f"{report.versions[locale]:>15}" for locale in known))
    for name in HARD:
        cells = [_cell(report.scores[locale], (name,)) for locale in known]
        if any(cell.strip() for cell in cells):
            print(f"{name:22}" + "".join(f"{cell:>15}" for cell in cells))
    cells = [_cell(report.scores[locale], HARD) for locale in known]
    print(f"{'all codes':22}" + "".join(f"{cell:>15}" for cell in cells))
    print("\njudge: how many\n")
    rows = [
        ("good rewrites pass", "good_passed", "good"),
        ("bad rewrites fail", "bad_failed", "bad"),
        ("polite, hard code", "polite_hard", "polite"),
        ("polite, warning", "polite_warned", "polite"),
        ("model's rewrites pass", "rewrites_passed", "rewrites"),
    ]
    for title, part, whole in rows:
        pairs = [
            (getattr(report.scores[locale], part), getattr(report.scores[locale], whole))
            for locale in known
        ]
        if any(of for _, of in pairs):
            print(f"{title:22}" + "".join(f"{f'{n}/{of}':>15}" for n, of in pairs))


def _cell(score: Score, names: tuple[str, ...]) -> str:
    count = sum(score.found[name] + score.missed[name] for name in names)
    precision, recall = score.precision(names), score.recall(names)
    if precision is None and recall is None:
        return ""
    return f"{_number(precision)}/{_number(recall)} {count:>3}"


def _number(share: float | None) -> str:
    return "  - " if share is None else f"{share:.2f}"


def below(report: Report) -> Iterator[str]:
    """Yield the numbers below their floor."""
    for locale in report.versions:
        score = report.scores[locale]
        for title, share in (
            ("recall", score.recall(HARD)),
            ("precision", score.precision(HARD)),
            ("good rewrites", _share(score.good_passed, score.good)),
            ("bad rewrites", _share(score.bad_failed, score.bad)),
        ):
            if share is not None and share < FLOOR:
                yield f"{locale}: {title} {share:.3f} is below {FLOOR}"
        if score.polite_hard:
            yield f"{locale}: {score.polite_hard} polite sentences raise a hard code"


# -- two versions side by side


def compare(before: Report, after: Report) -> bool:
    """Print what changed between two versions; return whether nothing got worse or lost."""
    changes = [
        (name, before.outcomes[name], after.outcomes[name])
        for name in after.outcomes
        if name in before.outcomes and before.outcomes[name] != after.outcomes[name]
    ]
    worse = [change for change in changes if change[1].is_right and not change[2].is_right]
    better = [change for change in changes if not change[1].is_right and change[2].is_right]
    other = [change for change in changes if change[1].is_right == change[2].is_right]
    # A missing result cannot be compared.
    gone = [
        (name, was, Outcome(False, "-"))
        for name, was in before.outcomes.items()
        if name not in after.outcomes
    ]
    print("\nbefore: " + " ".join(before.versions.values()))
    print("after:  " + " ".join(after.versions.values()))
    for title, rows in (
        ("from right to wrong", worse),
        *([("there before, missing now", gone)] if gone else []),
        ("from wrong to right", better),
        ("said otherwise, as right or wrong as before", other),
    ):
        print(f"\n{title}: {len(rows)}")
        for name, was, now in rows:
            print(f"  {name:26} {was.said:45} | {now.said}")
    return not worse and not gone


def measure_elsewhere(
    against: str, wanted: list[str], *, rewrites: Path | None = None, folder: Path = EVAL
) -> Report:
    """Measure with the lexicons of a folder, or with a whole revision."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        if Path(against).is_dir():
            shutil.copytree(ROOT / "packages", tree / "packages")
            lexicons = tree / "packages/holdfast-rewrite/holdfast_rewrite/lexicons"
            for path in Path(against).glob("*.toml"):
                shutil.copy(path, lexicons)
        else:
            _unpack(against, tree)
        command = [sys.executable, __file__, "--json", "--cases", str(folder), *wanted]
        if rewrites:
            command += ["--rewrites", str(rewrites)]
        packages = sorted(str(path) for path in (tree / "packages").iterdir())
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(packages)}
        done = subprocess.run(command, env=env, check=False, stdout=subprocess.PIPE)  # noqa: S603
    if done.returncode:
        raise Refused(f"{against} cannot be measured; see above.")
    return _read_report(json.loads(done.stdout))


def _unpack(revision: str, tree: Path) -> None:
    command = ["git", "-C", str(ROOT), "archive", revision, "packages"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)  # noqa: S603
    if done.returncode:
        raise Refused(f"{revision} has no holdfast to measure with.")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(tree, filter="data")


def _read_report(document: dict[str, Any]) -> Report:
    return Report(
        versions=document["versions"],
        scores={},
        outcomes={name: Outcome(**said) for name, said in document["outcomes"].items()},
    )


def check_given(given: argparse.Namespace) -> None:
    """Raise Refused for arguments that cannot be measured, before measuring."""
    known = locales(given.cases)
    if not known:
        raise Refused(f"{given.cases} is no folder like eval/: it has no cases/*.jsonl.")
    if strange := [locale for locale in given.locales if locale not in known]:
        raise Refused(f"{strange[0]} has no cases; there are: {', '.join(known)}.")
    if given.rewrites:
        read_answers(given.rewrites, given.cases)
    load_judge(given.judge, ())
    if not given.against or Path(given.against).is_dir():
        return
    if Path(given.against).is_file():
        if not given.rewrites:
            raise Refused(f"{given.against} is a file of rewrites: name the others as --rewrites.")
        read_answers(Path(given.against), given.cases)
    elif not _is_revision(given.against):
        raise Refused(f"{given.against} is neither a folder, nor a file, nor a revision.")


def _is_revision(name: str) -> bool:
    command = ["git", "-C", str(ROOT), "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("locales", nargs="*", help="only these languages")
    parser.add_argument("--against", help="a revision, a folder of lexicons, or a file of rewrites")
    parser.add_argument("--rewrites", type=Path, help="what a model answered, to be judged as well")
    parser.add_argument("--cases", type=Path, default=EVAL, help="a folder like eval/")
    parser.add_argument(
        "--judge",
        default="scripted",
        help="scripted, provider (the judge of holdfast.toml), a file of verdicts, module:factory",
    )
    parser.add_argument("--record", type=Path, help="a file to keep the judge's verdicts in")
    parser.add_argument("--wrong", action="store_true", help="list what came out wrong")
    parser.add_argument("--json", action="store_true", help="print what came of every text")
    given = parser.parse_args(args)
    try:
        check_given(given)
        return _run(given)
    except (Refused, UnknownJudge) as refused:
        print(refused, file=sys.stderr)
        return 2


def _run(given: argparse.Namespace) -> int:
    folder = given.cases
    wanted = given.locales or locales(folder)
    report = measure(wanted, rewrites=given.rewrites, folder=folder)
    if given.json:
        outcomes = {name: asdict(outcome) for name, outcome in report.outcomes.items()}
        print(json.dumps({"versions": report.versions, "outcomes": outcomes}))
        return 0
    show(report)
    faults = list(below(report))
    if folder == EVAL and not given.locales:
        faults += _run_pairs(given)
    print("\n".join(["", *faults]) if faults else "")
    if given.wrong:
        for name, outcome in report.outcomes.items():
            if not outcome.is_right:
                print(f"{name:26} {outcome.said}")
    if not given.against:
        return 1 if faults else 0
    if Path(given.against).is_file():
        before = measure(wanted, rewrites=Path(given.against), folder=folder)
    else:
        before = measure_elsewhere(given.against, wanted, rewrites=given.rewrites, folder=folder)
    is_kept = compare(before, report)
    return 0 if is_kept and not faults else 1


def _run_pairs(given: argparse.Namespace) -> list[str]:
    """Measure the gate, the judge and the classifier on both sets; return the missed targets."""
    tables = {}
    for name in (TUNING, SEALED):
        pairs = pairs_of(name)
        judge = load_judge(given.judge, pairs)
        if given.record:
            judge = Recording(judge, given.record)
        tables[name] = measure_pairs(pairs, judge)
    show_tables(tables, judge.name)
    show_classifier({name: measure_classifier(labeled_of(name)) for name in (TUNING, SEALED)})
    if given.wrong:
        show_wrong(tables)
    return list(missed_targets(tables[SEALED]))


if __name__ == "__main__":
    sys.exit(main())
