"""Errors of model requests, in addition to the classes of holdfast.errors.

* Transient
  x BatchExpired     the provider did not run the item in time
  x BatchCanceled    its batch was canceled before the item ran
  x BatchFailed      its batch failed as a whole, without a cause for this item
* Permanent
  x PromptRefused    the provider rejects the request itself
  x OutputTruncated  the answer was cut off at its limit
  x OutputInvalid    the answer does not match the request
  x AnswerNotTaken   the application could not process the answer
  x ResultMissing    a finished batch has no answer for it
  x ResultConflict   it has two different answers
  x StepBudgetExceeded  the call may cost more than is left of the budget of its workflow step
"""

from __future__ import annotations

from holdfast.errors import ConfigInvalid, Defect, Permanent, Transient


class BatchExpired(Transient):
    """The provider did not process the item before the batch expired.

    Fault: the provider. Remedy: nothing; use smaller batches if it is frequent.
    """

    error_class = "BATCH_EXPIRED"


class BatchCanceled(Transient):
    """The batch was canceled before the provider processed the item.

    Fault: an operator, or a deadline. Remedy: nothing.
    """

    error_class = "BATCH_CANCELED"


class BatchFailed(Transient):
    """The whole batch failed, and nothing shows that this item caused it.

    Fault: unknown. A job that is dead-lettered with it was alone in its last batch. Remedy: look at
    the `error_code` of the batch.
    """

    error_class = "BATCH_FAILED"


class PromptRefused(Permanent):
    """The provider rejected the request as invalid; it would reject it again.

    Fault: the request. Remedy: correct what `request` builds.
    """

    error_class = "PROMPT_REFUSED"


class OutputTruncated(Permanent):
    """The answer reached its token limit and is incomplete.

    Fault: the limit. Remedy: raise `max_output_tokens`.
    """

    error_class = "OUTPUT_TRUNCATED"


class OutputInvalid(Permanent):
    """The answer is not valid: no JSON, another schema, or no echo.

    Fault: the model. Remedy: correct the prompt or the schema. The answer is not stored.
    """

    error_class = "OUTPUT_INVALID"


class AnswerNotTaken(Permanent):
    """The paid answer arrived, but the application repeatedly failed to process it.

    Fault: the application; `cause` in the context says how. Remedy: fix it, then replay. The replay
    is paid again.
    """

    error_class = "ANSWER_NOT_TAKEN"
    pages_operator = True


class ResultMissing(Permanent):
    """The batch has ended, and its results do not contain this item.

    Fault: the provider. Remedy: replay the job if it may be paid again.
    """

    error_class = "RESULT_MISSING"
    pages_operator = True


class ResultConflict(Permanent):
    """The results contain two different answers for this item.

    Fault: the provider. Remedy: replay the job if it may be paid again.
    """

    error_class = "RESULT_CONFLICT"
    pages_operator = True


class StepBudgetExceeded(Permanent):
    """The call may cost more than is left of the budget of its workflow step. Nothing was sent.

    Fault: the budget, or the request. Remedy: raise the budget with `holdfast workflows budget`,
    then `holdfast workflows replay`; or lower `max_output_tokens` or the input.
    """

    error_class = "STEP_BUDGET_EXCEEDED"


ERROR_CLASSES = (
    BatchExpired,
    BatchCanceled,
    BatchFailed,
    PromptRefused,
    OutputTruncated,
    OutputInvalid,
    AnswerNotTaken,
    ResultMissing,
    ResultConflict,
    StepBudgetExceeded,
)


def is_defect(exc: BaseException) -> bool:
    """Whether the exception says nothing about the answer: a bug, or a wrong configuration.

    An application rejects an answer by raising a Permanent failure.
    """
    return not isinstance(exc, Permanent) or isinstance(exc, (Defect, ConfigInvalid))
