"""`connectx plugins …`: install, list and remove plugins that are written in Java."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connectx.cli.common import FAILED, reporting_errors, show_table
from connectx.cli.output import print_safely
from connectx.plugins.java import installed as java_plugins

if TYPE_CHECKING:
    from connectx.plugins.java.installed import InstalledPlugin

plugins = typer.Typer(help="Install, list and remove plugins that are written in Java.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@plugins.command()
def install(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="group:artifact:version in Maven Central, or a folder, jar, zip or tar.gz."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Install a Java plugin into the user's cache, where new workers find it."""
    with reporting_errors():
        done = java_plugins.install(source)
    if as_json:
        print_safely(json.dumps(_as_json(done)))
        return
    show_table([{"class": one.class_name, "type": one.kind.value, "version": one.version} for one in done.plugins])
    print_safely(f"{done.name} is installed. New workers without plugin.path find it.")


@plugins.command("list")
def list_(as_json: Json = False) -> None:
    """List installed Java plugins, each compared with the checksums of its installation.

    The exit code is 1 if one has changed.
    """
    with reporting_errors():
        found = java_plugins.installed()
    if as_json:
        print_safely(json.dumps([_as_json(one) for one in found]))
    elif found:
        show_table([one.row() for one in found])
    else:
        print_safely("no Java plugins are installed")
    if any(one.problem for one in found):
        raise typer.Exit(FAILED)


@plugins.command()
def remove(name: Annotated[str, typer.Argument(metavar="NAME", help="As `connectx plugins list` shows it.")]) -> None:
    """Remove an installed Java plugin."""
    with reporting_errors():
        java_plugins.remove(name)
    print_safely(f"{name} is removed. Workers that run keep what they have loaded.")


def _as_json(one: InstalledPlugin) -> dict[str, Any]:
    return {
        "name": one.name,
        "source": one.source,
        "folder": str(one.folder),
        "problem": one.problem,
        "plugins": [
            {"class": plugin.class_name, "type": plugin.kind.value, "version": plugin.version} for plugin in one.plugins
        ],
    }
