"""Processes that start in milliseconds and can be killed.

They are forked from a clean process that has imported everything: they inherit no thread, lock or
connection of the test. There is one such process for each process of tests, so the list of what it
imports is one for all of them.
"""

from __future__ import annotations

import multiprocessing

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(
    [
        "tests.acceptance.preload",
        "tests.artifact.child",
        "tests.batch.dying",
        "tests.outbox.mailing",
        "tests.outbox.post_office",
        "encodings.idna",
        "fastjsonschema",
        "holdfast.artifacts.artifacts",
        "holdfast.channel.channels",
        "holdfast.channel.smtp",
        "holdfast.outbound.pinned",
        "holdfast.store.postgres",
        "holdfast.store.sqlite",
        "holdfast_llm.batch.maintenance",
        "holdfast_llm.batch.submit",
        "holdfast_llm.batch.tasks",
        "holdfast_llm.provider.openai",
        "httpcore2",
        "psycopg",
        "psycopg_pool",
        "stringprep",
        "truststore",
    ]
)
