"""The review critic: fetch a change, have a model criticise it, notify its recipients."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast_review.model import Recipient, Source
    from holdfast_review.reviews import Reviews
    from holdfast_review.settings import ReviewSettings

__version__ = "0.1.0"

__all__ = [
    "Recipient",
    "ReviewSettings",
    "Reviews",
    "Source",
]

_MODULES = {
    "holdfast_review.model": "Recipient Source",
    "holdfast_review.reviews": "Reviews",
    "holdfast_review.settings": "ReviewSettings",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
