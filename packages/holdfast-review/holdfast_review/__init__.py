"""The review critic: a change is fetched, criticised by a model, and its recipients are told."""

__version__ = "0.1.0"
