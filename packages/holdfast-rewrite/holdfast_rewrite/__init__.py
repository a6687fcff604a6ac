"""The complaint rewrite: a sharp message becomes a kind one, in its recipient's language."""

__version__ = "0.1.0"
