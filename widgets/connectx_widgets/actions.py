"""What a panel may do: each action is one public call, named by the page and written out for the reader. Pure to parse.

Nothing else can be called from a page: what is not in these tables is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from connectx.errors.base import ConnectxError
from connectx.values import Value
from connectx_widgets.peeks import LETTERS
from connectx_widgets.questions import with_secrets

if TYPE_CHECKING:
    from connectx.api.cluster import Cluster
    from connectx.api.connect_cluster import ConnectCluster

WORKER_VERBS = ("stop", "kill", "pause", "resume", "stall", "partition", "heal")
CONNECTOR_VERBS = ("pause", "resume", "stop", "delete")


class Call(Value):
    """One call: as a reader would type it, and what makes it."""

    text: str
    run: Callable[[], object]


class UnknownActionError(ConnectxError):
    """A page asked for something that panels do not do."""

    retriable = False


class ReadOnlyError(ConnectxError):
    """A page asked for a change, and its panel only shows."""

    retriable = False

    def __init__(self) -> None:
        super().__init__("This panel is read-only.", next_step="Open it without --read-only to change something.")


def parse(cluster: ConnectCluster, message: Mapping[str, Any]) -> Call:
    """The call that a page's message asks for: `{"verb": ..., "worker" | "connector": name, ...}`.

    Raises:
        UnknownActionError: there is no such action; nothing was done.
    """
    breaks = "worker" in message or message.get("verb") == "add_worker"
    if breaks and not cluster.has_faults:
        raise UnknownActionError(
            "The workers of this cluster were not started here, so that they cannot be broken from here.",
            next_step="Use cx.Cluster() for experiments.",
        )
    match message:
        case {"verb": "add_worker"}:
            return Call("cluster.add_worker()", cast("Cluster", cluster).add_worker)
        case {"verb": str(verb), "worker": str(worker)} if verb in WORKER_VERBS:
            return Call(f'cluster.{verb}("{worker}")', partial(getattr(cluster, verb), worker))
        case {"verb": "restart", "connector": str(name), "failed": bool(failed)}:
            arguments = "include_tasks=True, only_failed=True" if failed else "include_tasks=True"
            return Call(
                f'cluster["{name}"].restart({arguments})',
                partial(cluster[name].restart, include_tasks=True, only_failed=failed),
            )
        case {"verb": "restart_task", "connector": str(name), "task": int(task)}:
            return Call(f'cluster["{name}"].tasks[{task}].restart()', partial(_restart_task, cluster, name, task))
        case {"verb": "update", "connector": str(name), "config": dict(config)}:
            return Call(f'cluster["{name}"].config.replace(config)', partial(_replace, cluster, name, config))
        case {"verb": "create", "connector": str(name), "config": dict(config)}:
            return Call(f'cluster.create("{name}", config)', partial(cluster.create, name, config))
        case {"verb": "send_again", "connector": str(name), "partition": int(partition), "offset": int(offset)}:
            value = message.get("value")
            correct = "" if value is None else "lambda value: corrected"
            return Call(
                f'cluster.dead_letters("{name}").only({partition}, {offset}).send_again({correct})',
                partial(_send_again, cluster, name, partition, offset, value),
            )
        case {"verb": str(verb), "connector": str(name)} if verb in CONNECTOR_VERBS:
            return Call(f'cluster["{name}"].{verb}()', getattr(cluster[name], verb))
    raise UnknownActionError(
        f"The panel asked for {message.get('verb')!r}, which panels cannot do.",
        next_step="Run the cell that shows the panel again.",
    )


def describe_action(message: Mapping[str, Any]) -> str:
    """What a call does to its connector, in a word or two."""
    match message:
        case {"verb": "restart", "failed": True}:
            return "restart failed"
        case {"verb": "restart_task", "task": task}:
            return f"restart of task {task}"
        case {"verb": "update"}:
            return "configured"
        case {"verb": "create"}:
            return "created"
        case {"verb": "send_again"}:
            return "sent again"
        case _:
            return str(message.get("verb"))


def _restart_task(cluster: ConnectCluster, name: str, task: int) -> None:
    cluster[name].tasks[task].restart()


def _send_again(cluster: ConnectCluster, sink: str, partition: int, offset: int, value: str | None) -> None:
    letter = cluster.dead_letters(sink, LETTERS).only(partition, offset)
    letter.send_again(None if value is None else lambda _: value.encode())


def _replace(cluster: ConnectCluster, name: str, config: Mapping[str, str | None]) -> None:
    running = cluster[name].config
    running.replace(with_secrets(running, config))
