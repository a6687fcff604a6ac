"""An application for the command line; the settings name its database."""

from __future__ import annotations

from typing import Any

from holdfast import Context, Holdfast, NetworkTimeout

hf = Holdfast()


@hf.job("greet")
def greet(job: Context, payload: dict[str, Any]) -> dict[str, Any]:
    return {"greeted": payload.get("name", "nobody")}


@hf.job("stumble")
def stumble(job: Context, payload: dict[str, Any]) -> None:
    raise NetworkTimeout(f"while reading {payload}")


@hf.job("break")
def break_down(job: Context, payload: dict[str, Any]) -> None:
    raise KeyError(payload["name"])
