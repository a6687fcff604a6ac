"""Applications that are built on the house, and part of it."""
