"""LLM batch processing for Holdfast: provider batch APIs, prices and budgets."""

__version__ = "0.1.0"
