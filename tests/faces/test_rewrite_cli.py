"""holdfast rewrite: every part of the complaint rewrite for one text, and its requests."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast_llm.provider.route import Route
from holdfast_rewrite.directory import SqlDirectory
from holdfast_rewrite.enums import HomeRole
from holdfast_rewrite.model import SAFE_DEFAULTS, ClassifierResult, ContextPack
from tests.faces.conftest import Run
from tests.story import by_hand, look, make_holdfast

HOME = "0198c0de-0000-7000-8000-0000000000f1"
SENDER = "0198c0de-0000-7000-8000-000000000051"
RECIPIENT = "0198c0de-0000-7000-8000-000000000052"
STRANGER = "0198c0de-0000-7000-8000-000000000053"
MESSAGE = "Your music is so loud every night, could you turn it down after ten?"

ROUTES = """
[[rewrite.routes]]
provider = "openai"
adapter_kind = "openai_responses"
model = "large"
high_quality = true
supports_translation = true
"""


@pytest.fixture
def routed(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(ROUTES)


@pytest.fixture
def home(url: str) -> str:
    """A database with a home of two members, one of whom reads Spanish."""
    hf = make_holdfast(url)
    directory = SqlDirectory(hf)
    directory.add_home(HOME)
    directory.add_member(HOME, SENDER, role=HomeRole.OWNER, locale="en-GB")
    directory.add_member(HOME, RECIPIENT, role=HomeRole.HOUSEMATE, locale="es-MX")
    directory.answer(HOME, RECIPIENT, "communication_directness", "gentle")
    hf.close()
    return url


def say(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def submit(run: Run, db: str, *more: str, sender: str = SENDER, recipient: str = RECIPIENT) -> str:
    people = ("--home", HOME, "--sender", sender, "--recipient", recipient)
    return run("rewrite", "submit", *people, "--text", MESSAGE, *more, db=db).json[
        "rewrite_request_id"
    ]


# -- without a database


def test_a_message_is_classified(run: Run) -> None:
    done = run("rewrite", "classify", "--text", MESSAGE)

    assert done.code == 0
    found = ClassifierResult.read(done.json)
    assert (found.detected_language, found.topics) == ("en", ("noise",))


def test_a_text_can_come_from_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, MESSAGE.encode() + b"\n")
    assert run("rewrite", "classify", "--text", "-").json["topics"] == ["noise"]

    say(monkeypatch, b"caf\xe9")
    refused = run("rewrite", "classify", "--text", "-")
    assert (refused.code, "it is not UTF-8" in refused.err) == (2, True)


def test_a_model_that_cannot_be_asked_leaves_the_safe_defaults(run: Run, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        '[rewrite]\nclassifier = "llm"\n[rewrite.classifier_route]\nprovider = "gone"\n'
        'adapter_kind = "openai_chat"\nmodel = "tiny"\n[providers.gone]\n'
        'base_url = "https://gone.example.com/v1"\ncredential_env = "NOBODY_HAS_SET_THIS"\n'
    )

    done = run("rewrite", "classify", "--text", MESSAGE)

    assert done.code == 0
    assert ClassifierResult.read(done.json) == SAFE_DEFAULTS
    assert "The model has no answer (classifier_no_account)" in done.err
    assert "music" not in done.err


def test_the_lexicon_of_a_language_names_codes(run: Run) -> None:
    found = run("rewrite", "lexicon", "--locale", "en-GB", "--text", "You are a fucking idiot.")

    assert set(found.json) == {"lexicon_pass", "violations", "tone_safety", "lexicon_version"}
    assert found.json["lexicon_pass"] is False
    assert "vulgarity" in found.json["violations"]
    assert found.json["lexicon_version"].startswith("en-")


def test_a_language_without_a_lexicon_passes_nothing(run: Run) -> None:
    found = run("rewrite", "lexicon", "--locale", "sw", "--text", "Habari ya asubuhi.").json

    assert (found["lexicon_pass"], found["lexicon_version"]) == (None, "none")


@pytest.mark.parametrize("tag", ["und", "unknown", "", "x-pirate", "en_"])
def test_a_tag_that_names_no_language_is_wrong_usage(run: Run, tag: str) -> None:
    assert run("rewrite", "lexicon", "--locale", tag, "--text", "Hello").code == 2


def test_a_pack_shows_everything_that_a_model_would_get(run: Run) -> None:
    done = run(
        "rewrite", "context-pack", "--topic", "noise", "--sender-role", "owner",
        "--language", "es-MX", "--answer", "communication_directness=direct",
    )  # fmt: skip

    pack = ContextPack.read(done.json)
    assert (pack.target_language, pack.power.power_mode) == ("es", "higher_sender")
    assert [signal.value_key for signal in pack.recipient_signals] == ["direct"]


@pytest.mark.parametrize("answer", ["colour=green", "communication_directness=rude", "directness"])
def test_an_impossible_answer_is_wrong_usage(run: Run, answer: str) -> None:
    refused = run("rewrite", "context-pack", "--topic", "noise", "--answer", answer)

    assert (refused.code, refused.out) == (2, "")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (
            ("--answer", "communication_directness=direct"),
            "communication_directness is passed twice",
        ),
        (("--recipient", "bob"), "it must be a UUID"),
    ],
)
def test_a_pack_has_one_answer_each_for_a_person_with_an_id(
    run: Run, option: tuple[str, str], says: str
) -> None:
    refused = run(
        "rewrite", "context-pack", "--answer", "communication_directness=gentle", *option
    )  # fmt: skip

    assert (refused.code, refused.out) == (2, "")
    assert says in refused.err


def test_a_route_is_chosen_by_the_table_of_the_settings(run: Run, routed: None) -> None:
    done = run("rewrite", "route", "--from", "en-US", "--to", "es", "--surface", "weekly_feedback")

    assert done.code == 0
    assert Route.read(done.json).lane == "cross_language"
    assert done.json["model"] == "large"


def test_without_a_route_there_is_none(run: Run, tmp_path: Path) -> None:
    none = run("rewrite", "route")
    assert (none.code, "add [[rewrite.routes]]" in none.err) == (1, True)

    (tmp_path / "holdfast.toml").write_text(ROUTES.replace("high_quality = true\n", ""))
    weak = run("rewrite", "route", "--strength", "full_reframe")
    assert (weak.code, "No route matches full_reframe" in weak.err) == (1, True)


def test_a_good_rewrite_passes_and_a_rude_one_fails(run: Run) -> None:
    asked = ("rewrite", "evaluate", "--text", MESSAGE, "--topic", "noise")

    good = run(*asked, "--rewrite", "Could you turn the music down after ten? It is loud for me.")
    bad = run(*asked, "--rewrite", "Turn the fucking music down after ten, you idiot.")

    assert (good.code, bad.code) == (0, 0)
    assert good.json["verdict"] in ("pass", "warn")
    assert good.json["eval_result"]["lexicon_pass"] is True
    assert bad.json["verdict"] == "fail"
    assert "vulgarity" in bad.json["eval_result"]["violations"]


def test_a_rewrite_in_another_language_fails(run: Run) -> None:
    done = run(
        "rewrite", "evaluate", "--text", MESSAGE, "--to", "es", "--output-language", "es",
        "--rewrite", "Could you please turn the music down after ten in the evening?",
    )  # fmt: skip

    assert done.json["verdict"] == "fail"
    assert "non_target_locale" in done.json["eval_result"]["violations"]


def test_no_part_asks_for_a_database(run: Run, routed: None, tmp_path: Path) -> None:
    for part in (
        ("classify", "--text", MESSAGE),
        ("lexicon", "--locale", "en", "--text", MESSAGE),
        ("context-pack",),
        ("route",),
    ):
        assert run("rewrite", *part, db="postgresql://nobody.invalid/none").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["holdfast.toml"]


# -- with one


def test_a_message_is_taken_in_and_its_record_holds_no_text(
    run: Run, home: str, routed: None
) -> None:
    done = run(
        "rewrite", "submit", "--home", HOME, "--sender", SENDER, "--recipient", RECIPIENT,
        "--text", MESSAGE, db=home,
    )  # fmt: skip

    assert done.code == 0
    assert set(done.json) == {"rewrite_request_id", "job_id", "status"}
    assert done.json["status"] == "queued"
    shown = run("rewrite", "show", done.json["rewrite_request_id"], db=home)
    record = shown.json
    assert (record["source_locale"], record["target_locale"], record["surface"]) == (
        "en", "es", "weekly_harmony",
    )  # fmt: skip
    assert record["job_id"] == done.json["job_id"]
    assert record["events"][0]["name"] == "rewrite_received"
    assert "music" not in shown.out


def test_a_message_that_may_not_be_rewritten_fails_without_saying_why(
    run: Run, home: str, routed: None
) -> None:
    done = run(
        "rewrite", "submit", "--home", HOME, "--sender", SENDER, "--recipient", STRANGER,
        "--text", MESSAGE, db=home,
    )  # fmt: skip

    assert (done.code, done.json["status"], done.json["job_id"]) == (1, "failed", None)
    assert "home" not in done.out + done.err


def test_standard_input_holds_one_text_and_not_two(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, b"Turn it down.\n")
    done = run("rewrite", "evaluate", "--text", "-", "--rewrite", "-")

    assert (done.code, done.out) == (2, "")
    assert "standard input can be read for one option only" in done.err


def test_what_is_no_submission_is_refused_by_field(run: Run, home: str, routed: None) -> None:
    done = run(
        "rewrite", "submit", "--home", "here", "--sender", SENDER, "--recipient", RECIPIENT,
        "--text", MESSAGE, db=home,
    )  # fmt: skip

    assert (done.code, done.out) == (1, "")
    assert "home_id" in done.err
    assert "music" not in done.err


def test_the_sender_sees_the_state_and_other_people_nothing(
    run: Run, home: str, routed: None
) -> None:
    made = submit(run, home)
    view = ("rewrite", "show", made, "--home", HOME)

    sent = run(*view, "--sender", SENDER, db=home).json
    assert (sent["status"], sent["rewritten_text"]) == ("queued", None)
    assert run(*view, "--sender", STRANGER, db=home).code == 3
    # There is no text to read yet, for the recipient either.
    assert run(*view, "--recipient", RECIPIENT, db=home).code == 3
    for who in ((), ("--sender", SENDER), ("--recipient", SENDER)):
        refused = run("rewrite", "show", "nonsense", "--home", HOME, *who, db=home)
        assert (refused.code, "must be a UUID" in refused.err) == (1, True)

    for wrong in (
        ("--sender", SENDER),
        ("--home", HOME, "--sender", SENDER, "--recipient", SENDER),
    ):
        assert run("rewrite", "show", made, *wrong, db=home).code == 2


def test_what_is_stored_of_a_person_can_be_taken_out_and_erased(
    run: Run, home: str, routed: None
) -> None:
    submit(run, home)

    taken = run("rewrite", "export", "--user", SENDER, db=home)
    lines = [json.loads(line) for line in taken.out.splitlines()]
    assert {line["kind"] for line in lines} >= {"membership", "sent"}
    assert MESSAGE in taken.out

    gone = run("rewrite", "erase", "--user", SENDER, "--reason", "asked for it", db=home)
    assert gone.json["requests"] == 1
    assert MESSAGE not in run("rewrite", "export", "--user", SENDER, db=home).out


def test_who_may_not_erase_does_not(run: Run, home: str, routed: None) -> None:
    made = submit(run, home)

    refused = run(
        "rewrite", "erase", "--user", SENDER, "--reason", "no", "--role", "operator",
        "--actor", "user:7", db=home,
    )  # fmt: skip

    assert refused.code == 1
    assert run("rewrite", "show", made, db=home).json["erased_at"] is None
    assert run("rewrite", "erase", "--reason", "whose?", db=home).code == 1


def test_what_would_act_on_a_terminal_is_printed_as_an_escape(
    run: Run, home: str, routed: None
) -> None:
    made = submit(run, home)
    hf = make_holdfast(home)
    by_hand(
        hf.store,
        "UPDATE holdfast.rewrite_request SET correlation_id = :evil WHERE rewrite_request_id = :id",
        evil="a\u202eb\u009b2Jc",
        id=made,
    )
    assert look(hf.store, "SELECT correlation_id FROM holdfast.rewrite_request")
    hf.close()

    shown = run("rewrite", "show", made, db=home)

    assert shown.json["correlation_id"] == "a\u202eb\u009b2Jc"
    assert not {"\u202e", "\u009b"} & set(shown.out)
