"""What the commands share: how an error ends one, and how results are shown to people and to programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from connectx.errors import ConnectxError

FAILED = 1
INTERRUPTED = 130


@contextmanager
def told() -> Iterator[None]:
    """End the command with a sentence and an exit code instead of a stack trace."""
    try:
        yield
    except ConnectxError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted; everything that was started has been stopped.", err=True)
        raise typer.Exit(INTERRUPTED) from None
