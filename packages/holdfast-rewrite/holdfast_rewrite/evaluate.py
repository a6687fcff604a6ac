"""Validate a rewrite: decides whether it may be stored. Pure.

The gate checks form and listable facts (gate.py). It does not read meaning: `intent_preserved` is
a pass if the gate found no sign of another message, and only a judge or a person can verify it. The
result holds codes and no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_rewrite.detect import Detector
from holdfast_rewrite.enums import Code, Mark
from holdfast_rewrite.gate import Finding, GateCode, check, mark_of
from holdfast_rewrite.lexicon import NO_LEXICON, Lexicon
from holdfast_rewrite.model import EvalResult, RewriteRequest

JUDGE_VERSION = "v2"
# The version of the cases under eval/ that measure the validation.
DATASET_VERSION = "v2"

INTENT_UNVERIFIED = "intent_unverified"

# Findings that are a violation or show in another field are no flags.
_NO_FLAGS = frozenset(code.value for code in Code)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The verdict: a failed rewrite must not be stored, one with warnings may be.

    The findings quote the rewrite. They are for the caller and are never stored.
    """

    result: EvalResult
    verdict: Mark
    lexicon_version: str
    findings: tuple[Finding, ...] = ()


def evaluate(
    request: RewriteRequest, *, rewritten_text: str, output_language: str, detector: Detector
) -> Evaluation:
    """Validate a rewrite of *request*. Never raises, whatever a provider answered."""
    findings = check(
        request.original_text,
        rewritten_text,
        source_language=request.source_locale,
        target_language=request.target_locale,
        output_language=output_language,
        strength=request.rewrite_strength,
        power=request.context_pack.power.power_mode,
        detector=detector,
    )
    lexicon_version = Lexicon.version_of(request.target_locale)
    return Evaluation(
        _result(findings, has_lexicon=lexicon_version != NO_LEXICON),
        mark_of(findings),
        lexicon_version,
        findings,
    )


def _result(findings: Sequence[Finding], *, has_lexicon: bool) -> EvalResult:
    refused = [finding.code for finding in findings if finding.is_refused]
    schema_valid = not any(code.is_schema for code in refused)
    violations = {code.violation for code in refused} - {None}
    # Text that is not valid was not checked against a lexicon either.
    is_checked = has_lexicon and schema_valid
    return EvalResult(
        schema_valid=schema_valid,
        lexicon_pass=not violations if is_checked else None,
        tone_safety=_tone(findings, is_checked=is_checked),
        intent_preserved=_intent(findings, has_lexicon=has_lexicon),
        violations=tuple(code for code in Code if code in violations),
        judge_version=JUDGE_VERSION,
        dataset_version=DATASET_VERSION,
        flags=tuple(_flags(findings, is_unread=schema_valid and not has_lexicon)),
    )


def _flags(findings: Sequence[Finding], *, is_unread: bool) -> dict[str, None]:
    codes = [finding.code.value for finding in findings if finding.code not in _NO_FLAGS]
    return dict.fromkeys([*codes, *([INTENT_UNVERIFIED] if is_unread else [])])


def _intent(findings: Sequence[Finding], *, has_lexicon: bool) -> Mark:
    """Return fail without a text to read, and a warning if it may be that of another message."""
    codes = {finding.code for finding in findings}
    if any(code.is_schema for code in codes):
        return Mark.FAIL
    is_doubtful = bool(codes & {GateCode.NON_TARGET_LOCALE, GateCode.UNRELATED})
    return Mark.WARN if is_doubtful or not has_lexicon else Mark.PASS


_TONE = frozenset({GateCode.LOUD, GateCode.COPIED})


def _tone(findings: Sequence[Finding], *, is_checked: bool) -> Mark:
    refused = [finding.code for finding in findings if finding.is_refused]
    if any(code in _TONE or code.violation is not None for code in refused):
        return Mark.FAIL
    is_warned = any(finding.code in _TONE for finding in findings)
    return Mark.WARN if is_warned or not is_checked else Mark.PASS
