"""Measure the orchestration of rewrite requests, from message to job, with the local classifier.

    python bench/rewrite.py [--requests 3000] [--only sqlite|postgres]

Every request is validated, stored, classified, decided, routed and enqueued in its two
transactions, with its snapshots and its eight audit events. Messages are the originals of the
evaluation set.

1. One at a time, as a server accepts them.
2. A hundred at a time.
3. The classifier alone, which both include.
4. Memory after the first and after the second half of part 2.

One thread submits. Figures per processor second are the capacity of one core, without disk waits.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast import Holdfast, Settings
from holdfast.config.extensions import installed
from holdfast.extension import components_of
from holdfast.store import open_store
from holdfast_rewrite import Rewrites, Submission
from holdfast_rewrite.classify import Message
from holdfast_rewrite.classify_local import LocalClassifier
from holdfast_rewrite.detect import local_detector
from holdfast_rewrite.directory import SqlDirectory
from holdfast_rewrite.enums import Surface
from holdfast_rewrite.settings import RewriteSettings, RouteSettings
from tests.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parent.parent
COMPONENTS = components_of(installed().values())
ROUTE = RouteSettings(
    provider="openai",
    adapter_kind="openai_responses",
    model="gpt-5.2",
    high_quality=True,
    supports_translation=True,
)
LOCALES = ("en", "de", "es", "fr", "it", "pt", "nl", "pl")
TOGETHER = 100


def messages() -> list[str]:
    """Return the originals of the evaluation set, alternating between languages."""
    found = [
        [json.loads(line)["original_text"] for line in path.read_text().splitlines() if line]
        for path in sorted((ROOT / "eval" / "cases").glob("*.jsonl"))
    ]
    return [text for texts in itertools.zip_longest(*found) for text in texts if text]


def user(number: int) -> str:
    return f"0198c0de-0000-7000-8000-{number:012x}"


def furnish(rewrites: Rewrites, senders: int) -> list[tuple[str, str, str]]:
    """Create homes of six, enough for one full reframe per sender; return who writes to whom."""
    directory = rewrites.directory
    assert isinstance(directory, SqlDirectory)
    pairs = []
    for first in range(0, senders, 6):
        home = user(1_000_000 + first)
        directory.add_home(home)
        people = [user(first + at + 1) for at in range(6)]
        for at, person in enumerate(people):
            role, locale = "housemate" if at else "owner", LOCALES[at]
            directory.add_member(home, person, role=role, locale=locale)
            directory.answer(home, person, "communication_directness", "gentle")
        pairs += [(home, people[at], people[(at + 1) % 6]) for at in range(6)]
    return pairs[:senders]


def submissions(pairs: list[tuple[str, str, str]], texts: list[str]) -> Iterator[Submission]:
    for (home, sender, recipient), text in zip(pairs, itertools.cycle(texts), strict=False):
        yield Submission(home, sender, recipient, text, Surface.WEEKLY_HARMONY)


def rate(count: int, work: Callable[[], object]) -> None:
    if not count:
        return
    began = time.process_time(), time.perf_counter()
    work()
    cpu, wall = time.process_time() - began[0], time.perf_counter() - began[1]
    alone, each = count / cpu, cpu / count * 1e3
    print(f"    {alone:6.0f} a second of the processor ({each:.2f} ms each), {count / wall:.0f} /s")


def memory() -> int:
    """Return the memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def measure(hf: Holdfast, requests: int) -> None:
    rewrites, texts = Rewrites(hf), messages()
    pairs = furnish(rewrites, 2 * requests)
    given = list(submissions(pairs, texts))
    # Rules and lexicons are loaded with the first text of each language, half a second each.
    warm = 4 * len(LOCALES)
    rewrites.submit_many(given[:warm])
    alone, many = given[warm:requests], given[requests:]
    print("  one at a time")
    rate(len(alone), lambda: [rewrites.submit(item) for item in alone])
    print(f"  {TOGETHER} at a time")
    chunks = [many[at : at + TOGETHER] for at in range(0, len(many), TOGETHER)]
    halves, needed = (chunks[: len(chunks) // 2], chunks[len(chunks) // 2 :]), []
    for half in halves:
        rate(sum(map(len, half)), lambda: [rewrites.submit_many(chunk) for chunk in half])  # noqa: B023
        needed.append(memory())
    print(f"  memory: {needed[0]} MiB after the first half, {needed[1]} MiB after the second")
    classifier = LocalClassifier(local_detector())
    asked = [
        Message(user(at), text, user(at), Surface.WEEKLY_HARMONY) for at, text in enumerate(texts)
    ]
    print("  the classifier alone")
    rate(len(asked), lambda: [classifier.classify(message) for message in asked])


@contextmanager
def databases(only: str | None) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        found = {"sqlite": f"sqlite:///{folder}/bench.db"}
        if only == "sqlite":
            yield found
            return
        server = PostgresServer()
        try:
            with psycopg.connect(server.dsn(), autocommit=True) as admin:
                admin.execute("CREATE DATABASE bench")
            yield {**found, "postgres": server.dsn("bench")}
        finally:
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=3_000)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    given = parser.parse_args()
    with databases(given.only) as found:
        for name, url in found.items():
            if given.only not in (None, name):
                continue
            open_store(url, check=False, components=COMPONENTS).migrate()
            settings = Settings(db=url, rewrite=RewriteSettings(routes=(ROUTE,)))
            with Holdfast(settings=settings) as hf:
                print(f"{name}: {given.requests} requests each way")
                measure(hf, given.requests)


if __name__ == "__main__":
    main()
