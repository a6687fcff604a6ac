"""The way of a delivery: intend → send → mark, and reconcile when unsure."""
