"""What commands print: all of it goes through `print_safely`, which lets no text of others control the terminal."""

from __future__ import annotations

import typer

from connectx.views import visible


def print_safely(text: str = "", *, err: bool = False) -> None:
    """Print text and a line feed, with control characters made visible; `err`: to stderr."""
    typer.echo(visible(text), err=err)  # noqa: TID251 - the one place
