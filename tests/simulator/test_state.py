"""The state of the simulator: time, determinism, validation, accounts, bill and leak detector."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from dataclasses import replace

import httpx2
import pytest

from holdfast_llm.provider.request import Request
from holdfast_simulator import Finish, ItemError, MovingClock, Pace, Prompt, Said, Simulator
from holdfast_simulator.blob import PIECE, Blob
from holdfast_simulator.exchange import Call
from holdfast_simulator.multipart import read_form
from holdfast_simulator.prompt import completion_of
from tests.simulator.plain import Plain, answers, chat_line, chat_lines


@pytest.fixture
def plain(sim: Simulator) -> Iterator[Plain]:
    with Plain(sim) as found:
        yield found


# -- time


def test_a_batch_is_where_the_clock_says(sim: Simulator, plain: Plain) -> None:
    batch = plain.batch(chat_lines(6))
    seen = [plain.show(batch)]
    for seconds in (4, 1, 30, 30, 5):
        sim.clock.advance(seconds=seconds)
        seen.append(plain.show(batch))

    assert [(it["status"], it["request_counts"]["completed"]) for it in seen] == [
        ("validating", 0),
        ("validating", 0),
        ("in_progress", 0),
        ("in_progress", 3),
        ("finalizing", 6),
        ("completed", 6),
    ]
    end = seen[-1]
    began = end["created_at"]
    assert [end[f"{it}_at"] - began for it in ("in_progress", "finalizing", "completed")] == [
        5,
        65,
        70,
    ]


def test_a_long_leap_of_the_clock_passes_every_stage(plain: Plain) -> None:
    batch = plain.batch()
    done = plain.end(batch, days=30)

    assert done["status"] == "completed"
    assert done["completed_at"] - done["created_at"] == 70


def test_work_is_billed_at_its_time_without_a_request(sim: Simulator, plain: Plain) -> None:
    plain.batch()
    assert sim.ledger.charges == []
    sim.clock.advance(minutes=5)

    assert [charge.custom_id for charge in sim.ledger.charges] == ["item-1", "item-2", "item-3"]


def test_every_item_has_the_time_at_which_it_was_executed(sim: Simulator, plain: Plain) -> None:
    done = plain.end(plain.batch(chat_lines(3)), days=3)
    times = [line["response"]["body"]["created"] for line in plain.lines(done)]

    assert [at - done["in_progress_at"] for at in times] == [20, 40, 60]
    assert [int(charge.at.timestamp()) for charge in sim.ledger.charges] == times


def test_the_window_ends_a_batch_that_is_too_slow() -> None:
    day = 24 * 3600
    with Simulator(pace=Pace(validating=10, running=2 * day)) as sim, Plain(sim) as plain:
        batch = plain.batch(chat_lines(4))
        done = plain.end(batch, days=2)

        assert done["status"] == "expired"
        assert done["expired_at"] == done["created_at"] + day
        assert list(answers(plain.lines(done))) == ["item-1"]
        left = plain.lines(done, "error_file_id")
        assert {line["error"]["code"] for line in left} == {"batch_expired"}
        assert len(sim.ledger.charges) == 1


def test_a_moving_clock_goes_by_itself_and_stops_when_frozen() -> None:
    clock = MovingClock()
    before = clock.now()
    clock.advance(hours=1)
    assert (clock.now() - before).total_seconds() >= 3600

    clock.freeze()
    still = clock.now()
    clock.advance(seconds=5)
    assert (clock.now() - still).total_seconds() == 5
    clock.thaw()
    assert clock.now() > still
    with pytest.raises(ValueError, match="cannot be moved back"):
        clock.advance(seconds=-1)


# -- determinism


def tell(seed: int) -> tuple[dict[str, object], bytes]:
    with Simulator(seed=seed) as sim, Plain(sim) as plain:
        sim.faults.add("shuffled")
        sim.faults.add("odd_answers", variant="refusal", share=0.3)
        done = plain.end(plain.batch(chat_lines(20)))
        return done, plain.output(done)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    assert tell(1) == tell(1)
    assert tell(1)[1] != tell(2)[1]


# -- refusals


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (b"", "empty_file", None),
        (b"\xef\xbb\xbf" + chat_line("a"), "invalid_json_line", 1),
        (chat_line("a") + b"{not json\n", "invalid_json_line", 2),
        (chat_line("a") + chat_line("a"), "duplicate_custom_id", 2),
        (chat_line("a") + chat_line("b", model="gpt-4"), "model_mismatch", 2),
        (chat_line("a").replace(b"/v1/chat/completions", b"/v1/responses"), "mismatched_url", 1),
        (chat_line("a").replace(b"custom_id", b"id"), "missing_required_parameter", 1),
    ],
)
def test_a_bad_input_fails_the_batch_and_says_where(
    sim: Simulator, plain: Plain, content: bytes, code: str, line: int | None
) -> None:
    done = plain.end(plain.batch(content))

    assert done["status"] == "failed"
    (problem,) = done["errors"]["data"]
    assert (problem["code"], problem["line"]) == (code, line)
    assert (done["output_file_id"], done["error_file_id"]) == (None, None)
    assert sim.ledger.charges == []


def test_a_batch_over_a_file_that_is_not_there_is_refused(plain: Plain) -> None:
    answer = plain.create("file-nothing")

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input_file_id"


def test_a_deleted_input_fails_a_batch_that_was_not_validated_yet(plain: Plain) -> None:
    batch = plain.batch()
    plain.delete(f"/files/{plain.show(batch)['input_file_id']}")
    done = plain.end(batch)

    assert done["status"] == "failed"
    assert done["errors"]["data"][0]["code"] == "file_not_found"


def test_an_input_that_expires_after_it_was_validated_does_no_harm(
    sim: Simulator, plain: Plain
) -> None:
    files = {"file": ("in.jsonl", chat_lines(2))}
    asked = {"purpose": "batch", "expires_after[seconds]": "3600"}
    headers = {"authorization": "Bearer sk-test"}
    with httpx2.Client(base_url=sim.url("openai"), headers=headers) as http:
        file_id = http.post("/files", data=asked, files=files).json()["id"]
    batch = plain.create(file_id).json()["id"]
    done = plain.end(batch, hours=5)

    assert plain.get(f"/files/{file_id}").status_code == 404
    assert done["status"] == "completed"


def test_no_key_is_refused(sim: Simulator) -> None:
    with httpx2.Client(base_url=sim.url("openai")) as http:
        answer = http.get("/batches")

    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"


def test_accounts_do_not_see_each_other(sim: Simulator, plain: Plain) -> None:
    batch = plain.batch()
    with Plain(sim, key="sk-other") as other:
        assert other.get("/batches").json()["data"] == []
        assert other.get(f"/batches/{batch}").status_code == 404
        assert other.get("/files").json()["data"] == []
        mine = other.upload(name="mine.jsonl").json()["id"]
        assert [it["id"] for it in other.get("/files").json()["data"]] == [mine]
    assert len(plain.get("/batches").json()["data"]) == 1


def test_a_body_in_chunks_is_as_good_as_one_with_a_length(sim: Simulator, plain: Plain) -> None:
    edge = b"--edge\r\nContent-Disposition: form-data; "
    form = [
        edge + b'name="purpose"\r\n\r\nbatch\r\n',
        edge + b'name="file"; filename="x.jsonl"\r\n\r\n',
        *(chat_line(f"item-{n}", "x" * 3000) for n in range(200)),
        b"\r\n--edge--\r\n",
    ]
    headers = {
        "authorization": "Bearer sk-test",
        "content-type": "multipart/form-data; boundary=edge",
    }
    with httpx2.Client(base_url=sim.url("openai"), headers=headers) as http:
        file = http.post("/files", content=iter(form)).json()

    assert file["bytes"] == sum(len(piece) for piece in form[2:-1])
    assert plain.get(f"/files/{file['id']}/content").content == b"".join(form[2:-1])


def test_a_form_is_read_wherever_its_boundaries_fall() -> None:
    headers = {"content-type": "multipart/form-data; boundary=edge"}
    head = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    for size in range(PIECE - 2 * len(head), PIECE):
        content = b"x" * size
        form = read_form(Call("POST", "/", {}, headers, Blob(head + content + b"\r\n--edge--\r\n")))

        assert form.file is not None
        assert form.file.size == size


# -- authentication


def test_a_responder_of_ones_own_answers_batches_and_calls() -> None:
    def answer(prompt: Prompt) -> Said | str | dict[str, str]:
        match prompt.text:
            case "fail":
                return Said(error=ItemError(500, "server_error"))
            case "long":
                return Said("cut", finish=Finish.LENGTH, output_tokens=800, reasoning_tokens=700)
            case "object":
                return {"model": prompt.model}
            case _:
                return "plain"

    texts = ("fail", "long", "object", "else")
    with Simulator(responder=answer) as sim, Plain(sim) as plain:
        done = plain.end(plain.batch(b"".join(chat_line(text, text) for text in texts)))
        lines = {line["custom_id"]: line["response"] for line in plain.lines(done)}
        (failed,) = plain.lines(done, "error_file_id")

    assert set(lines) == {"long", "object", "else"}
    assert lines["long"]["body"]["choices"][0]["finish_reason"] == "length"
    assert lines["long"]["body"]["usage"]["completion_tokens"] == 800
    assert lines["object"]["body"]["choices"][0]["message"]["content"] == '{"model": "gpt-5.2"}'
    assert failed["response"]["status_code"] == 500
    assert done["request_counts"] == {"total": 4, "completed": 3, "failed": 1}
    assert {charge.custom_id for charge in sim.ledger.charges} == {"long", "object", "else"}


def test_a_responder_that_breaks_is_in_the_journal() -> None:
    def broken(prompt: Prompt) -> str:
        raise KeyError("answer")

    with Simulator(responder=broken) as sim, Plain(sim) as plain:
        answer = plain.post(
            "/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        )

        assert answer.status_code == 500
        assert [entry.defect for entry in sim.journal.defects] == ["KeyError: 'answer'"]


# -- the bill


def test_a_unit_that_is_executed_twice_was_paid_twice(sim: Simulator, plain: Plain) -> None:
    plain.batch(chat_line("first-try", "canary-ada please"))
    plain.batch(chat_line("second-try", "canary-ada please") + chat_line("other", "canary-bob"))
    sim.clock.advance(minutes=5)

    assert list(sim.ledger.double_paid()) == ["canary-ada"]
    assert [it.custom_id for it in sim.ledger.double_paid()["canary-ada"]] == [
        "first-try",
        "second-try",
    ]


def test_items_that_were_paid_once_are_listed() -> None:
    with Simulator(unit_of=lambda ask: ask.text) as sim, Plain(sim) as plain:
        plain.batch(chat_line("a", "same") + chat_line("b", "same"))
        sim.clock.advance(minutes=5)

        assert list(sim.ledger.double_paid()) == ["same"]


# -- leaks


def test_a_text_in_its_own_request_is_no_leak(sim: Simulator, plain: Plain) -> None:
    plain.batch(chat_line("a", "canary-ada") + chat_line("b", "canary-bob"))
    sim.clock.advance(minutes=5)
    sim.ledger.charges  # noqa: B018 — reading the bill lets time pass

    assert sim.leaks.found == []


def test_every_way_out_of_its_own_request_is_a_leak(sim: Simulator, plain: Plain) -> None:
    plain.batch(chat_line("a", "canary-ada and canary-bob"))
    plain.batch(chat_line("canary-cyd"))
    plain.upload(name="canary-dee.jsonl")
    plain.batch(note="canary-eve")
    plain.get("/batches", after="canary-fay")
    plain.batch(chat_line("twice", "canary-gus"))
    plain.batch(chat_line("twice", "canary-hal"))
    sim.clock.advance(minutes=5)
    sim.ledger.charges  # noqa: B018

    found = {(leak.canary, leak.where) for leak in sim.leaks.found}
    assert found == {
        ("canary-bob", "request"),
        ("canary-cyd", "custom_id"),
        ("canary-dee", "file name"),
        ("canary-eve", "batch"),
        ("canary-fay", "address"),
        ("canary-hal", "item"),
    }


def test_texts_of_ones_own_can_be_looked_through(sim: Simulator) -> None:
    sim.leaks.forbid("log", "all quiet", "job of canary-ada failed")

    assert [(leak.canary, leak.where) for leak in sim.leaks.found] == [("canary-ada", "log")]


# -- the journal


def test_the_journal_has_every_request_and_no_key(sim: Simulator, plain: Plain) -> None:
    plain.batch(hf_key="abc")
    plain.get("/batches", limit="5")

    assert [entry.op for entry in sim.journal.entries] == ["upload", "create", "list"]
    (create,) = sim.journal.find(op="create")
    assert create.json["metadata"] == {"hf_key": "abc"}
    assert (create.method, create.path, create.status) == ("POST", "/openai/v1/batches", 200)
    assert "sk-test" not in repr([entry.view() for entry in sim.journal.entries])
    assert sim.journal.entries[-1].query == {"limit": "5"}


# -- the control plane


def test_everything_can_be_steered_from_another_process(sim: Simulator, plain: Plain) -> None:
    with httpx2.Client(base_url=sim.origin) as http:
        assert "openai" in http.get("/_sim").json()["mounts"]
        added = http.post("/_sim/faults", json={"name": "rate_limited", "op": "list", "seconds": 3})
        assert added.json()["options"] == {"seconds": 3}
        assert plain.get("/batches").headers["retry-after"] == "3"
        assert http.get("/_sim/faults").json()[0]["fired"] == 1
        assert http.delete("/_sim/faults").status_code == 200
        assert http.get("/_sim/faults").json() == []

        plain.batch()
        before = http.get("/_sim/clock").json()
        after = http.post("/_sim/clock", json={"advance": 600}).json()
        assert before["now"] < after["now"]
        assert before["is_still"]
        assert len(http.get("/_sim/ledger").json()["charges"]) == 3
        assert http.get("/_sim/ledger").json()["double_paid"] == {}
        assert http.get("/_sim/leaks").json() == []
        assert http.get("/_sim/snapshot").json()["batches"][0]["stage"] == "completed"
        assert [it["op"] for it in http.get("/_sim/journal", params={"op": "create"}).json()] == [
            "create"
        ]
        assert len(http.get("/_sim/scripts").json()) >= 58

        http.post("/_sim/reset")
        assert http.get("/_sim/snapshot").json()["batches"] == []
        assert sim.ledger.charges == []


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/_sim/clock", {"advance": -1}, "0 or more"),
        ("/_sim/clock", {"freeze": True}, "cannot be frozen"),
        ("/_sim/clock", [1], "JSON object"),
        ("/_sim/faults", {}, "name is missing"),
        ("/_sim/faults", {"name": "rain"}, "no fault 'rain'"),
        ("/_sim/faults", {"name": "slow_down", "seconds": 3}, "no option seconds"),
        ("/_sim/faults", {"name": "slow_down", "times": 0}, "start at 1"),
    ],
)
def test_nonsense_is_refused_with_a_reason(
    sim: Simulator, path: str, body: object, says: str
) -> None:
    with httpx2.Client(base_url=sim.origin) as http:
        answer = http.post(path, json=body)

    assert answer.status_code == 400
    assert says in answer.json()["error"]


def test_what_is_not_there_says_what_is(sim: Simulator, plain: Plain) -> None:
    with httpx2.Client(base_url=sim.origin) as http:
        assert "GET /_sim/ledger" in http.get("/_sim/nothing").json()["is"]
        assert "/openai/v1" in http.get("/v1/batches").json()["error"]
    assert plain.get("/nothing").json()["error"]["type"] == "invalid_request_error"
    with pytest.raises(ValueError, match="there are openai"):
        sim.url("acme")


# -- size


def test_many_results_are_streamed_without_being_held(plain: Plain, sim: Simulator) -> None:
    count, size = 4000, 3000
    sim.state.responder = lambda ask: "x" * size
    batch = plain.batch(chat_lines(count))
    sim.clock.advance(minutes=5)
    done = plain.show(batch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = 0
    with httpx2.Client(base_url=sim.url("openai")) as http:
        path = f"/files/{done['output_file_id']}/content"
        headers = {"authorization": "Bearer sk-test"}
        with http.stream("GET", path, headers=headers) as stream:
            for piece in stream.iter_raw():
                seen += len(piece)

    assert seen > count * size
    # The 12 MiB and more of the requests are held nowhere; ru_maxrss is in KiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 6 * 1024


def test_many_clients_at_once_are_served(sim: Simulator) -> None:
    barrier = threading.Barrier(8)
    made: list[str] = []

    def client() -> None:
        with Plain(sim) as plain:
            barrier.wait()
            made.append(plain.batch())

    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(made)) == 8
    assert len(sim.state.snapshot()["batches"]) == 8


# -- who answers


def test_a_text_is_put_beside_the_echo_where_the_request_asks_for_one() -> None:
    plain, closed = Request(("hello",)), {"properties": {"a": {"type": "string"}}}
    wanted = [plain, plain.with_echo("q7x3"), replace(plain, schema=closed).with_echo("q7x3")]

    found = [
        completion_of("Hi", Prompt("gemini", "m", one.inputs, schema=one.schema)).text
        for one in wanted
    ]

    assert found == ["Hi", '{"text": "Hi", "rid": "q7x3"}', "Hi"]
