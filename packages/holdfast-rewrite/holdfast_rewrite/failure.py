"""What may go wrong with a rewrite, as its users and its operators meet it.

* HoldfastError
  x InvalidArgument
    + InvalidRewrite   what was asked is no submission, member or answer; names every bad field
  x NotFound
    + RewriteNotFound  there is no such rewrite, or it is somebody else's
  x Permanent
    + RequestUnfit     the job and its stored request do not belong together
    + TextErased       the text was erased before it was rewritten
    + OutputRejected   the judge let the rewrite not pass
      - WrongLanguage  it is in another language than its recipient's
"""

from __future__ import annotations

from holdfast.errors import InvalidArgument, NotFound, Permanent


class InvalidRewrite(InvalidArgument):
    """What was asked is no submission, member or answer; *fields* says what is wrong with each.

    The values themselves are never repeated.
    """


class RewriteNotFound(NotFound):
    """There is no such rewrite, or it is not theirs who ask."""

    def __init__(self, rewrite_request_id: str) -> None:
        self.rewrite_request_id = rewrite_request_id
        super().__init__(
            f"Rewrite {rewrite_request_id[:36]} not found. Check the id, the home and who asks."
        )


class RequestUnfit(Permanent):
    """The job and its stored request are not of one kind: other people, locales or snapshots."""

    error_class = "REQUEST_UNFIT"
    pages_operator = True


class TextErased(Permanent):
    """The text that the job was made for is erased; there is nothing left to rewrite."""

    error_class = "TEXT_ERASED"


class OutputRejected(Permanent):
    """The judge let the rewrite not pass; the codes say why, and the text is dropped."""

    error_class = "OUTPUT_REJECTED"


class WrongLanguage(OutputRejected):
    """The rewrite is in another language than its recipient's."""

    error_class = "WRONG_LANGUAGE"
