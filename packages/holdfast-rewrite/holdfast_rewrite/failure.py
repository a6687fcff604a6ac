"""Errors and failures of rewrites.

* HoldfastError
  x InvalidArgument
    + InvalidRewrite   the submission, member or answer is invalid; names every bad field
  x NotFound
    + RewriteNotFound  the rewrite does not exist or belongs to someone else
  x Permanent
    + RequestUnfit     the job and its stored request do not match
    + TextErased       the text was erased before it was rewritten
    + JudgeAsked       the judge was asked before and gave no verdict
    + OutputRejected   the rewrite failed validation
      - WrongLanguage  it is not in the recipient's language
"""

from __future__ import annotations

from holdfast.errors import InvalidArgument, NotFound, Permanent


class InvalidRewrite(InvalidArgument):
    """A submission, member or answer is invalid; *fields* maps each to its problem.

    The values are never repeated.

    Correct it. Nothing was written.
    """


class RewriteNotFound(NotFound):
    """The rewrite does not exist, or the person may not see it. Check the id, the home and the
    person."""

    def __init__(self, rewrite_request_id: str) -> None:
        self.rewrite_request_id = rewrite_request_id
        super().__init__(
            f"Rewrite {rewrite_request_id[:36]} not found. Check the id, the home and the caller."
        )


class RequestUnfit(Permanent):
    """The job and its stored request differ in people, locales or snapshots.

    Fault: the writer: a row was changed by hand. Remedy: run `holdfast verify --only I39` and find
    the writer.
    """

    error_class = "REQUEST_UNFIT"
    pages_operator = True


class TextErased(Permanent):
    """The text was erased while its rewrite was in progress.

    Fault: none: the text was erased on request. Remedy: discard the dead letter.
    """

    error_class = "TEXT_ERASED"


class JudgeAsked(Permanent):
    """The judge was asked before, and its answer is lost or unusable; it is not paid again.

    Fault: the provider or a killed worker. Remedy: decide the held rewrite with `holdfast rewrite
    held`, then discard the dead letter.
    """

    error_class = "JUDGE_ASKED"


class OutputRejected(Permanent):
    """The rewrite did not pass the judge; the codes say why, and the text is discarded.

    Fault: the model. The context has codes, judge and lexicon versions. Remedy: nothing for a
    single one; if frequent, improve the prompt or change the model.
    """

    error_class = "OUTPUT_REJECTED"


class WrongLanguage(OutputRejected):
    """The rewrite is not in the recipient's language.

    Fault: the model. Remedy: nothing for a single one; if frequent, improve the prompt or change
    the model.
    """

    error_class = "WRONG_LANGUAGE"
