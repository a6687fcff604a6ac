"""gRPC against hosts with faults: prints Holdfast's classification of each error, as JSON.

A separate process: gRPC starts threads, and other tests fork the process of the tests.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

from holdfast.engine.classify import fault_of
from tests.engine.faulty_clients import GRPC_CODES, GRPC_FAULTS
from tests.engine.faulty_hosts import host

CANARY = "canary-7f3a"


class Answering(grpc.GenericRpcHandler):
    """Answers a method with the status code of its name."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        code = grpc.StatusCode[details.method.rpartition("/")[2]]
        return grpc.unary_unary_rpc_method_handler(lambda _, call: call.abort(code, CANARY))


def stored(call: Callable[[], object]) -> tuple[str, bool]:
    try:
        call()
    except Exception as exc:
        fault = fault_of(exc, stage="run", attempt=1)
        assert CANARY not in repr(fault)
        return fault.error_class, fault.retryable
    return "", False


def call_it(target: str, method: str, *, is_tls: bool = False, seconds: float = 20) -> None:
    proof = grpc.ssl_channel_credentials()
    opened = grpc.secure_channel(target, proof) if is_tls else grpc.insecure_channel(target)
    with opened as channel:
        channel.unary_unary(f"/shop.Shop/{method}")(b"", timeout=seconds)


async def acall_it(target: str, method: str) -> None:
    async with grpc.aio.insecure_channel(target) as channel:
        await channel.unary_unary(f"/shop.Shop/{method}")(b"", timeout=20)


def main() -> None:
    found: dict[str, tuple[str, bool]] = {}
    for fault in GRPC_FAULTS:
        with host(fault) as there:
            target = f"{there.name}:{there.port}"
            seconds = 0.5 if fault == "hangs" else 20
            found[fault] = stored(
                lambda t=target, s=seconds, tls=there.is_tls: call_it(
                    t, "UNAVAILABLE", is_tls=tls, seconds=s
                )
            )
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Answering(),))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    for code in GRPC_CODES:
        found[code] = stored(lambda c=code: call_it(target, c))
        found[f"{code} async"] = stored(lambda c=code: asyncio.run(acall_it(target, c)))
    server.stop(None).wait()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
