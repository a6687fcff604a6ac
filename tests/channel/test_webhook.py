"""Webhooks: allowed addresses, signatures, and the meaning of answers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError, FakeClock, Settings
from holdfast.channel.channel import (
    Accepted,
    Ambiguous,
    ChannelRefused,
    Found,
    Lookup,
    LookupFailed,
    NotFound,
    Rejected,
    Unsure,
)
from holdfast.channel.channels import ConfiguredChannels
from holdfast.channel.message import Message
from holdfast.config import ChannelSettings
from tests.channel.asking import ASKED, AT, answering, open_channel
from tests.channel.names import leading
from tests.provider.plain_server import plain_server, say

SECRET = b"0123456789abcdef"
ENV = {"SECRET": "whsec_" + base64.b64encode(SECRET).decode(), "KEY": "hunter2-hunter2"}
HELLO = Message("hf_1", "", "Hello", "It is done.", data={"job": "4711", "b": 1})


def hooks(clock: FakeClock, **options: Any) -> Any:
    given = {"kind": "webhook", "allow_private": True, **options}
    settings = Settings(channels={"hooks": ChannelSettings(**given)})
    return ConfiguredChannels(settings, clock=clock, env=ENV).require("hooks")


def headers(request: bytes) -> dict[str, str]:
    lines = request.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


def test_a_message_goes_to_its_own_address_signed_over_id_second_and_body() -> None:
    clock = FakeClock(AT)
    with plain_server(say(200, b'{"id": "rcv_1"}')) as server:
        sent = hooks(clock, secret_env="SECRET").send(
            replace(HELLO, address=f"{server.url}/hooks/a?b=c")
        )

    assert sent == Accepted("rcv_1")
    (request,) = server.requests
    head, body = headers(request), request.split(b"\r\n\r\n")[1]
    assert request.startswith(b"POST /hooks/a?b=c HTTP/1.1")
    assert head["webhook-id"] == head["idempotency-key"] == "hf_1"
    assert head["webhook-timestamp"] == str(int(AT.timestamp()))
    signed = f"hf_1.{int(AT.timestamp())}.".encode() + body
    wanted = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
    assert head["webhook-signature"] == f"v1,{wanted}"
    assert "authorization" not in head
    assert json.loads(body) == {
        "id": "hf_1",
        "subject": "Hello",
        "text": "It is done.",
        "data": {"job": "4711", "b": 1},
    }


def test_a_repetition_has_the_same_id_and_body_and_a_signature_of_its_own() -> None:
    clock = FakeClock(AT)
    with plain_server(say(200, b"")) as server:
        channel = hooks(clock, secret_env="SECRET")
        message = replace(HELLO, address=server.url)
        assert channel.send(message) == Accepted("hf_1")
        clock.advance(seconds=60)
        channel.send(message)

    first, second = server.requests
    assert first.split(b"\r\n\r\n")[1] == second.split(b"\r\n\r\n")[1]
    assert headers(first)["webhook-id"] == headers(second)["webhook-id"]
    assert headers(first)["webhook-signature"] != headers(second)["webhook-signature"]


def test_a_gateway_gets_the_address_in_the_body_and_its_credential() -> None:
    with answering("webhook", say(202, b"{}"), credential_env="KEY") as (channel, server):
        assert channel.send(replace(HELLO, address="+49 151 1")) == Accepted("hf_1")

    assert json.loads(server.requests[0].split(b"\r\n\r\n")[1])["to"] == "+49 151 1"
    assert headers(server.requests[0])["authorization"] == "Bearer hunter2-hunter2"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (204, Accepted("hf_1")),
        (400, Rejected("status_400", is_permanent=True)),
        (410, Rejected("status_410", is_permanent=True)),
        (401, ChannelRefused("status_401", is_endpoint=True)),
        (403, ChannelRefused("status_403", is_endpoint=True)),
        (404, Rejected("status_404", is_permanent=True)),
        (307, Rejected("status_307", is_permanent=True)),
        (308, Rejected("status_308", is_permanent=True)),
        (302, Unsure("status_302")),
        (408, Unsure("status_408")),
        (409, Unsure("status_409")),
        (502, Unsure("status_502")),
    ],
)
def test_what_a_receiver_says_is_taken_at_its_word_and_no_further(
    status: int, answer: object
) -> None:
    elsewhere = "Location: http://169.254.169.254/latest/meta-data"
    with plain_server(say(status, b"", elsewhere)) as server:
        found = hooks(FakeClock(AT)).send(replace(HELLO, address=server.url))
    assert found == answer
    assert len(server.requests) == 1


# -- allowed addresses


@pytest.mark.parametrize("leads_to", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "64:ff9b::a00:7"])
def test_a_name_that_leads_into_our_own_network_is_not_called(leads_to: str) -> None:
    channel = hooks(FakeClock(AT), allow_private=False)

    with leading("hooks.example.com", leads_to) as asked:
        answer = channel.send(replace(HELLO, address="https://hooks.example.com/a"))

    assert answer == Rejected("address_refused", is_permanent=True)
    assert asked == ["hooks.example.com"]


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:7f00:1]"])
def test_no_way_to_write_this_machine_is_called(host: str) -> None:
    with plain_server(say(200, b"")) as server:
        address = f"https://{host}:{server.port}/hook"
        answer = hooks(FakeClock(AT), allow_private=False).send(replace(HELLO, address=address))

    assert answer == Rejected("bad_message", is_permanent=True)
    assert server.requests == []


def test_a_name_is_resolved_once_and_the_address_that_was_looked_at_is_called() -> None:
    with (
        plain_server(say(200, b"")) as server,
        leading("hooks.example.com", "127.0.0.1", "169.254.169.254") as asked,
    ):
        channel = hooks(FakeClock(AT))
        message = replace(HELLO, address=f"http://hooks.example.com:{server.port}/")
        first = channel.send(message)
        was_asked = list(asked)
        second = channel.send(message)

    assert (first, was_asked) == (Accepted("hf_1"), ["hooks.example.com"])
    # A new connection resolves the name again, and the new address is checked as well.
    assert second == Rejected("address_refused", is_permanent=True)
    assert len(server.requests) == 1


def test_each_receiver_has_connections_of_its_own() -> None:
    with plain_server(say(200, b"")) as one, plain_server(say(200, b"")) as other:
        channel = hooks(FakeClock(AT))
        for server in (one, other, one):
            assert channel.send(replace(HELLO, address=f"{server.url}/x")) == Accepted("hf_1")

    assert (len(one.requests), len(other.requests)) == (2, 1)


# -- lookups


@pytest.mark.parametrize(
    ("status", "body", "seen"),
    [
        (200, {"id": "rcv_1", "at": "2026-03-01T12:00:00+00:00"}, Found("rcv_1", AT)),
        (200, {"id": "rcv_1", "status": "failed"}, Found("rcv_1", is_delivered=False)),
        (200, {"id": "a", "matches": [{"id": "a"}, {"id": "b"}]}, Ambiguous(2)),
        (200, {"id": "rcv_1", "to": ASKED.address}, Found("rcv_1")),
        (200, {"id": "rcv_1", "to": "eve@example.com"}, Ambiguous(1)),
        (200, {}, LookupFailed("status_200")),
        (404, {"error": "nothing has this id"}, NotFound()),
        (404, {"detail": "Not Found"}, LookupFailed("status_404")),
        (500, {"id": "rcv_1"}, LookupFailed("status_500")),
    ],
)
def test_a_gateway_is_asked_where_it_says(status: int, body: Any, seen: object) -> None:
    with plain_server(say(status, json.dumps(body).encode())) as server:
        channel = open_channel("webhook", server.url, status_url=f"{server.url}/status/{{token}}")
        assert channel.capabilities.lookup is Lookup.BY_OUR_TOKEN
        assert channel.lookup(ASKED) == seen
    assert server.requests[0].startswith(b"GET /status/hf_1 ")


def test_without_a_status_address_the_receiver_is_believed_to_know_a_repetition() -> None:
    assert hooks(FakeClock()).capabilities.receiver_dedupes
    assert not hooks(FakeClock(), receiver_dedupes=False).capabilities.receiver_dedupes
    assert hooks(FakeClock()).lookup(ASKED) == LookupFailed("not_supported")


def test_an_invalid_secret_is_reported_and_not_repeated() -> None:
    settings = Settings(channels={"hooks": ChannelSettings(kind="webhook", secret_env="S")})
    channels = ConfiguredChannels(settings, clock=FakeClock(), env={"S": "whsec_!!!"})

    with pytest.raises(ConfigError, match="must be base64 after the prefix") as told:
        channels.require("hooks")
    assert "!!!" not in str(told.value)


OLD = b"fedcba9876543210"
ADA = "0198c0de-0000-7000-8000-00000000000a"
BOB = "0198c0de-0000-7000-8000-00000000000b"


def signature(secret: bytes, request: bytes) -> str:
    """What a receiver that knows *secret* expects in the header."""
    head, body = headers(request), request.split(b"\r\n\r\n")[1]
    signed = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def test_a_message_is_signed_with_both_secrets_while_one_is_rotated(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text(OLD.decode())
    with plain_server(say(200, b"")) as server:
        channel = hooks(FakeClock(AT), secret_env="SECRET", previous_secret_file=str(old))
        assert channel.send(replace(HELLO, address=server.url)) == Accepted("hf_1")

    (request,) = server.requests
    given = headers(request)["webhook-signature"].split(" ")
    assert given == [signature(SECRET, request), signature(OLD, request)]


def test_an_endpoint_and_a_tenant_have_secrets_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "hooks.json"
    with plain_server(say(200, b"")) as server:
        names = {
            "endpoints": {f"{server.url}/a": ["endpoint-new", "endpoint-old"]},
            "tenants": {ADA: "tenant-ada"},
        }
        file.write_text(json.dumps(names))
        settings = Settings(
            channels={
                "hooks": ChannelSettings(
                    kind="webhook", allow_private=True, secret_env="SECRET", secrets_file=str(file)
                )
            }
        )
        channels = ConfiguredChannels(settings, clock=FakeClock(AT), env=ENV)

        def signed(path: str, org_id: str) -> tuple[list[str], bytes]:
            message = replace(HELLO, address=f"{server.url}{path}", org_id=org_id)
            channels.require("hooks").send(message)
            request = server.requests[-1]
            return headers(request)["webhook-signature"].split(" "), request

        given, request = signed("/a", ADA)
        assert given == [signature(b"endpoint-new", request), signature(b"endpoint-old", request)]
        given, request = signed("/b", ADA)
        assert given == [signature(b"tenant-ada", request)]
        given, request = signed("/b", BOB)
        assert given == [signature(SECRET, request)]

        before = channels.fingerprint("hooks")
        file.write_text(json.dumps({"endpoints": {server.url: "whole-host"}}))
        # Another secret is another credential: the waiting messages of the channel are retried.
        assert channels.fingerprint("hooks") != before
        given, request = signed("/b", ADA)
        assert given == [signature(b"whole-host", request)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hunter2",
        "[]",
        '{"other": {}}',
        '{"tenants": []}',
        '{"tenants": {"nobody": "hunter2"}}',
        '{"endpoints": {"example.com": "hunter2"}}',
        '{"endpoints": {"https://example.com": []}}',
        '{"endpoints": {"https://example.com": ["hunter2", "hunter2", "hunter2"]}}',
        '{"endpoints": {"https://example.com": [7]}}',
        '{"endpoints": {"https://example.com": "whsec_hunter2!"}}',
    ],
)
def test_a_file_of_secrets_that_cannot_be_used_is_refused_and_not_repeated(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "hooks.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="secrets_file") as told:
        hooks(FakeClock(), secrets_file=str(file))
    assert "hunter2" not in str(told.value)
    file.unlink()
    with pytest.raises(ConfigError, match="secrets_file"):
        hooks(FakeClock(), secrets_file=str(file))


def test_a_previous_secret_without_a_present_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="previous_secret needs"):
        ChannelSettings(kind="webhook", previous_secret_env="OLD")
