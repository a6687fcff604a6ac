"""The object of a driver's permission error, in every language of the server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.engine.classify import fault_of
from holdfast.errors import ConfigInvalid
from holdfast.store.denied import Denied, denied_object


class Refused(Exception):
    """The error of psycopg."""

    def __init__(self, message: str, source: str = "aclcheck_error", state: str = "42501") -> None:
        super().__init__(message)
        self.sqlstate = state
        self.diag = SimpleNamespace(message_primary=message, source_function=source)


class RefusedByAsyncpg(Exception):
    sqlstate = "42501"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.server_source_function = "aclcheck_error"


class Wrapped(Exception):
    """The error of SQLAlchemy."""

    def __init__(self, orig: Exception) -> None:
        super().__init__("wrapped")
        self.orig = orig


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (Refused("permission denied for table note"), Denied("table", "note")),
        (Refused("permission denied for schema app"), Denied("schema", "app")),
        (Refused("permission denied for materialized view x"), Denied("materialized view", "x")),
        (Refused("permission denied for table my notes"), Denied("table", "my notes")),
        (Refused("keine Berechtigung für Tabelle note"), Denied("", "note")),
        (Refused("droit refusé pour la table « note »"), Denied("", "note")),
        (Refused("нет доступа к таблице note"), Denied("", "note")),
        (RefusedByAsyncpg("permission denied for table note"), Denied("table", "note")),
        (Wrapped(Refused("permission denied for table note")), Denied("table", "note")),
        (
            Refused("permission denied for sequence note_id_seq", "nextval_internal"),
            Denied("sequence", "note_id_seq"),
        ),
    ],
    ids=str,
)
def test_the_name_is_read(exc: Exception, expected: Denied) -> None:
    assert denied_object(exc) == expected


@pytest.mark.parametrize(
    "exc",
    [
        Refused('new row violates row-level security policy for table "n"', "ExecWithCheckOptions"),
        Refused('permission denied to set role "x"', "check_role"),
        Refused("permission denied for table olga", "exec_stmt_raise"),
        Refused("must be owner of table note"),
        Refused("permission denied for table note", state="42P01"),
        KeyError("permission denied for table note"),
    ],
    ids=str,
)
def test_another_refusal_is_none(exc: Exception) -> None:
    assert denied_object(exc) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("table note", " table=note"),
        ("function f", " function=f"),
        ("table a b olga@example.com", ""),
        ("table x" + "y" * 80, ""),
    ],
)
def test_only_a_plain_identifier_is_stored(name: str, said: str) -> None:
    fault = fault_of(Refused(f"permission denied for {name}"), stage="s", attempt=1)

    assert fault.last_error == f"CONFIG_INVALID stage=s attempt=1 sqlstate=42501{said}"


@pytest.mark.parametrize(
    ("remedy", "is_kept"),
    [
        ("holdfast grant app.note", True),
        ("rm -rf now", False),
        ("holdfast grant olga@example.com", False),
        ("holdfast grant a b c d e", False),
        ("holdfast grant x\nDROP", False),
        (7, True),
    ],
)
def test_a_remedy_is_a_command_of_ours_or_is_not_stored(remedy: Any, is_kept: bool) -> None:
    context = fault_of(ConfigInvalid(remedy=remedy), stage="s", attempt=1).context

    assert (context["remedy"] == remedy) == is_kept
