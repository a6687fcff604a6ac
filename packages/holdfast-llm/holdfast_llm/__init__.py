"""LLM batch processing for Holdfast: provider batch APIs, prices and budgets."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast_llm.batch.declare import Batching
    from holdfast_llm.batch.work import BatchWork, Item
    from holdfast_llm.provider.adapter import Limits
    from holdfast_llm.provider.kind import ProviderKind
    from holdfast_llm.provider.openai import OpenAICompatible
    from holdfast_llm.provider.reply import Reply, Usage
    from holdfast_llm.provider.request import Request
    from holdfast_llm.provider.route import ExecutionMode, Route
    from holdfast_llm.settings import (
        BatchSettings,
        BudgetSettings,
        CommonProviderSettings,
        PriceSettings,
        ProviderSettings,
    )

__version__ = "0.1.0"

__all__ = [
    "BatchSettings",
    "BatchWork",
    "Batching",
    "BudgetSettings",
    "CommonProviderSettings",
    "ExecutionMode",
    "Item",
    "Limits",
    "OpenAICompatible",
    "PriceSettings",
    "ProviderKind",
    "ProviderSettings",
    "Reply",
    "Request",
    "Route",
    "Usage",
]

_MODULES = {
    "holdfast_llm.batch.declare": "Batching",
    "holdfast_llm.batch.work": "BatchWork Item",
    "holdfast_llm.provider.adapter": "Limits",
    "holdfast_llm.provider.kind": "ProviderKind",
    "holdfast_llm.provider.openai": "OpenAICompatible",
    "holdfast_llm.provider.reply": "Reply Usage",
    "holdfast_llm.provider.request": "Request",
    "holdfast_llm.provider.route": "ExecutionMode Route",
    "holdfast_llm.settings": (
        "BatchSettings BudgetSettings CommonProviderSettings PriceSettings ProviderSettings"
    ),
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
