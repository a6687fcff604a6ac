"""The complaint rewrite: rewrites a rude message politely, in its recipient's language."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast_rewrite.rewrites import Rewrites
    from holdfast_rewrite.settings import (
        ClassifierRouteSettings,
        JudgeRouteSettings,
        RewriteSettings,
        RouteSettings,
    )
    from holdfast_rewrite.validation import Submission

__version__ = "0.1.0"

__all__ = [
    "ClassifierRouteSettings",
    "JudgeRouteSettings",
    "RewriteSettings",
    "Rewrites",
    "RouteSettings",
    "Submission",
]

_MODULES = {
    "holdfast_rewrite.validation": "Submission",
    "holdfast_rewrite.rewrites": "Rewrites",
    "holdfast_rewrite.settings": (
        "ClassifierRouteSettings JudgeRouteSettings RewriteSettings RouteSettings"
    ),
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
