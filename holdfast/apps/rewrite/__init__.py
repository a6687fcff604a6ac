"""The complaint rewrite: a sharp message becomes a kind one, in its recipient's language."""
