"""Subscribers of event.py: what the outside sees of the work, after it is committed."""
