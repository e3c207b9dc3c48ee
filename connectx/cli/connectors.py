"""`connectx connectors …` and `connectx offsets …`: Kafka Connect's verbs, one request each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from connectx.api.connector import Connector
from connectx.cli.common import At, cluster_command, read_connector, read_json, show_table
from connectx.cli.output import print_safely
from connectx.errors.rest import CommandError
from connectx.model.states import State
from connectx.views import HIDDEN

if TYPE_CHECKING:
    from connectx.core.replies import Config
    from connectx.rest.bodies import CommittedOffset

connectors = typer.Typer(help="List, create, change, pause, stop and delete connectors.", no_args_is_help=True)
offsets = typer.Typer(help="Show, alter or reset the committed offsets of a connector (KIP-875).", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="JSON as in the REST API, or .properties; - reads stdin.")]
Wait = Annotated[float | None, typer.Option(min=0, help="Wait for the new state, at most this many seconds.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@cluster_command(connectors, "list")
def list_(at: At) -> None:
    """List connectors and their states."""
    found = at.cluster.connectors
    at.show([at.status(connector) for connector in found] if at.as_json else None, [one.row() for one in found])
    if not found and not at.as_json:
        print_safely("no connectors")


@cluster_command(connectors)
def show(at: At, name: Name) -> None:
    """Show state, tasks, failures and configuration of a connector."""
    connector = at.cluster[name]
    status, config = at.status(connector), at.shown(connector.config)
    if at.as_json:
        at.show({**status, "config": config})
        return
    show_table([connector.row()])
    show_table([task.row() for task in connector.tasks])
    for trace in dict.fromkeys(part.get("trace") for part in (status["connector"], *status["tasks"])):
        if trace:  # once, however many tasks have it
            print_safely(f"\n{trace}")
    print_safely()
    show_table([{"key": key, "value": value} for key, value in sorted(config.items())])


@cluster_command(connectors)
def create(
    at: At,
    file: File,
    name: Annotated[str | None, typer.Option(help="Name of the connector; overrides the name in the file.")] = None,
    state: Annotated[str | None, typer.Option(help="Initial state: RUNNING, PAUSED or STOPPED.")] = None,
    wait: Wait = None,
) -> None:
    """Create a connector."""
    own, config = read_connector(file)
    name = name or own
    if name is None:
        raise CommandError(f"{file} does not name the connector.", next_step="Give --name.")
    connector = at.cluster.create(
        name, {**_without_hidden(config, file), "name": name}, initial_state=state and state.upper()
    )
    _done(at, connector, f"{name} was created", wait, State((state or "RUNNING").upper()))


@cluster_command(connectors)
def update(
    at: At,
    name: Name,
    settings: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Keys to change.")] = None,
    unset: Annotated[list[str] | None, typer.Option(help="A key to remove; repeatable.")] = None,
    file: Annotated[str | None, typer.Option(help="Replace the whole configuration by that in this file.")] = None,
    wait: Wait = None,
) -> None:
    """Change some keys of a connector, or replace its whole configuration."""
    changes: dict[str, str | None] = dict.fromkeys(unset or ())
    for setting in settings or ():
        key, sign, value = setting.partition("=")
        if not sign:
            raise CommandError(f"{setting} is no KEY=VALUE.", next_step="To remove a key use --unset.")
        changes[key] = value
    if bool(changes) == (file is not None):
        raise CommandError("Give either KEY=VALUE and --unset, or --file.")
    connector = at.cluster[name]
    if file is None:
        connector.config.update(changes)
    else:
        config = at.revealed(read_connector(file)[1], connector.config)
        connector.config.replace({**_without_hidden(config, file), "name": name})
    _done(at, connector, f"{name} has a new configuration", wait, State.RUNNING)


@cluster_command(connectors)
def validate(at: At, file: File) -> None:
    """Validate a configuration without applying it. The exit code is 1 if it has errors."""
    name, config = read_connector(file)
    result = at.cluster.validate({**config, **({} if name is None else {"name": name})})
    values = [info["value"] for info in result["configs"]]
    rows = [{"key": value["name"], "problem": problem} for value in values for problem in value["errors"]]
    at.show(result, rows or "The configuration is valid.")
    if rows:
        raise typer.Exit(1)


@cluster_command(connectors)
def pause(at: At, name: Name, wait: Wait = None) -> None:
    """Pause a connector: its tasks stay assigned and idle."""
    connector = at.cluster[name]
    connector.pause()
    _done(at, connector, f"{name} pauses", wait, State.PAUSED)


@cluster_command(connectors)
def resume(at: At, name: Name, wait: Wait = None) -> None:
    """Resume a paused or stopped connector."""
    connector = at.cluster[name]
    connector.resume()
    _done(at, connector, f"{name} resumes", wait, State.RUNNING)


@cluster_command(connectors)
def stop(at: At, name: Name, wait: Wait = None) -> None:
    """Stop a connector: its tasks end, and its offsets can then be altered."""
    connector = at.cluster[name]
    connector.stop()
    _done(at, connector, f"{name} stops", wait, State.STOPPED)


@cluster_command(connectors)
def restart(
    at: At,
    name: Name,
    tasks: Annotated[bool, typer.Option("--tasks", help="Also restart its tasks.")] = False,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Restart only what has FAILED.")] = False,
    task: Annotated[int | None, typer.Option(min=0, help="Restart only this task.")] = None,
    wait: Wait = None,
) -> None:
    """Restart a connector, its tasks, or one task (KIP-745)."""
    connector = at.cluster[name]
    if task is not None:
        at.client.restart_task(name, task)
    else:
        connector.restart(include_tasks=tasks, only_failed=only_failed)
    _done(at, connector, f"{name if task is None else f'{name}-{task}'} restarts", wait, State.RUNNING)


@cluster_command(connectors)
def delete(at: At, name: Name, yes: Yes = False) -> None:
    """Delete a connector; its topics and offsets stay."""
    connector = at.cluster[name]
    status = connector.status()
    _confirm(yes, f"Delete {name} with {len(status['tasks'])} tasks")
    connector.delete()
    at.show({"deleted": name}, f"{name} was deleted.")


@cluster_command(connectors)
def tasks(at: At, name: Name) -> None:
    """List the tasks of a connector and their states."""
    connector = at.cluster[name]
    rows = [task.row() for task in connector.tasks]
    at.show(at.status(connector)["tasks"], rows or f"{name} has no tasks.")


@cluster_command(offsets, "get")
def get_offsets(at: At, name: Name) -> None:
    """Show committed offsets; with --json in the format of REST."""
    found = at.cluster[name].offsets.get()
    at.show({"offsets": found}, [_offset_row(entry) for entry in found] or f"{name} has committed nothing yet.")


@cluster_command(offsets, "alter")
def alter_offsets(at: At, name: Name, file: File) -> None:
    """Set offsets of a stopped connector, from JSON in the format of `offsets get --json`; null resets a partition."""
    content = read_json(file)
    entries: Any = content.get("offsets") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        raise CommandError(f'{file} has no list "offsets".', next_step="See `connectx offsets get NAME --json`.")
    message = at.cluster[name].offsets.alter(entries)
    at.show({"message": message}, message)


@cluster_command(offsets, "reset")
def reset_offsets(at: At, name: Name, yes: Yes = False) -> None:
    """Delete all offsets of a stopped connector. It starts again from the beginning."""
    _confirm(yes, f"Forget all offsets of {name}")
    message = at.cluster[name].offsets.reset()
    at.show({"message": message}, message)


def _done(at: At, connector: Connector, sentence: str, wait: float | None, state: State) -> None:
    if wait is not None:
        connector.wait(state, wait)
    at.show(at.status(connector) if at.as_json else None, f"{sentence}." if wait is None else f"{connector!r}")


def _without_hidden(config: Config, file: str) -> Config:
    """The configuration; CommandError where it has what is shown for a secret, which would become the secret."""
    hidden = [key for key, value in sorted(config.items()) if HIDDEN in (value or "")]
    if hidden:
        raise CommandError(
            f"{file} has {HIDDEN} where the value of {', '.join(hidden)} should be.",
            next_step="Write it there, or a placeholder of a config provider.",
        )
    return config


def _confirm(yes: bool, question: str) -> None:
    if not yes and not typer.confirm(f"{question}?", err=True):
        raise CommandError("Nothing was changed.")


def _offset_row(entry: CommittedOffset) -> dict[str, object]:
    return {**entry["partition"], **entry["offset"]}
