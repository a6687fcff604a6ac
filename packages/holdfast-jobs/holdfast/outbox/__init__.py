"""Delivery lifecycle: intend → send → mark, and reconcile when the outcome is unknown."""
