"""Event streams of a real server whose connections are cut while several writers commit."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from typing import Any

import pytest

from holdfast import Holdfast, SystemClock
from holdfast.api.server import Server
from tests.api.conftest import make_key
from tests.story import ORG, OTHER_ORG, make_holdfast

WRITERS, JOBS, SECONDS = 4, 40, 60.0


class Reader:
    """Reads a stream over sockets that it closes after a few bytes, and resumes each time."""

    def __init__(self, url: str, secret: str, seed: int) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._address, self._secret = (host, int(port)), secret
        self._rng = random.Random(seed)
        self.position: str | None = None
        self.connections = 0
        self.jobs: list[str] = []

    def connect(self) -> None:
        """Open one connection, and cut it after some bytes or when the server is silent."""
        self.connections += 1
        resume = f"Last-Event-ID: {self.position}\r\n" if self.position else ""
        head = (
            f"GET /v1/events?subject=jobs HTTP/1.1\r\nHost: {self._address[0]}\r\n"
            f"Authorization: Bearer {self._secret}\r\n{resume}\r\n"
        )
        left = self._rng.randint(200, 4_000)
        with socket.create_connection(self._address, timeout=30) as connection:
            connection.sendall(head.encode())
            connection.settimeout(0.5)
            text = b""
            while left > 0:
                try:
                    part = connection.recv(min(left, 512))
                except TimeoutError:
                    break
                if not part:
                    break
                left -= len(part)
                text += part
        self._read(text)

    def _read(self, text: bytes) -> None:
        """Take the complete events; the partial one at the cut is dropped, as in a browser."""
        head, _, body = text.partition(b"\r\n\r\n")
        assert not head or b" 200 " in head.split(b"\r\n")[0], head
        # Chunked encoding: each chunk follows a line with its length.
        plain = b""
        while body:
            size, found, rest = body.partition(b"\r\n")
            if not found or not size:
                break
            count = int(size, 16)
            plain += rest[:count]
            body = rest[count + 2 :]
        *blocks, _ = plain.decode().split("\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if line[0] != ":")
            self.position = fields.get("id", self.position)
            if fields.get("event") == "change":
                change: dict[str, Any] = json.loads(fields["data"])
                if change["name"] == "job.enqueued":
                    self.jobs.append(change["job_id"])


@pytest.mark.req("X-01", "F-02")
@pytest.mark.timeout(180)
def test_no_event_is_lost_doubled_or_foreign_when_connections_are_cut(url: str) -> None:
    hf: Holdfast = make_holdfast(url, SystemClock())  # type: ignore[arg-type]
    hf.job("work")(lambda job, payload: None)
    server = Server(hf, port=0)
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    readers = [Reader(server.url, make_key(hf, "viewer"), seed) for seed in range(2)]
    made: dict[str, list[str]] = {ORG: [], OTHER_ORG: []}

    def write(number: int) -> None:
        for count in range(JOBS):
            org_id = ORG if (number + count) % 2 else OTHER_ORG
            made[org_id].append(hf.enqueue("work", {"n": count}, org_id=org_id).id)

    for reader in readers:
        while reader.position is None:
            reader.connect()
    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    end = time.monotonic() + SECONDS
    for reader in readers:
        while time.monotonic() < end:
            reader.connect()
            is_written = not any(writer.is_alive() for writer in writers)
            if is_written and set(reader.jobs) >= set(made[ORG]):
                break
    for writer in writers:
        writer.join(timeout=60)
    server.stop()
    serving.join(timeout=30)
    hf.close()

    assert len(made[ORG]) == WRITERS * JOBS // 2
    for reader in readers:
        assert reader.connections > 3
        assert sorted(reader.jobs) == sorted(made[ORG])
