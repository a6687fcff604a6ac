"""The local mailbox: a mail that is sent several times is stored once."""

from __future__ import annotations

import email
import threading
from dataclasses import replace
from datetime import UTC, datetime
from email import policy
from pathlib import Path

import pytest

from holdfast import FakeClock
from holdfast.channel.channel import Accepted, Found, LookupFailed, LookupKey, NotFound, Rejected
from holdfast.channel.mailbox import Mailbox
from holdfast.channel.message import Message
from holdfast.config import ChannelSettings

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MAIL = Message("hf_1", "ada@example.com", "Grüße", "Zwei Funde.\n", "<p>Zwei</p>", at=AT)
ASKED = LookupKey("hf_1", "ada@example.com", "hash", AT)


def mailbox(folder: Path) -> Mailbox:
    settings = ChannelSettings(kind="mailbox", folder=str(folder), sender="post@example.org")
    return Mailbox("mailbox", settings, FakeClock())


def test_a_mail_is_a_file_that_a_mail_program_reads(tmp_path: Path) -> None:
    box = mailbox(tmp_path / "box")

    assert box.lookup(ASKED) == NotFound()
    assert box.send(MAIL) == Accepted("hf_1@example.org")

    (file,) = (tmp_path / "box").iterdir()
    found = email.message_from_bytes(file.read_bytes(), policy=policy.default)
    plain = found.get_body(("plain",))
    assert file.name == "hf_1.eml"
    assert (found["Subject"], found["Date"].datetime) == ("Grüße", AT)
    assert plain is not None
    assert plain.get_content().splitlines() == ["Zwei Funde."]
    assert file.stat().st_mode & 0o077 == 0
    seen = box.lookup(ASKED)
    assert isinstance(seen, Found)
    assert seen.provider_id == "hf_1@example.org"


def test_two_who_send_the_same_at_once_leave_one_whole_mail(tmp_path: Path) -> None:
    start = threading.Barrier(8)
    answers = []

    def send() -> None:
        box = mailbox(tmp_path)
        start.wait()
        answers.append(box.send(MAIL))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [Accepted("hf_1@example.org")] * 8
    assert [file.name for file in tmp_path.iterdir()] == ["hf_1.eml"]


@pytest.mark.parametrize("token", ["../hf_1", "a/b", "", ".", "hf\0"])
def test_a_token_names_no_other_place(tmp_path: Path, token: str) -> None:
    box = mailbox(tmp_path / "box")

    assert box.send(replace(MAIL, token=token)) == Rejected("bad_token", is_permanent=True)
    assert list(tmp_path.rglob("*.eml")) == []


def test_a_folder_that_cannot_be_used_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    box = mailbox(tmp_path / "file" / "box")

    assert box.send(MAIL) == Rejected("folder", is_permanent=False)
    assert box.lookup(ASKED) == LookupFailed("folder")
