"""Measure the outbox per message, with a channel that answers immediately.

    python bench/outbox.py [--messages 3000] [--only sqlite|postgres]

1. Storing messages, a hundred per transaction.
2. Delivering in groups: lease, record the attempt, call, mark; all attempts and marks audited.
3. The same one by one, and its share of the speed of groups.
4. A reconciler's pass over all marked deliveries.
5. Memory after the first and after the second half of part 2.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.rewrite import databases, memory
from holdfast import Content, Holdfast, OutgoingMessage, Settings
from holdfast.channel.channel import (
    Accepted,
    Capabilities,
    Lookup,
    LookupKey,
    LookupResult,
    NotFound,
    Sent,
)
from holdfast.channel.message import Message
from holdfast.store import open_store

ORG = "0198c0de-0000-7000-8000-00000000000a"
TOGETHER = 100


class Ready:
    """A channel that accepts everything immediately and stores nothing."""

    name = "ready"
    capabilities = Capabilities(lookup=Lookup.BY_OUR_TOKEN)

    def send(self, message: Message) -> Sent:
        return Accepted(message.token)

    def lookup(self, asked: LookupKey) -> LookupResult:
        return NotFound()


def rate(count: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def intend(hf: Holdfast, first: int, count: int) -> list[str]:
    content = Content("A review", "Two findings. " * 40, "<p>Two findings.</p>" * 20)
    ids: list[str] = []
    for at in range(first, first + count, TOGETHER):
        wanted = [
            OutgoingMessage(f"review:{number}", "ann", 1, "ready", "ann@example.com", content)
            for number in range(at, min(at + TOGETHER, first + count))
        ]
        ids += [one.id for one in hf.outbox.intend(wanted, org_id=ORG)]
    return ids


def measure(hf: Holdfast, messages: int) -> None:
    hf.outbox.use(Ready())
    hf.outbox.deliver(intend(hf, 0, TOGETHER), org_id=ORG)
    first, ids = TOGETHER, []

    def intend_all() -> None:
        ids.extend(intend(hf, first, messages))

    print(f"  intending          {rate(messages, intend_all):7.0f} /s")
    needed, speeds = [], []
    for half in (ids[: messages // 2], ids[messages // 2 :]):
        speeds.append(rate(len(half), lambda: hf.outbox.deliver(half, org_id=ORG)))  # noqa: B023
        needed.append(memory())
    print(f"  delivering by page {speeds[0]:7.0f} /s, {speeds[1]:.0f} /s")
    few = intend(hf, first + messages, messages // 10)
    alone = rate(len(few), lambda: [hf.outbox.deliver([one], org_id=ORG) for one in few])
    print(f"  one by one         {alone:7.0f} /s, {alone / max(speeds):.2f} of pages")
    print(f"  reconciling        {rate(messages, hf.outbox.reconcile):7.0f} /s")
    print(f"  memory: {needed[0]} MiB after the first half, {needed[1]} MiB after the second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=3_000)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    given = parser.parse_args()
    with databases(given.only) as found:
        for name, url in found.items():
            if given.only not in (None, name):
                continue
            open_store(url, check=False).migrate()
            with Holdfast(settings=Settings(db=url)) as hf:
                print(f"{name}: {given.messages} messages")
                measure(hf, given.messages)


if __name__ == "__main__":
    main()
