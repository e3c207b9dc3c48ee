"""The command `connectx`: its subcommands and exit codes.

An error goes to stderr as one sentence with a next step. The exit code is 1, or 2 for wrong usage."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from connectx import __version__
from connectx.cli import clusters
from connectx.cli.common import FAILED, INTERRUPTED, cluster_command, reporting_errors
from connectx.cli.connectors import connectors, offsets, restart
from connectx.cli.local import doctor, registry, setup, ui
from connectx.cli.output import print_safely
from connectx.cli.plugins import plugins
from connectx.cli.replay import replay
from connectx.cli.watch import watch
from connectx.cli.worker import worker

__all__ = ["INTERRUPTED", "app", "main"]

app = typer.Typer(
    help="Kafka Connect's distributed runtime in Python, with its data pipeline on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def version() -> None:
    """Print the version."""
    print_safely(__version__)


@app.command()
def demo(
    report: Annotated[Path, typer.Option(help="HTML page to write, with timeline, stories and verdict.")] = Path(
        "flights-demo.html"
    ),
    rows: Annotated[int | None, typer.Option(min=1000, help="Number of flights; by default all 336,776.")] = None,
) -> None:
    """Move real data through a real cluster while workers are killed, and check that every row arrived once.

    Flights of 2013 go from a CSV file through Kafka into PostgreSQL, exactly once. The last line is JSON. The exit
    code is 1 if a row was lost or duplicated, or if a kill hit no running task.
    """
    from connectx.demo.interrupts import terminable
    from connectx.demo.job import run
    from connectx.demo.screen import Screen

    logging.getLogger().addHandler(logging.NullHandler())  # what went wrong comes as an error or in the report
    with reporting_errors(), terminable():
        outcome = run(Screen(), report, rows)
    print_safely(f"Report: {report}")
    print_safely(json.dumps(outcome.line()))
    if not outcome.is_good:
        raise typer.Exit(1)


app.command()(worker)
app.command()(registry)
app.command()(doctor)
app.command()(setup)
app.command()(replay)
clusters.add_to(app)
cluster_command(app, "restart")(restart)
cluster_command(app)(ui)
cluster_command(app)(watch)
app.add_typer(connectors, name="connectors")
app.add_typer(offsets, name="offsets")
app.add_typer(plugins, name="plugins")


def main() -> None:
    """Run the command."""
    try:
        app()
    except Exception as error:  # report any error as one sentence, without a stack trace
        if os.environ.get("CONNECTX_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        print_safely(
            f"connectx has failed ({what}). Please report it; CONNECTX_TRACEBACK=1 shows where it was.", err=True
        )
        sys.exit(FAILED)
