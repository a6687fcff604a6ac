"""Operator actions behind the API and the CLI: each takes an actor, checks the role and is
audited."""
