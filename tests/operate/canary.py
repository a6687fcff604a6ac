"""An application that handles a secret and a private sentence carelessly in every known way."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from holdfast import Context, Failure, Holdfast, Permanent, Transient, UpstreamDown
from holdfast.engine.classify import failure_of_status

SECRET = "sk-ant-api03-QzkvXw7JtLmR4pYhNc2BdFgS9uVe6aKo"
SENTENCE = "Marmalade zebrafish overture quibbling"
REQUEST_ID = "req_011CSHoEeqs5C35K2UUqR7Fy"

words = logging.getLogger("careless.app")
# Other code may log under our name.
ours = logging.getLogger("holdfast.plugin")


def needles() -> list[str]:
    """Every word of the sentence and the middle of the secret, plain and as programs encode them.

    Encoded texts are searched without their ends, because these depend on the neighbouring text.
    """
    plain = [*SENTENCE.split(), SECRET[14:30]]
    found = set(plain)
    for text in (SENTENCE, SECRET):
        for shift in range(3):
            encoded = base64.b64encode(b" " * shift + text.encode()).decode()
            found.add(encoded[4:-4])
        found.add(text.encode().hex()[4:-4])
        found.add(quote(text))
    return sorted(text.lower() for text in found)


def reply_body() -> str:
    return json.dumps({"error": {"type": "overloaded", "message": SENTENCE, "api_key": SECRET}})


def deep(text: str, secret: str, depth: int = 5) -> None:
    kept = {"text": text, "secret": secret}
    if depth:
        deep(text, secret, depth - 1)
    assert kept == {}


def ask_provider() -> Any:
    request = urllib.request.Request(
        os.environ["CANARY_PROVIDER"],
        data=SENTENCE.encode(),
        headers={"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET},
    )
    return urllib.request.urlopen(request, timeout=60)


def message(job: Context, payload: dict[str, Any]) -> None:
    raise RuntimeError(f"cannot send {payload['text']} with {SECRET}")


def arguments(job: Context, payload: dict[str, Any]) -> None:
    raise KeyError(payload["text"], {"Authorization": f"Bearer {SECRET}"})


def local_variables(job: Context, payload: dict[str, Any]) -> None:
    deep(payload["text"], SECRET)


def causes(job: Context, payload: dict[str, Any]) -> None:
    try:
        try:
            raise ValueError(payload["text"])
        except ValueError:
            raise LookupError(SECRET)  # noqa: B904
    except LookupError as exc:
        exc.add_note(f"{SENTENCE} {SECRET}")
        inner = [OSError(payload["text"]), ExceptionGroup(SECRET, [ValueError(payload["text"])])]
        raise ExceptionGroup(payload["text"], inner) from exc


def failure_context(job: Context, payload: dict[str, Any]) -> None:
    raise UpstreamDown(
        f"{payload['text']} {SECRET}",
        **{
            "status": 503,
            "note": payload["text"],
            "detail": SECRET,
            "token": payload["text"].replace(" ", "-"),
            "url": f"https://ada:{SECRET}@example.com/?q={payload['text']}",
            "reply": {"text": payload["text"], "secret": SECRET},
            SECRET: 1,
            payload["text"]: 2,
        },
    )


def provider(job: Context, payload: dict[str, Any]) -> None:
    try:
        ask_provider()
    except urllib.error.HTTPError as exc:
        body = exc.read().decode()
        raise failure_of_status(exc.code)(
            f"{body} {exc.headers}",
            status=exc.code,
            upstream_request=exc.headers["request-id"],
            body=body,
            headers=str(exc.headers),
            cookie=exc.headers["set-cookie"],
        ) from exc


def provider_unguarded(job: Context, payload: dict[str, Any]) -> None:
    ask_provider()


def database(job: Context, payload: dict[str, Any]) -> None:
    with job.transaction() as connection:
        connection.execute(
            f"SELECT CAST('{payload['text']} {SECRET}' AS integer), nosuch('{SECRET}')"
        )


def class_names(job: Context, payload: dict[str, Any]) -> None:
    kind = type(payload["text"], (Exception,), {"__module__": SECRET})
    raise kind(payload["text"])


def error_class(job: Context, payload: dict[str, Any]) -> None:
    failure = Permanent(SENTENCE)
    failure.error_class = f"{SENTENCE} {SECRET}"  # type: ignore[misc]
    raise failure


def result(job: Context, payload: dict[str, Any]) -> Any:
    return {"text": {payload["text"]}, "secret": SECRET}


def transient(job: Context, payload: dict[str, Any]) -> None:
    raise Transient(f"{payload['text']} {SECRET}")


def own_log(job: Context, payload: dict[str, Any]) -> None:
    words.error("sent with %s", SECRET)
    words.warning("headers %s", {"Authorization": f"Bearer {SECRET}", "Cookie": SENTENCE})
    try:
        deep(payload["text"], SECRET)
    except AssertionError:
        words.exception("it broke")
        ours.exception("it broke with %s", SECRET)
    ours.error("sent with %s", SECRET)
    ours.debug("headers %s", {"Authorization": f"Bearer {SECRET}", "Cookie": SENTENCE})
    raise Transient(f"{payload['text']} {SECRET}") from ValueError(SENTENCE)


async def awaited(job: Context, payload: dict[str, Any]) -> None:
    async def forgotten() -> None:
        raise RuntimeError(f"{payload['text']} {SECRET}")

    task = asyncio.create_task(forgotten())
    await asyncio.sleep(0)
    del task
    raise RuntimeError(f"{payload['text']} {SECRET}")


@dataclass
class Note:
    number: int
    text: str


def misfit(job: Context, note: Note) -> None:
    raise AssertionError("a payload without a number fits none")


class Breaks(Failure):
    """Raises when it is formatted."""

    def __init__(self) -> None:
        pass

    @property
    def context(self) -> dict[str, int | str]:  # type: ignore[override]
        raise RuntimeError(f"{SENTENCE} {SECRET}")


def breaks(job: Context, payload: dict[str, Any]) -> None:
    raise Breaks


CARELESS: tuple[Callable[..., Any], ...] = (
    message, arguments, local_variables, causes, failure_context, provider, provider_unguarded,
    database, class_names, error_class, result, transient, own_log, awaited, misfit, breaks,
)  # fmt: skip


def declare(hf: Holdfast) -> None:
    for function in CARELESS:
        hf.job(f"careless.{function.__name__}", max_attempts=2)(function)


hf = Holdfast()
declare(hf)
