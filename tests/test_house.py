"""The house rules that can be tested."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast import errors
from holdfast.cli import cli
from holdfast.config import Settings
from tests.tree import ROOT, source

PACKAGES = ROOT / "packages"
CORE = PACKAGES / "holdfast-jobs" / "holdfast"
MODULES = sorted(PACKAGES.glob("*/holdfast*/**/*.py"))
STATEMENTS = sorted(
    path for path in PACKAGES.glob("*/holdfast*/**/*.sql") if path.parent.name != "migrations"
)
MIGRATIONS = sorted(PACKAGES.glob("*/holdfast*/**/migrations/*.sql"))
DOCS = "\n".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))

REFERENCE = ROOT / "docs" / "reference"

MODULE_LINES = 500
FUNCTION_LINES = 60


def of(path: Path) -> str:
    """The path in the repository; in a distribution the path below it: holdfast/engine/claim.py."""
    if PACKAGES in path.parents:
        return "/".join(path.relative_to(PACKAGES).parts[1:])
    return str(path.relative_to(ROOT))


def test_no_module_is_too_long_to_read() -> None:
    lengths = {of(path): len(path.read_text().splitlines()) for path in MODULES}

    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES} == {}


def test_no_function_is_too_long_to_read() -> None:
    lengths = {
        f"{of(path)}:{name}": lines for path in MODULES for name, lines in source(path).functions
    }

    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES} == {}


# Calls that leave the process, and the limit of each wait. Deduplication belongs to each
# capability: items and fences in batch processing, tokens and attempts in the outbox. The system's
# resolver limits the time of a name lookup.
DOORS = {
    "holdfast_review/git.py": "seconds",
    "holdfast/artifacts/s3_store.py": "read_timeout",
    "holdfast/channel/smtp.py": "settimeout",
    "holdfast/outbound/client.py": "timeout",
    "holdfast/outbound/guard.py": "getaddrinfo",
    "holdfast/outbound/pinned.py": "timeout",
}
WAYS_OUT = re.compile(
    r"import (smtplib|ssl|botocore|httpcore2|urllib\.request|http\.client)"
    r"|from (http\.client|botocore)"
    r"|create_connection\(|getaddrinfo\(|subprocess\.(run|Popen)\(|urlopen\("
)
# The simulator answers and does not call; the demo and the supervisor start their own workers.
OWN = ("holdfast_simulator/", "holdfast/demo/", "holdfast/engine/worker/supervisor.py")


@pytest.mark.req("E-17")
def test_nothing_leaves_but_by_a_door_that_bounds_the_wait() -> None:
    texts = {of(path): path.read_text() for path in MODULES}
    leaving = {
        name for name, text in texts.items() if WAYS_OUT.search(text) and not name.startswith(OWN)
    }

    assert leaving == set(DOORS)
    assert [name for name, bound in DOORS.items() if bound not in texts[name]] == []


# Modules outside holdfast/outbound that import a network library, with the reason. All other HTTP
# requests use the guarded client (holdfast/outbound/client.py).
NETWORK = frozenset(
    {"aiohttp", "boto3", "botocore", "ftplib", "h11", "http.client", "httpcore", "httpcore2"}
    | {"httpx", "httpx2", "pycurl", "requests", "smtplib", "socket", "telnetlib", "urllib.request"}
    | {"urllib3", "websockets", "xmlrpc.client"}
)
ALLOWED_NETWORK = {
    ("holdfast/artifacts/s3_store.py", "botocore"): "artifacts in S3; see docs/dependencies.md",
    ("holdfast/channel/smtp.py", "smtplib"): "mail is not HTTP; the guard chooses the address",
    ("holdfast/channel/smtp.py", "socket"): "connects to the address that the guard chose",
    ("holdfast/channel/address.py", "socket"): "reads the text of an address, opens nothing",
    ("holdfast/engine/classify.py", "socket"): "names an exception",
    ("holdfast/engine/worker/heartbeat.py", "socket"): "gethostname",
    ("holdfast/engine/worker/isolation.py", "socket"): "a pair between a worker and its children",
    ("holdfast/telemetry/health.py", "socket"): "serves probes, and a local socket of systemd",
    ("holdfast/telemetry/metrics.py", "socket"): "serves metrics",
    ("holdfast/api/server.py", "socket"): "serves the API",
    ("holdfast/client/transport.py", "httpx2"): "the client of the API, in other programs",
}


def network_imports(path: Path) -> set[str]:
    names = source(path).imports
    return {one for one in NETWORK if any(f"{name}.".startswith(f"{one}.") for name in names)}


@pytest.mark.req("E-17")
def test_one_client_makes_every_http_call() -> None:
    elsewhere = [
        path
        for path in MODULES
        if not of(path).startswith(("holdfast/outbound/", "holdfast_simulator/"))
    ]

    found = {(of(path), name) for path in elsewhere for name in network_imports(path)}

    assert found == set(ALLOWED_NETWORK)


def test_no_module_is_named_for_what_it_is_not() -> None:
    vague = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}

    assert [of(path) for path in MODULES if {path.stem, path.parent.name} & vague] == []


def test_sql_is_in_sql_files() -> None:
    begins = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE \w+|DELETE FROM|WITH \w+ AS)\b")
    found = [
        f"{of(path)}:{line}"
        for path in MODULES
        if CORE / "store" not in path.parents
        for line, text in source(path).strings
        if begins.match(text)
    ]

    assert found == []


def test_only_the_store_asks_which_database_it_is() -> None:
    asks = re.compile(r"dialect(\.name)?\s*(==|!=|is)\s|\bvendor\s*==")
    found = [
        of(path)
        for path in MODULES
        if CORE / "store" not in path.parents and asks.search(path.read_text())
    ]

    assert found == []


def test_every_statement_says_why_it_is_there() -> None:
    header = re.compile(r"^-- \w+ :(?:one|maybe|many|affected)\b.*$", re.M)
    headers = {of(path): header.findall(path.read_text()) for path in STATEMENTS}

    assert [name for name, found in headers.items() if not found] == []
    unexplained = [
        f"{name}: {one}"
        for name, found in headers.items()
        for one in found
        if not re.search(r" — \S", one)
    ]
    assert unexplained == []


# Vague words that the names of tests must not use. docs/conformance.md, which is published,
# consists of these names.
ODD_WORDS = re.compile(
    r"_(?:(?:who|whom)ever|(?:no|some|any|every)bodys?|told|tells?|stands?|stood|lives|hands|anew"
    r"|charged|comes?_back|given_up|goes?_on|go_on|mend(?:s|ed)?|strangers?|for_ever)(?=_|$)"
)


def test_the_names_of_tests_are_plain() -> None:
    files = sorted((*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "e2e").rglob("test_*.py")))
    odd = [
        f"{of(path)}: {name}"
        for path in files
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.M)
        if ODD_WORDS.search(name)
    ]

    assert odd == []


# -- documentation


SHAPES = {"section", "table", "rows"}
# The settings sections of extensions are documented with their extensions.
FIELDS = [field for field in dataclasses.fields(Settings) if "sections" not in field.metadata]
SECTIONS = [field for field in FIELDS if SHAPES & field.metadata.keys()]
PLAIN = [field.name for field in FIELDS if field not in SECTIONS]


def test_every_setting_is_documented_with_its_variable() -> None:
    page = (REFERENCE / "settings.md").read_text()
    rows = {name: f"| `{name}` | `HOLDFAST_{name.upper()}` |" for name in PLAIN}

    assert [name for name, row in rows.items() if row not in page] == []


@pytest.mark.parametrize("section", SECTIONS, ids=lambda field: field.name)
def test_every_key_of_a_section_is_documented(section: dataclasses.Field[object]) -> None:
    page = (REFERENCE / "settings.md").read_text()
    begins = re.compile(rf"`\[\[?{section.name}\b")
    part = next(part for part in page.split("\n### ") if begins.match(part))
    (kind,) = (section.metadata[name] for name in SHAPES & section.metadata.keys())

    assert [key.name for key in dataclasses.fields(kind) if f"`{key.name}`" not in part] == []


def test_every_command_is_documented() -> None:
    missing = [command for command in commands(cli, "holdfast") if f"`{command}" not in DOCS]

    assert missing == []


def commands(group: click.Group, prefix: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


def all_errors(kind: type = errors.HoldfastError) -> Iterator[type]:
    for child in kind.__subclasses__():
        if child.__module__ == "holdfast.errors":
            yield child
            yield from all_errors(child)


def test_every_error_is_documented() -> None:
    page = (REFERENCE / "errors.md").read_text()
    kinds = list(all_errors())
    names = {kind.__name__ for kind in kinds}
    classes = {kind.error_class for kind in kinds if issubclass(kind, errors.Failure)}

    assert names
    assert [name for name in sorted(names | classes) if f"`{name}`" not in page] == []


def event_names() -> set[str]:
    """The audit events that the engine or a migration writes."""
    sources = [
        *(CORE / "engine").rglob("*.py"),
        *MIGRATIONS,
    ]
    return {
        name
        for path in sources
        for name in re.findall(r"""["'](job\.[a-z_]+)["']""", path.read_text())
        if name != "job.sql"
    }


def test_every_audit_event_is_documented() -> None:
    page = (REFERENCE / "audit-events.md").read_text()

    assert {"job.enqueued", "job.deadlettered"} < event_names()
    assert [name for name in sorted(event_names()) if f"| `{name}` |" not in page] == []


def test_every_rule_of_the_database_is_documented() -> None:
    page = (REFERENCE / "constraints.md").read_text()
    text = "\n".join(path.read_text() for path in MIGRATIONS)
    rules = re.findall(
        r"CONSTRAINT (\w+) (?:UNIQUE|CHECK)|\{refuse (\w+) |UNIQUE INDEX (\w+)", text
    )
    names = {name for found in rules for name in found if name}

    assert "job_once_per_key" in names
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_the_readme_shows_the_quickstart_as_it_is() -> None:
    example = (ROOT / "examples" / "quickstart.py").read_text()

    assert f"```python\n{example}```" in (ROOT / "README.md").read_text()
    assert len(example.splitlines()) <= 22


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def pages() -> list[Path]:
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted(PACKAGES.glob("*/*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


def test_no_page_promises_more_than_we_keep() -> None:
    promise = re.compile(r"exactly[- ]once", re.I)
    promised = [
        f"{of(page)}: {line}"
        for page in pages()
        if "conformance" not in page.name
        for line in page.read_text().splitlines()
        if promise.search(line)
    ]

    assert promised == []


OTHER_PACKAGE = re.compile(r"pip install [\"']?holdfast(?![-\w])|(?<![-\w])holdfast\[")


def test_install_commands_name_our_distributions() -> None:
    """``holdfast`` on the package index is another project; ours is ``holdfast-jobs``."""
    texts = [*MODULES, *pages(), *ROOT.glob("examples/**/*.py"), ROOT / "Makefile"]

    assert [of(path) for path in texts if OTHER_PACKAGE.search(path.read_text())] == []
