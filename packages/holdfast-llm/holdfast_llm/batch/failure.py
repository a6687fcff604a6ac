"""How a model request fails: beside the classes of holdfast.errors, those of the batch lane.

* Transient
  x BatchExpired     the provider's time was over before it ran
  x BatchCanceled    its batch was canceled before it ran
  x BatchFailed      its batch failed as a whole and says nothing of it
* Permanent
  x PromptRefused    the provider calls the request itself wrong
  x OutputTruncated  the answer was cut off at its limit
  x OutputInvalid    the answer is not what was asked for
  x AnswerNotTaken   there is an answer, and the application could not take it
  x ResultMissing    a finished batch has no answer for it
  x ResultConflict   there are two answers for it, and they differ
"""

from __future__ import annotations

from holdfast.errors import ConfigInvalid, Defect, Permanent, Transient


class BatchExpired(Transient):
    """The provider did not come to it before the batch's time was over."""

    error_class = "BATCH_EXPIRED"


class BatchCanceled(Transient):
    """The batch was canceled before the provider came to it."""

    error_class = "BATCH_CANCELED"


class BatchFailed(Transient):
    """The whole batch failed, and nothing says that this item is why."""

    error_class = "BATCH_FAILED"


class PromptRefused(Permanent):
    """The provider calls the request wrong; the same request would be refused again."""

    error_class = "PROMPT_REFUSED"


class OutputTruncated(Permanent):
    """The answer reached its limit before its end; part of an answer is none."""

    error_class = "OUTPUT_TRUNCATED"


class OutputInvalid(Permanent):
    """There is an answer, and it is not what was asked for: no JSON, another schema, no echo."""

    error_class = "OUTPUT_INVALID"


class AnswerNotTaken(Permanent):
    """The answer is there and paid for; something that may pass kept the application from it."""

    error_class = "ANSWER_NOT_TAKEN"
    pages_operator = True


class ResultMissing(Permanent):
    """The batch is finished and wholly read, and nothing in it is about this item."""

    error_class = "RESULT_MISSING"
    pages_operator = True


class ResultConflict(Permanent):
    """The batch holds two different answers for this item; nobody can say which is right."""

    error_class = "RESULT_CONFLICT"
    pages_operator = True


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
)


def is_defect(exc: BaseException) -> bool:
    """Whether what was raised says nothing about the answer: a bug, or a wrong configuration.

    An application that refuses an answer raises a Permanent failure.
    """
    return not isinstance(exc, Permanent) or isinstance(exc, (Defect, ConfigInvalid))
