"""Modules that the processes of tests need, imported once before the processes are forked.

``hf.worker()`` loads the installed extensions on first use. That takes 0.25 s of CPU time in every
process that has not imported them.
"""

from __future__ import annotations

import psycopg

import holdfast.cli.jobs
import holdfast.cli.worker
import holdfast.engine.bounded_run
import holdfast.engine.worker.supervisor
import holdfast.sealed_audit.seal
import holdfast.store.postgres
import holdfast.store.sqlite
import tests.acceptance.app
import tests.acceptance.processes
from holdfast.config.extensions import installed

installed()

__all__ = ["holdfast", "psycopg", "tests"]
