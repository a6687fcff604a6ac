"""Every fault script: the client's view, the real outcome, and the bill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast_simulator import SCRIPTS, Simulator
from tests.simulator.plain import Plain, answers, chat_line, chat_lines, read_lines

HOUR = 3600


@pytest.fixture
def plain(sim: Simulator) -> Iterator[Plain]:
    with Plain(sim) as found:
        yield found


def test_there_are_58_and_each_has_its_test() -> None:
    numbers = sorted(script.number for script in SCRIPTS.values())
    text = Path(__file__).read_text()

    assert numbers[:58] == list(range(1, 59))
    assert [name for name in SCRIPTS if f'"{name}"' not in text] == []


# -- submitting


def batches(plain: Plain) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plain.get("/batches").json()["data"]
    return found


@pytest.mark.parametrize(
    ("name", "made"), [("reset_before", 0), ("accept_then_reset", 1), ("zombie_create", 0)]
)
def test_a_reset_leaves_open_what_happened(
    sim: Simulator, plain: Plain, name: str, made: int
) -> None:
    file_id = plain.upload().json()["id"]
    sim.faults.add(name)

    with pytest.raises(httpx2.ReadError, match="reset"):
        plain.create(file_id)
    assert len(batches(plain)) == made
    assert sim.journal.find(op="create")[0].status == 0


def test_a_zombie_is_created_later_all_the_same(sim: Simulator, plain: Plain) -> None:
    file_id = plain.upload().json()["id"]
    sim.faults.add("zombie_create", minutes=20)
    with pytest.raises(httpx2.TransportError):
        plain.create(file_id, hf_key="k")

    sim.clock.advance(minutes=19)
    assert batches(plain) == []
    sim.clock.advance(hours=1)
    (zombie,) = batches(plain)

    assert zombie["metadata"] == {"hf_key": "k"}
    # Its age is the real one, however late it is read.
    assert zombie["created_at"] == sim.clock.now().timestamp() - 59 * 60
    assert zombie["status"] == "completed"
    assert len(sim.ledger.charges) == 1


def test_a_zombie_finds_its_input_deleted_and_is_none(sim: Simulator, plain: Plain) -> None:
    file_id = plain.upload().json()["id"]
    sim.faults.add("zombie_create", minutes=20)
    with pytest.raises(httpx2.TransportError):
        plain.create(file_id)
    plain.delete(f"/files/{file_id}")
    sim.clock.advance(hours=1)

    assert batches(plain) == []
    assert sim.ledger.charges == []


def test_an_accepted_create_can_be_answered_with_500(sim: Simulator, plain: Plain) -> None:
    file_id = plain.upload().json()["id"]
    sim.faults.add("accept_then_500")

    assert plain.create(file_id).status_code == 500
    assert len(batches(plain)) == 1


def test_an_accepted_create_can_go_without_an_answer(sim: Simulator, plain: Plain) -> None:
    file_id = plain.upload().json()["id"]
    sim.faults.add("accept_then_hang")

    with Plain(sim, timeout=0.3) as hasty, pytest.raises(httpx2.ReadTimeout):
        hasty.create(file_id)
    assert len(batches(plain)) == 1


@pytest.mark.parametrize(("accepted", "made"), [(False, 0), (True, 1)])
def test_a_proxy_answers_for_a_provider(
    sim: Simulator, plain: Plain, accepted: bool, made: int
) -> None:
    file_id = plain.upload().json()["id"]
    sim.faults.add("proxy_html", status=504, accepted=accepted)
    answer = plain.create(file_id)

    assert (answer.status_code, answer.headers["content-type"]) == (504, "text/html")
    assert len(batches(plain)) == made


def test_an_answer_can_be_cut_off_inside_its_json(sim: Simulator, plain: Plain) -> None:
    file_id = plain.upload().json()["id"]
    sim.faults.add("truncated_json")
    answer = plain.create(file_id)

    assert answer.status_code == 200
    with pytest.raises(ValueError):
        answer.json()
    assert len(batches(plain)) == 1


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("rate_limited", 429, "rate_limit_exceeded"),
        ("rate_limited_date", 429, "rate_limit_exceeded"),
        ("rate_limited_ms", 429, "rate_limit_exceeded"),
        ("rate_limited_long", 429, "rate_limit_exceeded"),
        ("quota_exhausted", 429, "insufficient_quota"),
        ("slow_down", 429, "slow_down"),
        ("overloaded", 503, "server_is_overloaded"),
        ("overloaded_529", 529, "server_is_overloaded"),
        ("key_rotated", 401, "invalid_api_key"),
        ("forbidden", 403, "insufficient_permissions"),
        ("conflict", 409, "conflict"),
        ("too_large", 413, "request_too_large"),
        ("token_limit_at_create", 400, "token_limit_exceeded"),
    ],
)
def test_a_refusal_comes_in_the_providers_envelope_and_nothing_is_made(
    sim: Simulator, plain: Plain, name: str, status: int, code: str
) -> None:
    file_id = plain.upload().json()["id"]
    sim.faults.add(name)
    answer = plain.create(file_id)

    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert batches(plain) == []
    assert plain.create(file_id).status_code == 200


def test_how_long_to_wait_is_said_in_three_ways(sim: Simulator, plain: Plain) -> None:
    for name in ("rate_limited", "rate_limited_date", "rate_limited_ms", "rate_limited_long"):
        sim.faults.add(name, op="list")
    found = [plain.get("/batches").headers for _ in range(4)]

    assert found[0]["retry-after"] == "7"
    wait = parsedate_to_datetime(found[1]["retry-after"]) - sim.clock.now()
    assert wait.total_seconds() == 30
    assert parsedate_to_datetime(found[1]["date"]) == sim.clock.now()
    assert found[2]["retry-after-ms"] == "1500"
    assert found[3]["retry-after"] == "3600"


def test_a_file_can_be_stored_and_its_answer_lost(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("upload_answer_lost")
    with pytest.raises(httpx2.TransportError):
        plain.upload(name="hf-key-1.jsonl")

    (file,) = plain.get("/files").json()["data"]
    assert file["filename"] == "hf-key-1.jsonl"


def test_a_file_can_be_invisible_for_a_while(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("file_not_visible", seconds=30)
    file_id = plain.upload().json()["id"]

    assert plain.get(f"/files/{file_id}").status_code == 404
    assert plain.create(file_id).status_code == 400
    sim.clock.advance(seconds=30)
    assert plain.create(file_id).status_code == 200


def test_an_input_can_vanish_before_it_is_validated(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("file_deleted_before_validation")
    done = plain.end(plain.batch())

    assert (done["status"], done["errors"]["data"][0]["code"]) == ("failed", "file_not_found")
    assert sim.ledger.charges == []


def test_an_upload_can_be_said_to_exist_already(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("upload_name_taken")
    answer = plain.upload(name="hf-key-1.jsonl")

    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "already_exists")
    assert [it["filename"] for it in plain.get("/files").json()["data"]] == ["hf-key-1.jsonl"]


def test_an_upload_can_end_in_the_middle(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("upload_interrupted")
    with pytest.raises(httpx2.TransportError):
        plain.upload(chat_line("a", "x" * 500_000))

    assert plain.get("/files").json()["data"] == []
    (entry,) = sim.journal.find(op="upload")
    assert 0 < entry.size < 500_000


# -- listing


def test_a_batch_can_be_missing_from_listings_for_a_while(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("list_lag", seconds=60)
    batch = plain.batch()

    assert batches(plain) == []
    assert plain.show(batch)["id"] == batch
    sim.clock.advance(seconds=60)
    assert [it["id"] for it in batches(plain)] == [batch]


def pages(plain: Plain) -> list[list[str]]:
    """The ids of a listing, two a page."""
    found: list[list[str]] = []
    query = {"limit": "2"}
    while True:
        page = plain.get("/batches", **query).json()
        found.append([it["id"] for it in page["data"]])
        if not page["has_more"] or not page["data"]:
            return found
        query["after"] = page["last_id"]


@pytest.mark.parametrize("variant", ["repeat", "skip"])
def test_a_page_can_repeat_a_batch_or_leave_one_out(
    sim: Simulator, plain: Plain, variant: str
) -> None:
    ids = [plain.batch() for _ in range(4)][::-1]
    sim.faults.add("list_page_shifts", variant=variant, nth=2)
    found = pages(plain)

    second = [ids[1], ids[2], ids[3]] if variant == "repeat" else [ids[3]]
    assert found == [ids[:2], second]


def test_metadata_can_be_missing_from_listings_only(sim: Simulator, plain: Plain) -> None:
    batch = plain.batch(hf_key="key")
    sim.faults.add("list_without_metadata")

    assert [it["metadata"] for it in batches(plain)] == [None]
    assert plain.show(batch)["metadata"] == {"hf_key": "key"}
    assert [it["metadata"] for it in batches(plain)] == [{"hf_key": "key"}]


def test_metadata_can_be_cut_off(sim: Simulator, plain: Plain) -> None:
    plain.batch(hf_key="0123456789abcdef")
    sim.faults.add("metadata_altered", length=8)

    assert [it["metadata"] for it in batches(plain)] == [{"hf_key": "01234567"}]


def test_a_neighbours_batches_can_be_in_the_account(sim: Simulator, plain: Plain) -> None:
    batch = plain.batch()
    sim.faults.add("foreign_batches", count=2, items=3)
    ids = [it["id"] for it in batches(plain)]

    assert len(ids) == 3
    assert batch in ids
    assert len(batches(plain)) == 3


def test_has_more_can_be_wrong_both_ways(sim: Simulator, plain: Plain) -> None:
    for _ in range(3):
        plain.batch()
    sim.faults.add("has_more_wrong")
    assert [len(page) for page in pages(plain)] == [2]
    sim.faults.add("has_more_wrong", nth=2)
    assert [len(page) for page in pages(plain)] == [2, 1, 0]


def test_a_listing_can_fail(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("list_500")

    assert plain.get("/batches").status_code == 500
    assert plain.get("/batches").status_code == 200


# -- the lifecycle of a batch


def test_a_stuck_batch_is_ended_by_its_window(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("stuck_validating")
    batch = plain.batch()

    assert plain.end(batch, hours=23)["status"] == "validating"
    done = plain.end(batch, hours=2)
    assert done["status"] == "expired"
    assert len(plain.lines(done, "error_file_id")) == 3
    assert sim.ledger.charges == []


def test_too_many_waiting_tokens_fail_a_batch_later(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("token_limit_async")
    batch = plain.batch()

    assert plain.show(batch)["status"] == "validating"
    done = plain.end(batch)
    (problem,) = done["errors"]["data"]
    assert (done["status"], problem["code"]) == ("failed", "token_limit_exceeded")
    assert problem["line"] is None


def test_validation_can_fail_by_line(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("validation_failed", lines=[2, 3])
    done = plain.end(plain.batch())

    assert [it["line"] for it in done["errors"]["data"]] == [2, 3]
    assert done["output_file_id"] is None


def test_validation_can_fail_by_a_word_and_without_a_number(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("validation_failed", word="item-2", numbered=False, times=None)
    done = plain.end(plain.batch())
    spared = plain.end(plain.batch(chat_lines(1)))

    assert [it["line"] for it in done["errors"]["data"]] == [None]
    assert spared["status"] == "completed"


def test_finalizing_can_last(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("long_finalizing", seconds=6 * HOUR)
    batch = plain.batch()
    slow = plain.end(batch, hours=5)

    assert slow["status"] == "finalizing"
    assert slow["request_counts"]["completed"] == 3
    assert slow["output_file_id"] is None
    assert plain.end(batch, hours=2)["status"] == "completed"


def test_an_expired_batch_has_what_was_done(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("expired_partial", share=0.5)
    batch = plain.batch(chat_lines(4))

    assert plain.end(batch, hours=23)["status"] == "in_progress"
    done = plain.end(batch, hours=2)
    assert done["status"] == "expired"
    assert list(answers(plain.lines(done))) == ["item-1", "item-2"]
    left = plain.lines(done, "error_file_id")
    assert [line["error"]["code"] for line in left] == ["batch_expired"] * 2
    assert len(sim.ledger.charges) == 2


def test_an_expired_batch_can_have_nothing(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("expired_nothing")
    done = plain.end(plain.batch(), hours=25)

    assert (done["status"], done["output_file_id"]) == ("expired", None)
    assert sim.ledger.charges == []


def test_a_provider_can_cancel_by_itself(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("canceled_partial", share=0.5)
    done = plain.end(plain.batch(chat_lines(4)))

    assert done["status"] == "cancelled"
    assert len(plain.lines(done)) == 2
    assert len(plain.lines(done, "error_file_id")) == 2
    assert len(sim.ledger.charges) == 2


def test_a_cancel_can_come_too_late(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("cancel_races_completion")
    batch = plain.batch()
    sim.clock.advance(seconds=30)

    assert plain.post(f"/batches/{batch}/cancel").json()["status"] == "cancelling"
    done = plain.show(batch)
    assert done["status"] == "completed"
    assert len(plain.lines(done)) == 3


def test_a_status_can_be_unknown(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("unknown_status", status="paused_for_review")
    batch = plain.batch()

    assert plain.end(batch, seconds=30)["status"] == "paused_for_review"
    assert plain.end(batch)["status"] == "completed"


def test_a_status_can_go_back_for_a_moment(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("status_regresses")
    batch = plain.batch()
    sim.clock.advance(minutes=10)
    seen = [plain.show(batch) for _ in range(3)]

    assert [it["status"] for it in seen] == ["completed", "in_progress", "completed"]
    assert seen[1]["output_file_id"] is None
    assert seen[1]["completed_at"] is None


def test_all_items_can_fail_in_a_completed_batch(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("error_file_only")
    done = plain.end(plain.batch())

    assert (done["status"], done["output_file_id"]) == ("completed", None)
    lines = plain.lines(done, "error_file_id")
    assert [line["response"]["status_code"] for line in lines] == [500] * 3
    assert sim.ledger.charges == []


def test_absent_files_can_be_empty_texts(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("empty_string_ids")
    batch = plain.batch()

    assert plain.show(batch)["output_file_id"] == ""
    assert plain.end(batch)["error_file_id"] == ""


def test_an_error_file_can_be_there_and_empty(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("empty_error_file")

    assert plain.output(plain.end(plain.batch()), "error_file_id") == b""


def test_counts_can_be_wrong(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("counts_disagree", by=1)
    done = plain.end(plain.batch())

    assert done["request_counts"]["completed"] == 2
    assert len(plain.lines(done)) == 3


def test_a_batch_can_vanish_for_a_while_or_for_good(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("batch_vanishes", calls=2)
    sim.faults.add("batch_vanishes", calls=None)
    first, second = plain.batch(), plain.batch()
    assert plain.get(f"/batches/{first}").status_code == 200
    sim.clock.advance(minutes=10)

    assert [plain.get(f"/batches/{first}").status_code for _ in range(3)] == [404, 404, 200]
    assert {plain.get(f"/batches/{second}").status_code for _ in range(5)} == {404}


# -- results


def test_results_can_come_in_another_order(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("shuffled")
    lines = plain.lines(plain.end(plain.batch(chat_lines(20))))
    names = [line["custom_id"] for line in lines]
    sent = [f"item-{n}" for n in range(1, 21)]

    assert names != sent
    assert sorted(names) == sorted(sent)
    assert answers(lines)["item-7"] == "Answer to: Hello 7"


def test_an_item_can_have_no_line_though_it_was_executed(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("missing_line", items=[1])
    lines = plain.lines(plain.end(plain.batch()))

    assert [line["custom_id"] for line in lines] == ["item-1", "item-3"]
    assert len(sim.ledger.charges) == 3


@pytest.mark.parametrize(
    ("name", "different"), [("duplicate_identical", 1), ("duplicate_conflicting", 2)]
)
def test_an_item_can_have_two_lines(
    sim: Simulator, plain: Plain, name: str, different: int
) -> None:
    sim.faults.add(name, items=[0])
    lines = plain.lines(plain.end(plain.batch()))
    twice = [line for line in lines if line["custom_id"] == "item-1"]

    assert len(lines) == 4
    assert len({json.dumps(line) for line in twice}) == different
    assert sim.ledger.double_paid() == {}


def test_a_line_can_belong_to_an_unknown_item(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("unknown_custom_id", custom_id="stranger")
    lines = plain.lines(plain.end(plain.batch()))

    assert [line["custom_id"] for line in lines][-1] == "stranger"
    assert len(lines) == 4


def test_two_items_can_have_each_others_answers(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("cross_wired")
    said = answers(plain.lines(plain.end(plain.batch(chat_lines(5)))))
    wrong = {name for name, text in said.items() if not text.endswith(name.partition("-")[2])}

    assert len(said) == 5
    assert len(wrong) == 2


@pytest.mark.parametrize(
    ("variant", "good"),
    [
        ("malformed", 2),
        ("garbage", 3),
        ("blank", 3),
        ("crlf", 3),
        ("bom", 2),
        ("no_final_newline", 3),
        ("separators", 3),
        ("long_line", 3),
        ("invalid_utf8", 2),
    ],
)
def test_lines_can_be_odd(sim: Simulator, plain: Plain, variant: str, good: int) -> None:
    sim.faults.add("odd_lines", variant=variant)
    content = plain.output(plain.end(plain.batch()))

    assert len(list(_parsed(content))) == good
    signs = {
        "blank": b"\n  \n",
        "crlf": b"}\r\n",
        "bom": b"\xef\xbb\xbf{",
        "separators": "\u2028\u2029\u0085".encode(),
        "invalid_utf8": b"\xff",
        "garbage": b"<html>",
    }
    assert signs.get(variant, b"") in content
    assert content.endswith(b"\n") is (variant != "no_final_newline")
    assert (len(content) > 10 * 1024 * 1024) is (variant == "long_line")


def _parsed(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.split(b"\n"):
        try:
            yield json.loads(line.decode())
        except ValueError:
            continue


@pytest.mark.parametrize("framing", ["fixed", "chunked"])
def test_a_download_can_end_early(sim: Simulator, plain: Plain, framing: str) -> None:
    done = plain.end(plain.batch(chat_lines(500)))
    sim.faults.add("truncated_download", framing=framing)

    with pytest.raises(httpx2.RemoteProtocolError):
        plain.output(done)
    assert len(plain.lines(done)) == 500


def test_a_download_can_stop_in_the_middle(sim: Simulator, plain: Plain) -> None:
    done = plain.end(plain.batch(chat_lines(500)))
    sim.faults.add("slow_download", variant="slow")

    with Plain(sim, timeout=0.3) as hasty, pytest.raises(httpx2.ReadTimeout):
        hasty.output(done)
    assert len(plain.lines(done)) == 500


def test_a_file_of_results_can_be_gone(sim: Simulator, plain: Plain) -> None:
    done = plain.end(plain.batch())
    path = f"/files/{done['output_file_id']}/content"
    sim.faults.add("slow_download", variant="gone_404")
    assert plain.get(path).status_code == 404

    sim.faults.add("slow_download", variant="range_416", times=2)
    headers = {"authorization": "Bearer sk-test", "range": "bytes=10-"}
    with httpx2.Client(base_url=sim.url("openai"), headers=headers) as http:
        assert http.get(path).status_code == 416
    assert plain.get(path).status_code == 200


def odd(sim: Simulator, plain: Plain, name: str, variant: str, billed: int = 3) -> dict[str, Any]:
    """The body of the first item's answer."""
    sim.faults.add(name, variant=variant, items=[0])
    (body,) = (
        line["response"]["body"]
        for line in plain.lines(plain.end(plain.batch()))
        if line["custom_id"] == "item-1"
    )
    assert len(sim.ledger.charges) == billed
    return dict(body)


@pytest.mark.parametrize(
    ("variant", "finish", "content"),
    [
        ("incomplete", "length", "Answer to"),
        ("filtered", "content_filter", "Answer to: Hello 1"),
        ("refusal", "stop", None),
        ("empty", "stop", ""),
        ("reasoning_only", "stop", None),
        ("several_messages", "stop", "Answer to: Hello 1"),
        ("wrong_locale", "stop", "это другой язык"),
        ("invalid_json", "stop", '{"answer": "no end'),
        ("all_null", "stop", "null"),
    ],
)
def test_an_answer_can_be_odd_and_is_billed(
    sim: Simulator, plain: Plain, variant: str, finish: str, content: str | None
) -> None:
    choice = odd(sim, plain, "odd_answers", variant)["choices"][0]

    assert (choice["finish_reason"], choice["message"]["content"]) == (finish, content)
    assert (choice["message"]["refusal"] is not None) is (variant == "refusal")


def test_a_failed_answer_can_come_with_200_and_is_not_billed(sim: Simulator, plain: Plain) -> None:
    body = odd(sim, plain, "odd_answers", "failed", billed=2)

    assert body["choices"] == []
    assert "usage" not in body


@pytest.mark.parametrize(
    ("variant", "status", "types"),
    [
        ("incomplete", "incomplete", ["message"]),
        ("failed", "failed", []),
        ("refusal", "completed", ["message"]),
        ("reasoning_only", "completed", ["reasoning"]),
        ("several_messages", "completed", ["message", "message"]),
    ],
)
def test_a_response_can_be_odd_too(
    sim: Simulator, plain: Plain, variant: str, status: str, types: list[str]
) -> None:
    sim.faults.add("odd_answers", op="call", variant=variant)
    body = plain.post("/responses", {"model": "gpt-5.2", "input": "Hello"}).json()

    assert body["status"] == status
    assert [part["type"] for part in body["output"]] == types
    assert len(sim.ledger.charges) == (0 if variant == "failed" else 1)


def test_usage_can_be_missing_huge_or_another_models(sim: Simulator, plain: Plain) -> None:
    missing = odd(sim, plain, "odd_usage", "missing")
    sim.reset()
    huge = odd(sim, plain, "odd_usage", "huge")
    sim.reset()
    other = odd(sim, plain, "odd_usage", "other_model")

    assert "usage" not in missing
    assert huge["usage"]["completion_tokens"] == 2_000_000_000
    assert other["model"] == "another-model-2026-01-01"


def test_a_share_of_the_items_can_fail(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("item_error", status=400, code="context_length_exceeded", share=0.1)
    sim.faults.add("odd_answers", variant="refusal", share=0.1)
    done = plain.end(plain.batch(chat_lines(50)))
    failed = plain.lines(done, "error_file_id")

    assert done["request_counts"] == {"total": 50, "completed": 45, "failed": 5}
    assert {line["response"]["status_code"] for line in failed} == {400}
    assert {line["response"]["body"]["error"]["code"] for line in failed} == {
        "context_length_exceeded"
    }
    assert len(sim.ledger.charges) == 45


def test_an_item_can_fail_without_an_http_status(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("item_error", status=0, code="request_timeout", items=[0])
    (line,) = plain.lines(plain.end(plain.batch()), "error_file_id")

    assert line["response"] is None
    assert line["error"]["code"] == "request_timeout"


# -- rules


def test_a_rule_waits_for_its_turn_and_ends_after_it(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("list_500", nth=2, times=2)

    assert [plain.get("/batches").status_code for _ in range(5)] == [200, 500, 500, 200, 200]


def test_a_rule_can_be_permanent_and_be_removed(sim: Simulator, plain: Plain) -> None:
    rule = sim.faults.add("list_500", times=None)
    assert {plain.get("/batches").status_code for _ in range(4)} == {500}
    sim.faults.remove(rule)
    assert plain.get("/batches").status_code == 200


def test_a_rule_can_be_aimed(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("list_500", provider="gemini")
    sim.faults.add("overloaded", op="get_file", path=r"file-x$", method="GET")
    sim.faults.add("conflict", key="wanted")
    file_id = plain.upload().json()["id"]

    assert plain.get("/batches").status_code == 200
    assert plain.get(f"/files/{file_id}").status_code == 200
    assert plain.get("/files/file-x").status_code == 503
    assert plain.create(file_id, hf_key="other").status_code == 200
    assert plain.create(file_id, hf_key="wanted").status_code == 409


def test_a_rule_of_a_batch_can_be_aimed_by_its_key(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("error_file_only", key="wanted")
    spared, hit = plain.batch(hf_key="other"), plain.batch(hf_key="wanted")
    sim.clock.advance(minutes=10)

    assert plain.show(spared)["error_file_id"] is None
    assert plain.show(hit)["output_file_id"] is None


def test_chance_is_drawn_from_the_seed() -> None:
    def tell(seed: int) -> list[int]:
        with Simulator(seed=seed) as sim, Plain(sim) as plain:
            sim.faults.add("list_500", times=None, probability=0.5)
            return [plain.get("/batches").status_code for _ in range(20)]

    assert tell(3) == tell(3)
    assert {200, 500} == set(tell(3))
    assert tell(3) != tell(4)


@pytest.mark.parametrize("bad", [{"nth": 0}, {"times": 0}, {"probability": 0.0}, {"speed": 3}])
def test_a_rule_that_makes_no_sense_is_refused(sim: Simulator, bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        sim.faults.add("slow_down", **bad)


def test_results_split_at_the_byte_of_a_new_line_only(sim: Simulator, plain: Plain) -> None:
    sim.faults.add("odd_lines", variant="separators")
    content = plain.output(plain.end(plain.batch()))

    assert len(list(read_lines(content))) == 3
    assert len(content.decode().splitlines()) > 3
