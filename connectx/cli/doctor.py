"""`connectx doctor`: report what works on this machine, what does not, and the next step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from connectx.cli.common import FAILED, read_properties, reporting_errors


def doctor(
    bootstrap_servers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Your own Kafka; by default the embedded one is checked.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE.properties", help="Worker settings, such as logins.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report what works on this machine and with this Kafka, what does not and why, and what to type next.

    It starts and changes nothing. The exit code is 1 when a cluster cannot run.
    """
    from connectx.verify.doctor.doctor import doctor as check_up

    with reporting_errors():
        settings: dict[str, Any] = {} if file is None else read_properties(file)
        found = check_up(bootstrap_servers=bootstrap_servers, config=settings)
    typer.echo(json.dumps(found.as_json()) if as_json else repr(found))
    if not found.ok:
        raise typer.Exit(FAILED)
