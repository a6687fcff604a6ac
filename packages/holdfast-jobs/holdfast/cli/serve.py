"""``holdfast serve``: the HTTP API and the console in one process."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.given import app_of


@click.command()
@click.option("--host", help="Address to listen on.  [default: the setting serve.host]")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="Port to listen on.  [default: the setting serve.port]",
)
@click.option("--dev", is_flag=True, help="Print a link that logs in once, on this machine only.")
@click.pass_context
def serve(ctx: click.Context, host: str | None, port: int | None, dev: bool) -> None:
    """Serve the HTTP API and the console.

    It listens on this machine only. Another address needs an API key first: holdfast keys create.
    Name the application with --app to enqueue its jobs.
    """
    from holdfast.api.server import Server

    with app_of(ctx, required=False, creates=True) as hf:
        given: dict[str, Any] = {"host": host, "port": port}
        server = Server(hf, is_dev=dev, **{k: v for k, v in given.items() if v is not None})
        server.run(on_started=lambda: click.echo("\n".join(server.greeting)))
