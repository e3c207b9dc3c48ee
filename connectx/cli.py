"""The command `connectx`: `connectx demo`, `connectx version`. Errors are one sentence with the next step."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from connectx import __version__
from connectx.errors import ConnectxError

app = typer.Typer(
    help="Kafka Connect's distributed runtime in Python, with its data pipeline on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

INTERRUPTED = 130


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def demo(
    report: Annotated[Path, typer.Option(help="HTML page to write: timeline, stories, verdict.")] = Path(
        "flights-demo.html"
    ),
    rows: Annotated[int | None, typer.Option(min=1000, help="How many flights; all 336,776 by default.")] = None,
) -> None:
    """Move real data through a real cluster, kill workers meanwhile, and check that every row arrived once.

    Flights of 2013 go from a CSV file through Kafka into PostgreSQL, exactly once. The last line is JSON. The exit
    code is 1 unless nothing was lost or duplicated and the kills hit running tasks.
    """
    from connectx.demo.interrupts import terminable
    from connectx.demo.job import run
    from connectx.demo.screen import screen_for

    logging.getLogger().addHandler(logging.NullHandler())  # what went wrong comes as an error or in the report
    with _told(), terminable():
        outcome = run(screen_for(), report, rows)
    typer.echo(f"Report: {report}")
    typer.echo(json.dumps(outcome.line()))
    if not outcome.is_good:
        raise typer.Exit(1)


@contextmanager
def _told() -> Iterator[None]:
    """End the command with a sentence and an exit code instead of a stack trace."""
    try:
        yield
    except ConnectxError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted; everything that was started has been stopped.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def main() -> None:
    """Run the command."""
    app()
