"""Shared parts of commands: the application, the settings, and output."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.actor import Role, read_actor
from holdfast.cli.format import age, moment
from holdfast.cli.next_command import complete_commands
from holdfast.clock import write_instant
from holdfast.config import LOG_LEVELS, Settings
from holdfast.errors import ConfigError, InvalidArgument, StoreDown
from holdfast.ids import read_named_id, read_uuid
from holdfast.operate.authorization import OperatorContext
from holdfast.operate.page import LONGEST_PAGE, Page
from holdfast.operate.reader import Reader, missing_file
from holdfast.operate.short_ids import IdSpace, resolve_id, short_ids
from holdfast.visible import visible

if TYPE_CHECKING:
    # Imported by the commands that need an application.
    from holdfast.app import Holdfast
    from holdfast.operate.operator import Operator

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

verbose_option = click.option("-v", "--verbose", is_flag=True, help="Print every check.")


def read_actor_option(_ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Validate an actor option. An invalid actor is a usage error."""
    try:
        read_actor(value)
    except InvalidArgument as exc:
        raise click.BadParameter(f"it {exc.fields['actor']}", param=param) from None
    return value


def read_instant_option(
    _ctx: click.Context, param: click.Parameter, value: str | None
) -> datetime | None:
    """Parse a time in ISO 8601. One without a time zone is in UTC."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        says = f"{value[:40]!r} is not a timestamp such as 2026-03-02T08:00:00Z"
        raise click.BadParameter(says, param=param) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


actor_option = click.option(
    "--actor",
    default="user:cli",
    show_default=True,
    callback=read_actor_option,
    help="Actor recorded in the audit, like user:42.",
)
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def operator_options(command: F) -> F:
    """Options for the actor, the role and the tenant."""
    role = click.option(
        "--role",
        type=click.Choice([role.value for role in Role]),
        default=Role.ADMIN.value,
        show_default=True,
        help="Role of the actor; anyone with database access may choose any.",
    )
    org = click.option("--org", "org_id", type=ShortId("tenants"), help="Act for this tenant only.")
    return actor_option(role(org(command)))


class Concurrency(click.ParamType[int]):
    """A number of threads, or ``auto``: by the processors that the process may use."""

    name = "integer|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "auto":
            from holdfast.operate.processes import auto_concurrency

            return auto_concurrency()
        found: int = click.IntRange(1, 1000).convert(value, param, ctx)
        return found


concurrency_option = click.option(
    "--concurrency",
    default=10,
    show_default=True,
    type=Concurrency(),
    help="Maximum number of concurrent sync handlers, or auto.",
)
async_concurrency_option = click.option(
    "--async-concurrency",
    default=200,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Maximum number of concurrent async handlers.",
)
log_level_option = click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    help="Minimum log level.  [default: the setting log_level]",
)


def settings_of(ctx: click.Context) -> Settings:
    return Settings.load(db=ctx.obj["db"])


def app_of(ctx: click.Context, *, required: bool, creates: bool | None = None) -> Holdfast:
    """The application named by --app, HOLDFAST_APP or holdfast.toml, on the chosen database.

    Only a command that *creates* may create a database file; by default one that needs an
    application.
    """
    found = _find_app(ctx, required=required)
    if not (required if creates is None else creates):
        _check_file(found.settings)
    return found


def reader_of(ctx: click.Context) -> Reader | Holdfast:
    """The chosen database for reading; the application, if one is named, knows where it is."""
    settings = settings_of(ctx)
    if ctx.obj["app"] or settings.app:
        return app_of(ctx, required=False)
    _check_file(settings)
    return Reader(settings)


def context_of(found: Reader | Holdfast) -> OperatorContext:
    """The context of an admin, as :func:`operator_of` has it."""
    return found.context() if isinstance(found, Reader) else operator_of(found).context


def _check_file(settings: Settings) -> None:
    missing = missing_file(settings)
    if missing is not None:
        then = "Create it: holdfast migrate."
        if not os.path.isdir(os.path.dirname(missing)):
            then = "Its folder does not exist. Check the path and its permissions."
        raise StoreDown(
            f"There is no database {missing}. {then} Or name another one: --db URL, HOLDFAST_DB or"
            " holdfast.toml."
        )


def _find_app(ctx: click.Context, *, required: bool) -> Holdfast:
    from holdfast.app import Holdfast
    from holdfast.tenant import with_default_org

    settings = settings_of(ctx)
    place = ctx.obj["app"] or settings.app
    if not place:
        if required:
            raise ConfigError(
                "No application given. Name the module that declares the jobs: holdfast --app"
                " package.module:hf …"
            )
        return Holdfast(settings=settings)
    found = _load(place)
    if ctx.obj["db"] is not None or "HOLDFAST_DB" in os.environ:
        found.settings = with_default_org(
            replace(found.settings, db=settings.db), always=found.has_default_tenant
        )
    return found


def _load(place: str) -> Holdfast:
    from holdfast.app import Holdfast

    module, _, name = place.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name or "hf")
    except ModuleNotFoundError as exc:
        raise ConfigError(f"--app {place}: no module named {exc.name!r} from here.") from exc
    except AttributeError as exc:
        raise ConfigError(f"--app {place}: {module} has no {name or 'hf'!r}.") from exc
    if not isinstance(found, Holdfast):
        raise ConfigError(
            f"--app {place}: {name or 'hf'!r} is a {type(found).__name__}, not a Holdfast."
        )
    return found


def operator_of(
    hf: Holdfast, actor: str = "user:cli", role: str = "admin", org_id: str | None = None
) -> Operator:
    """The operator API for the actor named by :func:`operator_options`.

    Commands without these options act as an admin: the shell user has the database anyway.
    """
    try:
        return hf.operate(actor=actor, role=role, org_id=org_id)
    except InvalidArgument as exc:
        (named, problem), *_ = exc.fields.items()
        option = {"org_id": "--org"}.get(named, f"--{named}")
        raise click.BadParameter(problem, param_hint=option) from exc


def id_of(text: str, where: str) -> str:
    """An id in its stored form. Anything else is a usage error of the argument *where*."""
    try:
        return read_uuid(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint=where) from exc


class ShortId(click.ParamType[str]):
    """An id or a unique prefix of one, resolved by the database. A tenant may also be named.

    The ids are those of a noun of the operator API, or of an extension.
    """

    name = "id"

    def __init__(self, noun: str | IdSpace) -> None:
        self.noun = noun

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return read_named_id(value) if self.noun == "tenants" else read_uuid(value)
        except ValueError:
            pass
        if ctx is None:
            self.fail("must be a full id", param, ctx)
        with app_of(ctx, required=False) as hf:
            try:
                operator = operator_of(hf)
                return resolve_id(operator.context, _space_of(operator, self.noun), value)
            except InvalidArgument as exc:
                self.fail(exc.fields["id"], param, ctx)


def _space_of(operator: Operator, noun: str | IdSpace) -> IdSpace:
    if isinstance(noun, IdSpace):
        return noun
    space: IdSpace = getattr(operator, noun).id_space
    return space


def short_id_argument(name: str, noun: str | IdSpace) -> Callable[[F], F]:
    """An argument that takes an id of a noun or of an extension's rows, or a prefix of one."""
    return click.argument(name, type=ShortId(noun))


def shorten(operator: Operator, noun: str, ids: Iterable[str]) -> dict[str, str]:
    """The shortest unique prefix of each id of *noun*."""
    return short_ids(operator.context, getattr(operator, noun).id_space, ids)


def every_page(verb: Callable[..., Page[T]]) -> Iterator[T]:
    """Iterate over all rows of a listing by name, page by page."""
    page = verb(limit=LONGEST_PAGE)
    yield from page
    while page.next is not None:
        page = verb(limit=LONGEST_PAGE, after=page.next)
        yield from page


def print_json(value: Any) -> None:
    """Print *value* as JSON. Control characters are escaped to protect the terminal."""
    text = json.dumps(value, indent=2, default=_plain, ensure_ascii=False)
    click.echo("".join(letter if letter.isprintable() else _escape(letter) for letter in text))


def _escape(letter: str) -> str:
    return "\n" if letter == "\n" else json.dumps(letter)[1:-1]


def print_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    ids: Mapping[str, str] | None = None,
    empty: str = "",
) -> None:
    """Print aligned columns, named as in JSON.

    Timestamps are printed as ages, and ids as *ids* shortens them. Without rows it prints *empty*.
    """
    if not rows and empty:
        click.echo(complete_commands(click.get_current_context(), empty))
        return
    short = ids or {}
    cells = [[_cell(row.get(column), short) for column in columns] for row in rows]
    widths = [
        max(len(column), *(len(line[at]) for line in cells), 0) if cells else len(column)
        for at, column in enumerate(columns)
    ]
    for line in [list(columns), *cells]:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo(text.rstrip())


def print_fields(fields: Mapping[str, Any], *, title: str = "") -> None:
    """Print a title and one line per field with a value; nothing if no field has one."""
    shown = {name: value for name, value in fields.items() if value not in (None, "", (), [], {})}
    if not shown:
        return
    if title:
        click.echo(f"\n{title}")
    width = max(len(name) for name in shown) + 2
    for name, value in shown.items():
        text = moment(value) if isinstance(value, datetime) else one_line(value)
        click.echo("  " + name.ljust(width) + text)


def _cell(value: Any, ids: Mapping[str, str]) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return age(value)
    return ids.get(value) or one_line(value) if isinstance(value, str) else one_line(value)


def one_line(value: Any) -> str:
    """*value* as one line of text without control characters."""
    return visible(str(value))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return write_instant(value)
    return str(value)
