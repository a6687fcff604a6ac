"""Measure the gate, alone and with a judge, on the tuning and the sealed pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt

from holdfast_rewrite.classify import Message
from holdfast_rewrite.classify_local import LocalClassifier
from holdfast_rewrite.detect import local_detector
from holdfast_rewrite.enums import Mark, MessageIntent, Strength, Surface
from holdfast_rewrite.evaluate import Evaluation, evaluate
from holdfast_rewrite.policy import strength_of
from tools.rewrite_cases import cases_of, locales
from tools.rewrite_judges import EvalJudge, Verdict
from tools.rewrite_pairs import CERTAIN, GOOD, TUNING, Pair, sealed_of

# 95 %.
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class Share:
    """A count of a whole, with its 95 % Wilson interval."""

    part: int
    whole: int

    @property
    def value(self) -> float:
        return self.part / self.whole if self.whole else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        if not self.whole:
            return 0.0, 1.0
        square = _Z * _Z / self.whole
        middle = (self.value + square / 2) / (1 + square)
        spread = _Z * sqrt(self.value * (1 - self.value) / self.whole + square / self.whole / 4)
        spread /= 1 + square
        return max(0.0, middle - spread), min(1.0, middle + spread)

    def __str__(self) -> str:
        if not self.whole:
            return "-"
        low, high = self.interval
        return f"{self.part}/{self.whole} {self.value:.1%} [{low:.0%}-{high:.0%}]"


@dataclass(frozen=True, slots=True)
class Judged:
    """One pair with the verdict of the gate and of a judge."""

    pair: Pair
    gate: Mark
    judge: Verdict
    said: str

    @property
    def is_stored(self) -> bool:
        """Return whether the pair is stored: both pass, without a warning of the gate."""
        return self.gate is Mark.PASS and self.judge is Verdict.STORE


@dataclass(slots=True)
class Table:
    """The counts of one set of pairs, by kind and by language."""

    judged: list[Judged] = field(default_factory=list)

    def where(self, *, kind: str | None = None, language: str | None = None) -> list[Judged]:
        return [
            one
            for one in self.judged
            if (kind is None or one.pair.kind == kind)
            and (language is None or one.pair.request.target_locale == language)
        ]

    @property
    def good(self) -> list[Judged]:
        return [one for one in self.judged if one.pair.is_good]

    @property
    def bad(self) -> list[Judged]:
        return [one for one in self.judged if not one.pair.is_good]

    @property
    def certain(self) -> list[Judged]:
        return [one for one in self.judged if one.pair.kind in CERTAIN]


def measure_pairs(pairs: Sequence[Pair], judge: EvalJudge) -> Table:
    """Run the gate and a judge over pairs."""
    detector = local_detector()
    found = Table()
    for pair in pairs:
        result = evaluate(
            pair.request,
            rewritten_text=pair.rewrite,
            output_language=pair.request.target_locale,
            detector=detector,
        )
        # A rewrite that the gate refused is not sent to the judge.
        is_refused = result.verdict is Mark.FAIL
        verdict = Verdict.NONE if is_refused else judge.verdict(pair)
        found.judged.append(Judged(pair, result.verdict, verdict, said_of(result)))
    return found


def said_of(result: Evaluation) -> str:
    """Return the codes and flags of a result, without text."""
    codes = " ".join(code.value for code in result.result.violations) or "-"
    return f"{result.verdict.value} {codes} {' '.join(result.result.flags)}".strip()


def refused(rows: Sequence[Judged]) -> Share:
    return Share(sum(one.gate is Mark.FAIL for one in rows), len(rows))


def warned(rows: Sequence[Judged]) -> Share:
    return Share(sum(one.gate is Mark.WARN for one in rows), len(rows))


def caught(rows: Sequence[Judged]) -> Share:
    """Return the share that the gate refused or warned about."""
    return Share(sum(one.gate is not Mark.PASS for one in rows), len(rows))


def stored(rows: Sequence[Judged]) -> Share:
    return Share(sum(one.is_stored for one in rows), len(rows))


def held(rows: Sequence[Judged]) -> Share:
    """Return the share that is not stored at once: refused, held or without a verdict."""
    return Share(sum(not one.is_stored for one in rows), len(rows))


# -- targets

# The gate alone on good rewrites, and the gate with the scripted judge.
MOST_GOOD_REFUSED = 0.01
MOST_GOOD_WARNED = 0.03
MOST_BAD_STORED = 0.05
MOST_GOOD_HELD = 0.08


def missed_targets(table: Table) -> Iterator[str]:
    """Yield the figures of the sealed set that miss their target."""
    for title, share, most in (
        ("good refused", refused(table.good), MOST_GOOD_REFUSED),
        ("good warned", warned(table.good), MOST_GOOD_WARNED),
        ("bad stored", stored(table.bad), MOST_BAD_STORED),
        ("good held", held(table.good), MOST_GOOD_HELD),
    ):
        if share.value > most:
            yield f"sealed: {title} {share.value:.1%} is above {most:.0%}"
    if refused(table.certain).value < 1:
        yield f"sealed: of the certain kinds, only {refused(table.certain)} are refused"
    unjudged = [one for one in table.judged if one.is_stored and one.judge is Verdict.NONE]
    if unjudged:
        yield f"sealed: {len(unjudged)} stored without a verdict"


# -- the classifier


@dataclass(frozen=True, slots=True)
class Labeled:
    """A message with the intent and the strength that a person gave it."""

    text: str
    intent: MessageIntent
    strength: Strength


@dataclass(frozen=True, slots=True)
class ClassifierScore:
    """How often the classifier agrees with the labels."""

    intent: Share
    sharp_missed: Share
    calm_reframed: Share


def labeled_of(name: str) -> list[Labeled]:
    """Return the labeled messages of the tuning or the sealed set."""
    if name == TUNING:
        cases = [case for locale in locales() for case in cases_of(locale)]
        return [Labeled(c.original_text, c.expected_intent, c.rewrite_strength) for c in cases]
    sealed = [case for locale in locales() for case in sealed_of(locale)]
    return [Labeled(case.original, case.intent, case.strength) for case in sealed]


def measure_classifier(messages: Sequence[Labeled]) -> ClassifierScore:
    """Classify messages as the orchestrator does, and compare with the labels."""
    classifier = LocalClassifier()
    counts: Counter[str] = Counter()
    for at, message in enumerate(messages):
        found = classifier.classify(Message(str(at), message.text, "sender", Surface.OTHER))
        counts["intent"] += found.intent is message.intent
        counts[message.strength] += 1
        counts[f"{message.strength} wrong"] += strength_of(found) is not message.strength
    full, light = Strength.FULL_REFRAME, Strength.LIGHT_TOUCH
    return ClassifierScore(
        Share(counts["intent"], len(messages)),
        Share(counts[f"{full} wrong"], counts[full]),
        Share(counts[f"{light} wrong"], counts[light]),
    )


# -- output


def show_classifier(scores: dict[str, ClassifierScore]) -> None:
    """Print the figures of the classifier side by side."""
    found = scores.values()
    print(f"\n{'classifier':44}" + "".join(f"{name:>30}" for name in scores))
    _row("intent right", [score.intent for score in found])
    _row("sharp, called light_touch", [score.sharp_missed for score in found])
    _row("calm, called full_reframe", [score.calm_reframed for score in found])


def show_tables(tables: dict[str, Table], judge: str) -> None:
    """Print the sets side by side."""
    _heading("gate alone", tables)
    _row("good refused", [refused(table.good) for table in tables.values()])
    _row("good warned", [warned(table.good) for table in tables.values()])
    _row("bad refused", [refused(table.bad) for table in tables.values()])
    _row("certain kinds refused", [refused(table.certain) for table in tables.values()])
    _heading(f"gate and judge ({judge})", tables)
    _row("bad stored", [stored(table.bad) for table in tables.values()])
    _row("good held", [held(table.good) for table in tables.values()])
    _heading("gate alone, by author", tables)
    for author in sorted({one.pair.author for table in tables.values() for one in table.judged}):
        rows = [[one for one in t.judged if one.pair.author == author] for t in tables.values()]
        good = [[one for one in row if one.pair.is_good] for row in rows]
        _row(f"{author}: good refused or warned", [caught(row) for row in good])
        certain = [[one for one in row if one.pair.kind in CERTAIN] for row in rows]
        _row(f"{author}: certain kinds refused", [refused(row) for row in certain])
    _heading("gate and judge, bad stored by kind", tables)
    for kind in _kinds(tables.values()):
        _row(kind, [stored(table.where(kind=kind)) for table in tables.values()])
    _heading("gate and judge, bad stored and good held by language", tables)
    for language in _languages(tables.values()):
        rows = [table.where(language=language) for table in tables.values()]
        bad = [[one for one in row if not one.pair.is_good] for row in rows]
        good = [[one for one in row if one.pair.is_good] for row in rows]
        _row(f"{language}: bad stored", [stored(row) for row in bad])
        _row(f"{language}: good held", [held(row) for row in good])
    _heading("gate alone, bad refused by kind", tables)
    for kind in _kinds(tables.values()):
        _row(kind, [refused(table.where(kind=kind)) for table in tables.values()])
    _heading("gate alone, bad refused or warned by kind", tables)
    for kind in _kinds(tables.values()):
        _row(kind, [caught(table.where(kind=kind)) for table in tables.values()])
    _heading("gate alone, good refused or warned by language", tables)
    languages = _languages(tables.values())
    for language in languages:
        _row(
            language,
            [caught(table.where(kind=GOOD, language=language)) for table in tables.values()],
        )
    _heading("gate alone, bad refused by language", tables)
    for language in languages:
        rows = [
            [one for one in table.where(language=language) if not one.pair.is_good]
            for table in tables.values()
        ]
        _row(language, [refused(one) for one in rows])


def show_wrong(tables: dict[str, Table]) -> None:
    """List the good pairs that do not pass and the certain bad ones that are not refused."""
    for table in tables.values():
        for one in table.judged:
            is_certain = one.pair.kind in CERTAIN and one.gate is not Mark.FAIL
            if is_certain or (one.pair.is_good and one.gate is not Mark.PASS):
                print(f"{one.pair.pair_id:26} {one.pair.kind:20} {one.said}")


def _kinds(tables: Iterable[Table]) -> list[str]:
    counts = Counter(one.pair.kind for table in tables for one in table.bad)
    return sorted(counts)


def _languages(tables: Iterable[Table]) -> list[str]:
    return sorted({one.pair.request.target_locale for table in tables for one in table.judged})


def _heading(title: str, tables: dict[str, Table]) -> None:
    print(f"\n{title:44}" + "".join(f"{name:>30}" for name in tables))


def _row(title: str, shares: Sequence[Share]) -> None:
    print(f"  {title:42}" + "".join(f"{share!s:>30}" for share in shares))
