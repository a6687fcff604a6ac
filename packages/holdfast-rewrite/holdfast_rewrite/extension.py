"""The complaint rewrite as an extension: what it adds, without the code that does it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.extension import Extension
from holdfast.store import Component, Statements, StateStatement
from holdfast_rewrite.words import JOB_TYPE


class RewriteExtension(Extension):
    """Declares the complaint rewrite; :class:`Rewrites` is the object that is enabled."""

    name = "rewrite"
    component = Component("rewrite", "holdfast_rewrite", needs={"core": 25})
    commands = {"rewrite": "holdfast.cli.rewrite:rewrite"}

    def load(self) -> Extension:
        from holdfast_rewrite.rewrites import Rewrites

        return Rewrites()

    def state_statements(self) -> Sequence[StateStatement]:
        sql = Statements("holdfast_rewrite", "follow.sql")
        return (StateStatement(frozenset({JOB_TYPE}), sql.follow_jobs),)
