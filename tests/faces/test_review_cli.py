"""holdfast review: request, inspect and repeat a review, from the first command to the mails."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast_simulator import Simulator
from tests.apps_review.office import KEY, Model, commit, make_repository
from tests.faces.conftest import Ran, Run
from tests.story import ORG, OTHER_ORG, look, make_holdfast

ASKED = ("--org", ORG, "--changelist", "cl-1")
TO = ("--to", "ann=post:ann@example.org")
PATCH = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+eval(b)\n"
TOML = """
[providers.openai]
base_url = "{provider}"
credential_env = "{key}"
allow_private = true

[artifacts]
store = "file://{home}/artifacts"

[channels.post]
kind = "mailbox"
folder = "{home}/mail"
sender = "Critic <critic@example.org>"

[review]
repositories = ["{home}/git"]
provider = "openai"
adapter_kind = "openai_responses"
model = "large"
"""
APP = """
from holdfast import Holdfast
from holdfast_review.reviews import Reviews

hf = Holdfast()
Reviews(hf)
"""


@dataclass
class Shop:
    """A folder with a repository, a holdfast.toml and an application, and its database."""

    home: Path
    db: str
    run: Run
    critic: Model

    def __call__(self, *arguments: str) -> Ran:
        return self.run("review", *arguments, db=self.db)

    @property
    def git(self) -> tuple[str, ...]:
        return ("--repository", str(self.home / "git" / "shop"), "--head", "main")

    def submit(self, *more: str, version: str = "1", key: str = "k1") -> Ran:
        return self("submit", *ASKED, "--version", version, "--key", key, *more)

    def work(self) -> None:
        # A separate process would import the application again.
        sys.modules.pop("review_app", None)
        assert self.run("worker", "--until-idle", db=self.db, app="review_app:hf").code == 0

    @property
    def mails(self) -> int:
        return len(list((self.home / "mail").glob("*.eml")))


@pytest.fixture
def shop(url: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv(KEY, "not-a-real-key")
    make_repository(tmp_path / "git" / "shop")
    commit(tmp_path / "git" / "shop", cart="def total(items):\n    return eval(items)\n")
    (tmp_path / "review_app.py").write_text(APP)
    critic = Model()
    with Simulator(responder=critic) as simulator:
        text = TOML.format(provider=simulator.url("openai"), key=KEY, home=tmp_path)
        (tmp_path / "holdfast.toml").write_text(text)
        yield Shop(tmp_path, url, run, critic)
    sys.modules.pop("review_app", None)


@pytest.mark.req("N-01", "N-02", "N-03", "J-38")
def test_from_the_first_command_to_the_mails_and_again(shop: Shop) -> None:
    first = shop.submit(*shop.git, *TO, "--cc", "post:ben@example.org", "--json")
    assert (first.code, first.err) == (0, "")
    assert (first.json["created"], first.json["status"]) == (True, "in_progress")

    shop.work()

    shown = shop("show", *ASKED, "--json").json
    text = shop("show", "--org", ORG, shown["review_id"])
    assert (shown["status"], shown["job_status"]) == ("succeeded", "completed")
    assert [(one["file"], one["line"]) for one in shown["findings"]] == [("cart", 2)]
    assert [(one["is_required"], one["state"]) for one in shown["recipients"]] == [
        (True, "sent"), (False, "sent"),
    ]  # fmt: skip
    assert "ann@example.org" not in str(shown)
    assert "cl-1 version 1: succeeded" in text.out
    assert "cart:2" in text.out
    assert shop.mails == 2

    plain = shop.submit(*shop.git, *TO, version="2", key="k2")
    same = shop("rerun", *ASKED, "--version", "1", "--key", "k3", "--json")
    higher = shop("rerun", *ASKED, "--version", "2", "--key", "k4", "--json")
    lower = shop("rerun", *ASKED, "--version", "1", "--key", "k4")
    assert (plain.code, "pass rerun (--rerun)" in plain.err) == (1, True)
    assert (same.json["created"], same.json["answer"]) == (False, "same_version")
    assert (higher.json["created"], higher.json["review_version"]) == (True, 2)
    assert (lower.code, "already exists (same_key)" in lower.out) == (0, True)
    assert "A review with other options exists" in lower.err

    shop.work()
    assert shop.mails == 4
    assert len(shop.critic.asked) == 2


def test_a_review_that_failed_names_its_dead_letter(shop: Shop) -> None:
    shop.submit(*shop.git, *TO)
    (shop.home / "git" / "shop").rename(shop.home / "moved")

    shop.work()

    shown = shop("show", *ASKED)
    assert (shown.code, shop.mails) == (0, 0)
    assert "cl-1 version 1: failed" in shown.out
    assert "dead letter" in shown.out


def test_what_a_review_said_is_erased_by_an_admin_who_says_why(shop: Shop) -> None:
    shop.submit(*shop.git, *TO)
    shop.work()
    why = (*ASKED, "--reason", "asked for on 3 March")

    refused = shop("erase", *why, "--role", "operator")
    vague = shop("erase", "--org", ORG, "--reason", "x")
    unknown = shop("erase", "--org", ORG, "--changelist", "cl-9", "--reason", "x")
    assert (refused.code, vague.code, unknown.code) == (1, 2, 3)
    assert "erase of changelist:cl-1 was refused" in refused.err
    erased = shop("erase", *why)
    person = shop("erase", "--org", ORG, "--recipient", "ann", "--reason", "x")

    assert (erased.code, erased.json["findings"], erased.json["deliveries"]) == (0, 1, 1)
    assert (person.code, person.json["recipients"]) == (0, 0)
    assert "recipients were erased" in shop("show", *ASKED).out


def test_a_review_is_found_again_by_its_key(shop: Shop) -> None:
    first = shop.submit(*shop.git, *TO, "--json")
    again = shop.submit(*shop.git, *TO, "--json", version="v1")
    other = shop.submit(*shop.git, "--to", "post:ben@example.org")

    assert (first.code, again.code, other.code) == (0, 0, 0)
    assert (again.json["created"], again.json["answer"]) == (False, "same_key")
    assert again.json["job_id"] == first.json["job_id"]
    assert again.json["differs"] is False
    assert "already exists (same_key)" in other.out
    assert "A review with other options exists" in other.err


def test_a_patch_is_taken_from_a_file_or_from_standard_input(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop.home / "change.patch").write_bytes(PATCH)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(PATCH)))

    first = shop.submit("--patch", str(shop.home / "change.patch"), *TO, "--json")
    again = shop.submit("--patch", "-", *TO, "--json")
    (shop.home / "no.patch").write_text("Dear reader")
    broken = shop.submit("--patch", str(shop.home / "no.patch"), *TO, "--json")
    shop.work()

    assert (first.code, again.code, broken.code) == (0, 0, 0)
    assert (again.json["answer"], again.json["differs"]) == ("same_key", False)
    assert (broken.json["answer"], broken.json["differs"]) == ("same_key", True)
    assert shop("show", *ASKED, "--json").json["findings"][0]["file"] == "x"
    assert shop.mails == 1


def test_wrong_usage_and_bad_input_say_what_to_do_and_write_nothing(shop: Shop) -> None:
    (shop.home / "no.patch").write_text("Dear reader")
    (shop.home / "good.patch").write_bytes(PATCH)
    (shop.home / "outside").mkdir()
    repository = shop.git[:2]
    for given, code, says in (
        ((), 2, "Pass --repository"),
        (("--head", "x"), 2, "takes --repository and --head"),
        ((*shop.git, "--patch", "x"), 2, "cannot be combined"),
        (("--patch", "/no/such/file"), 2, "No such file"),
        (("--patch", "no.patch"), 1, "patch: is not a valid patch"),
        (("--patch", "good.patch", "--to", "ann=post:ann"), 1, "recipients[0]: address must be"),
        (("--patch", "good.patch", "--org", "me"), 1, "org_id: "),
        ((*shop.git, "--to", "ann"), 2, "[NAME=]CHANNEL:ADDRESS"),
        ((*shop.git, "--to", "ann=post:a\nb"), 1, "recipients[0].address"),
        ((*shop.git, "--to", "ann=post:ann"), 1, "recipients[0]: address must be one e-mail"),
        ((*shop.git, "--to", "ann=owl:x"), 1, "recipients[0].channel: is not a declared channel"),
        ((*repository, "--head", "none"), 1, "source.head: is not a revision"),
        ((*shop.git, "--base", "none"), 1, "source.base: is not a revision"),
        (("--repository", "outside", "--head", "main"), 1, "source.repository: is not there, or"),
    ):
        ran = shop.submit(*given)
        assert (ran.code, ran.out) == (code, "")
        assert says in ran.err
    for version in ("0", "x", "1.5", "-1"):
        ran = shop.submit(*shop.git, version=version)
        assert (ran.code, "review_version" in ran.err) == (1, True)
    hf = make_holdfast(shop.db)
    for table in ("review", "job", "artifact"):
        assert look(hf.store, f"SELECT 1 FROM holdfast.{table}") == []
    hf.close()


def test_what_is_not_there_is_not_found(shop: Shop) -> None:
    review_id = shop.submit(*shop.git, *TO, "--json").json["review_id"]

    assert shop("show", "--org", OTHER_ORG, review_id).code == 3
    assert shop("show", "--org", ORG, "--changelist", "cl-9").code == 3
    assert shop("show", *ASKED, "--version", "7").code == 3
    assert shop("show", *ASKED, "--version", "v7").code == 3
    assert shop("show", *ASKED, "--version", "v1").code == 0
    wrong = shop("show", *ASKED, "--version", "x")
    assert (wrong.code, "review_version: must be a positive" in wrong.err) == (1, True)
    assert shop("show", "--org", ORG).code == 2
    nothing = shop("rerun", "--org", ORG, "--changelist", "cl-9", "--version", "2", "--key", "k")
    assert (nothing.code, "has no review to run again" in nothing.err) == (1, True)
