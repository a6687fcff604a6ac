"""The parent of several workers: a signal that arrives while a child starts."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence

import pytest

from holdfast import Holdfast
from holdfast.engine.worker.supervisor import Supervisor


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The supervisor handles signals of the whole process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("started", [1, 2, 3])
def test_a_signal_that_arrives_while_a_child_starts_stops_it_too(
    hf: Holdfast, started: int
) -> None:
    starts: list[str] = []

    def command(worker_id: str, place: int) -> Sequence[str]:
        starts.append(worker_id)
        if len(starts) == started:
            signal.raise_signal(signal.SIGTERM)
        # The second child ends, and the third replaces it.
        return ["false"] if len(starts) == 2 and started == 3 else ["sleep", "600"]

    supervisor = Supervisor(hf.store, command, processes=2)

    assert supervisor.run() == 0
    assert len(starts) == max(2, started)
    assert supervisor.children == []
