"""A plain HTTP client for requests and answers that official clients hide."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx2

from holdfast_simulator import Simulator

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["rewritten", "rid"],
    "properties": {"rewritten": {"type": "string"}, "rid": {"type": "string"}},
}


def chat_line(custom_id: str, text: str = "Hello", model: str = "gpt-5.2") -> bytes:
    """One line of a batch's input, for chat completions."""
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line).encode() + b"\n"


def chat_lines(count: int) -> bytes:
    return b"".join(chat_line(f"item-{n}", f"Hello {n}") for n in range(1, count + 1))


class Plain:
    """OpenAI's API by hand: every method returns the raw response."""

    def __init__(self, sim: Simulator, *, timeout: float = 20.0, key: str = "sk-test") -> None:
        self.sim = sim
        self._http = httpx2.Client(
            base_url=sim.url("openai"), headers={"authorization": f"Bearer {key}"}, timeout=timeout
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def upload(self, content: bytes = chat_line("item-1"), name: str = "in.jsonl") -> Any:
        files = {"file": (name, content, "application/jsonl")}
        return self._http.post("/files", data={"purpose": "batch"}, files=files)

    def create(self, file_id: str, **metadata: str) -> Any:
        asked = {
            "input_file_id": file_id,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": metadata or None,
        }
        return self._http.post("/batches", json=asked)

    def batch(self, content: bytes | None = None, **metadata: str) -> str:
        """The id of a batch over *content*, by default with three items."""
        file_id = self.upload(chat_lines(3) if content is None else content).json()["id"]
        found: str = self.create(file_id, **metadata).json()["id"]
        return found

    def get(self, path: str, **query: str) -> Any:
        return self._http.get(path, params=query)

    def post(self, path: str, body: Any = None) -> Any:
        return self._http.post(path, json=body)

    def delete(self, path: str) -> Any:
        return self._http.delete(path)

    def show(self, batch_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._http.get(f"/batches/{batch_id}").json()
        return found

    def end(self, batch_id: str, **lengths: float) -> dict[str, Any]:
        """The batch after some time, by default ten minutes."""
        self.sim.clock.advance(**(lengths or {"minutes": 10.0}))
        return self.show(batch_id)

    def output(self, batch: dict[str, Any], kind: str = "output_file_id") -> bytes:
        content: bytes = self._http.get(f"/files/{batch[kind]}/content").content
        return content

    def lines(self, batch: dict[str, Any], kind: str = "output_file_id") -> list[dict[str, Any]]:
        return list(read_lines(self.output(batch, kind)))


def read_lines(content: bytes) -> Iterator[dict[str, Any]]:
    """Split at 0x0A and nowhere else."""
    for line in content.split(b"\n"):
        if line.strip():
            yield json.loads(line)


def answers(lines: list[dict[str, Any]]) -> dict[str, str]:
    """The text under each custom_id."""
    return {
        line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"]
        for line in lines
    }
