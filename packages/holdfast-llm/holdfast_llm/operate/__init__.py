"""Operator API of batches and costs: actions, checks, explanations."""
