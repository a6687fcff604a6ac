"""Outputs: validated rewrites, written once in the transaction that completes the job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.clock import write_instant
from holdfast.document import encode
from holdfast.errors import Permanent
from holdfast_llm.batch.failure import OutputInvalid
from holdfast_rewrite.enums import Code, Mark
from holdfast_rewrite.evaluate import Evaluation
from holdfast_rewrite.failure import OutputRejected, WrongLanguage
from holdfast_rewrite.model import RewriteRequest, RewriteResponse


@dataclass(frozen=True, slots=True)
class Output:
    """A response that may be stored, with its origin."""

    home_id: str
    provider: str
    model: str
    response: RewriteResponse

    @property
    def row(self) -> dict[str, Any]:
        response = self.response
        return {
            "org_id": self.home_id,
            "rewrite_request_id": response.rewrite_request_id,
            "recipient_user_id": response.recipient_user_id,
            "rewritten_text": response.rewritten_text,
            "output_language": response.output_language,
            # The database compares it with the request's locale and the output's language.
            "target_locale": response.output_language,
            "provider": self.provider,
            "model": self.model,
            "prompt_version": response.prompt_version,
            "policy_version": response.policy_version,
            "lexicon_version": response.lexicon_version,
            "eval_result": encode(response.eval_result.document),
        }


def respond(
    request: RewriteRequest, text: str, found: Evaluation, *, prompt_version: str, now: datetime
) -> RewriteResponse:
    """Build the response to a request and check its type. Only for a rewrite that passed."""
    response = RewriteResponse(
        rewrite_request_id=request.rewrite_request_id,
        recipient_user_id=request.recipient_user_id,
        rewritten_text=text,
        # Validation checked the declared language and the text against it.
        output_language=request.target_locale,
        prompt_version=prompt_version,
        policy_version=request.policy_version,
        lexicon_version=found.lexicon_version,
        eval_result=found.result,
        # The row has the database's time.
        created_at=write_instant(now),
    )
    return RewriteResponse.read(response.document)


def rejection_of(found: Evaluation) -> Permanent:
    """Return why a rewrite is not stored: codes and versions, no text."""
    result = found.result
    codes = [code for code in result.violations if code.is_hard]
    context = {
        "judge": result.judge_version,
        "lexicon": found.lexicon_version,
        "codes": "+".join(codes) or "none",
    }
    if result.flags:
        context["flags"] = "+".join(result.flags)[:120]
    if Code.NON_TARGET_LOCALE in codes:
        return WrongLanguage(**context)
    if not result.schema_valid:
        return OutputInvalid(code="rewrite_schema", **context)
    if result.intent_preserved is Mark.FAIL:
        context["intent"] = Mark.FAIL.value
    return OutputRejected(**context)
