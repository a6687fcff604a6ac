"""Network clients that call a host with a fault, and Holdfast's classification of their errors.

``python -m tests.engine.faulty_clients`` prints the table of docs/concepts/retries-and-errors.md.
"""

from __future__ import annotations

import asyncio
import functools
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import httpx2
import psycopg
import urllib3

from tests.engine.faulty_hosts import Host

QUICK = 0.2
NETWORK = "NETWORK_TIMEOUT"
TRANSIENT = {
    408: NETWORK, 425: "UPSTREAM_DOWN", 429: "RATE_LIMITED", 500: "UPSTREAM_ERROR",
    503: "UPSTREAM_DOWN",
}  # fmt: skip
PERMANENT = {
    400: "SCHEMA_INVALID", 403: "AUTH_DENIED", 404: "GONE", 409: "RULE_VIOLATED",
}  # fmt: skip


@functools.cache
def trusted() -> ssl.SSLContext:
    """The certificates of this machine, which take a tenth of a second to load."""
    return ssl.create_default_context()


def http_client() -> httpx2.Client:
    return httpx2.Client(timeout=QUICK, trust_env=False, verify=trusted())


# The clients are imported where they are used: together they take three seconds.


def by_requests(url: str) -> None:
    import requests

    requests.get(url, timeout=QUICK).raise_for_status()


def by_requests_with_retries(url: str) -> None:
    import requests
    from requests.adapters import HTTPAdapter

    rule = urllib3.Retry(1, status_forcelist=TRANSIENT, backoff_factor=0)
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=rule))
        session.get(url, timeout=QUICK).raise_for_status()


def by_httpx(url: str) -> None:
    import httpx

    with httpx.Client(timeout=QUICK, trust_env=False, verify=trusted()) as client:
        client.get(url).raise_for_status()


def by_httpx_async(url: str) -> None:
    import httpx

    async def get() -> None:
        async with httpx.AsyncClient(timeout=QUICK, trust_env=False, verify=trusted()) as client:
            (await client.get(url)).raise_for_status()

    asyncio.run(get())


def by_aiohttp(url: str) -> None:
    import aiohttp

    async def get() -> None:
        limit = aiohttp.ClientTimeout(total=QUICK)
        async with (
            aiohttp.ClientSession(timeout=limit, raise_for_status=True) as session,
            session.get(url, ssl=trusted()) as reply,
        ):
            await reply.read()

    asyncio.run(get())


def by_httpx2(url: str) -> None:
    with http_client() as client:
        client.get(url).raise_for_status()


def by_httpx2_async(url: str) -> None:
    async def get() -> None:
        async with httpx2.AsyncClient(timeout=QUICK, trust_env=False, verify=trusted()) as client:
            (await client.get(url)).raise_for_status()

    asyncio.run(get())


def by_urllib(url: str) -> None:
    try:
        with urllib.request.urlopen(url, timeout=QUICK) as reply:
            reply.read()
    except urllib.error.HTTPError as exc:
        exc.close()
        raise


def by_urllib3(url: str) -> None:
    with urllib3.PoolManager(timeout=QUICK, retries=0) as pool:
        pool.request("GET", url)


def by_urllib3_with_retries(url: str) -> None:
    rule = urllib3.Retry(1, status_forcelist=TRANSIENT, backoff_factor=0)
    with urllib3.PoolManager(timeout=QUICK, retries=rule) as pool:
        pool.request("GET", url)


def by_openai(url: str) -> None:
    import openai

    own = http_client()
    with openai.OpenAI(api_key="k", base_url=url, max_retries=0, http_client=own) as client:
        client.models.list()


def by_anthropic(url: str) -> None:
    import anthropic

    own = http_client()
    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0, http_client=own) as client:
        client.models.list()


def by_genai(url: str) -> None:
    from google import genai
    from google.genai import types

    with http_client() as own:
        options = types.HttpOptions(base_url=url, timeout=int(QUICK * 1000), httpx_client=own)
        client = genai.Client(api_key="k", http_options=options)
        client.models.get(model="m")


def by_mistral(url: str) -> None:
    from mistralai.client import Mistral

    with http_client() as own:
        Mistral(api_key="k", server_url=url, client=own, timeout_ms=200).models.list()


@functools.cache
def aws_session() -> Any:
    import botocore.session

    return botocore.session.Session()


def by_botocore(url: str) -> None:
    import botocore.config

    once = botocore.config.Config(
        retries={"total_max_attempts": 1}, connect_timeout=QUICK, read_timeout=QUICK
    )
    client = aws_session().create_client(
        "secretsmanager", region_name="eu-west-1", endpoint_url=url, aws_access_key_id="a",
        aws_secret_access_key="b", config=once,
    )  # fmt: skip
    try:
        client.list_secrets()
    finally:
        client.close()


HTTP_CLIENTS: dict[str, Callable[[str], None]] = {
    "requests": by_requests,
    "requests with Retry": by_requests_with_retries,
    "httpx": by_httpx,
    "httpx, async": by_httpx_async,
    "httpx2": by_httpx2,
    "httpx2, async": by_httpx2_async,
    "aiohttp": by_aiohttp,
    "urllib": by_urllib,
    "urllib3": by_urllib3,
    "urllib3 with Retry": by_urllib3_with_retries,
    "openai": by_openai,
    "anthropic": by_anthropic,
    "google-genai": by_genai,
    "mistralai": by_mistral,
    "botocore": by_botocore,
}
# It returns a response for every status.
RETURNS_STATUS = ("urllib3",)
# Clients that retry statuses themselves: they wait for the time in the header, and drop it.
DROPS_RETRY_AFTER = ("requests with Retry", "urllib3 with Retry")
# They report 4xx only if they are configured to retry it.
RETURNS_4XX = ("urllib3", "urllib3 with Retry")


def by_redis(host: Host) -> None:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    with redis.Redis(
        host=host.name, port=host.port, ssl=host.is_tls, socket_timeout=QUICK,
        socket_connect_timeout=QUICK, retry=Retry(NoBackoff(), 0),
    ) as client:  # fmt: skip
        client.ping()


def by_psycopg(host: Host) -> None:
    mode = "require" if host.is_tls else "disable"
    address = f"postgresql://u@{host.name}:{host.port}/d?sslmode={mode}"
    psycopg.connect(address, connect_timeout=2)


def by_asyncpg(host: Host) -> None:
    address = f"postgresql://u@{host.name}:{host.port}/d"
    mode = "require" if host.is_tls else False
    asyncio.run(asyncpg.connect(address, timeout=QUICK, ssl=mode))


def by_sqlalchemy(host: Host) -> None:
    import sqlalchemy as sa

    mode = "require" if host.is_tls else "disable"
    address = f"postgresql+psycopg://u@{host.name}:{host.port}/d?sslmode={mode}"
    sa.create_engine(address, connect_args={"connect_timeout": 2}).connect()


def by_smtplib(host: Host) -> None:
    kind = smtplib.SMTP_SSL if host.is_tls else smtplib.SMTP
    with kind(host.name, host.port, timeout=QUICK, local_hostname="here") as mail:
        mail.sendmail("a@x.test", ["b@x.test"], "hello")


OTHER_CLIENTS: dict[str, Callable[[Host], None]] = {
    "redis": by_redis,
    "psycopg": by_psycopg,
    "asyncpg": by_asyncpg,
    "SQLAlchemy": by_sqlalchemy,
    "smtplib": by_smtplib,
}
CLIENTS: dict[str, Callable[[Host], None]] = {
    **{name: lambda host, call=call: call(host.url) for name, call in HTTP_CLIENTS.items()},
    **OTHER_CLIENTS,
}
# Their errors do not always distinguish a lost database from a lost network.
DATABASES = ("asyncpg", "psycopg", "SQLAlchemy")

FAULTS = {
    "refused": "refused",
    "reset": "reset",
    "hangs": "timed out",
    "dns": "DNS",
    "tls_breaks": "TLS handshake",
    "closed": "closed",
    "cut": "cut off",
    "garbled": "garbled",
}
# botocore ignores that a JSON body was cut off. Only HTTP has a length to cut off. The first line
# of a mail server that is not SMTP, and of a database that is not PostgreSQL, is a wrong address.
UNTESTED = {
    ("botocore", "cut"),
    *((client, "cut") for client in OTHER_CLIENTS),
    *((client, "garbled") for client in OTHER_CLIENTS if client != "redis"),
}
BROKEN = [
    (client, fault) for client in CLIENTS for fault in FAULTS if (client, fault) not in UNTESTED
]
# gRPC runs in a process of its own (tests/engine/grpc_faults.py).
GRPC_FAULTS = ("refused", "reset", "hangs", "dns", "tls_breaks", "closed", "garbled")
GRPC_CODES = {
    "UNAVAILABLE": ("UPSTREAM_DOWN", True),
    "RESOURCE_EXHAUSTED": ("RATE_LIMITED", True),
    "DEADLINE_EXCEEDED": (NETWORK, True),
    "INTERNAL": ("UPSTREAM_ERROR", True),
    "ABORTED": ("WRITE_CONFLICT", True),
    "NOT_FOUND": ("GONE", False),
    "UNAUTHENTICATED": ("AUTH_DENIED", False),
    "INVALID_ARGUMENT": ("SCHEMA_INVALID", False),
    "FAILED_PRECONDITION": ("RULE_VIOLATED", False),
}


def with_transient_status() -> list[str]:
    """The clients that report 408, 425, 429 and 5xx as an error."""
    return [client for client in HTTP_CLIENTS if client not in RETURNS_STATUS]


def with_permanent_status() -> list[str]:
    """The clients that report 4xx as an error."""
    return [client for client in HTTP_CLIENTS if client not in RETURNS_4XX]


def table() -> Iterator[str]:
    """The lines of the published table; every cell is a case of test_network_errors.py."""
    heads = ["client", *FAULTS.values(), "408, 425, 429, 5xx", "`Retry-After`", "other 4xx"]
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for client in CLIENTS:
        cells = ["retried" if (client, fault) in BROKEN else "-" for fault in FAULTS]
        passes = client in with_transient_status()
        cells += ["retried" if passes else "-"]
        cells += ["honoured" if passes and client not in DROPS_RETRY_AFTER else "-"]
        cells += ["permanent" if client in with_permanent_status() else "-"]
        yield f"| {client} | {' | '.join(cells)} |"
    cells = ["retried" if fault in GRPC_FAULTS else "-" for fault in FAULTS]
    yield f"| grpc | {' | '.join(cells)} | by code | - | by code |"


if __name__ == "__main__":
    print("\n".join(table()))
