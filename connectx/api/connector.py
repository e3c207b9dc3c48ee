"""A connector of a cluster, for its user: Kafka Connect's verbs, its state and its tasks.

Uses REST alone, so it works with an embedded cluster and with a Kafka Connect cluster. Each verb is one
request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from connectx.api.misspelled_keys import warn_of_misspelled
from connectx.core.replies import Config
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import ConfigError
from connectx.errors.rest import ConnectorFailedError, ConnectorNotFoundError, WaitTimeoutError
from connectx.history.wording import plural
from connectx.model.configdef import ConfigInfos
from connectx.model.ids import TaskId
from connectx.model.states import LOST, State
from connectx.rest.bodies import CommittedOffset
from connectx.rest.client import RestClient
from connectx.views import (
    Listed,
    html_card,
    html_details,
    html_table,
    masked,
    masked_text,
    shown_state,
    text_facts,
    text_table,
)

WorkerName = Callable[[str], str]
"""Name of the worker with an id (host:port), for text forms."""

Lost = Callable[[str], "str | None"]
"""Why the work of a worker with an id (host:port) is lost; None when the worker is not known to be dead."""

NotesOf = Callable[[str], Mapping[str, object]]
"""What the state of a connector does not show: `connectx.api.notes`."""

_POLL_S = 0.1
_FAILED_FOR_S = 3.0
"""A failure that lasts this long is not one that a restart or a rebalance is just repairing."""


class Connector:
    """One connector of a cluster. Get it by `cluster["name"]`, which sends no request until a verb is called.

    Every verb raises `ConnectorNotFoundError` when there is no such connector, `RebalancePendingError` when the group
    is not stable in time, `WorkersUnreachableError` when no worker answers, and `RestError` for other refusals.
    """

    def __init__(
        self,
        name: str,
        client: RestClient,
        *,
        worker_name: WorkerName = str,
        lost: Lost = lambda worker_id: None,
        notes: NotesOf = lambda connector: {},
    ) -> None:
        self.name = name
        self._client = client
        self._worker_name = worker_name
        self._lost = lost
        self._notes = notes

    def status(self) -> dict[str, Any]:
        """State of the connector and its tasks, in the shape of Kafka Connect's REST.

        It differs from REST in three ways: a connector that no worker has started yet is UNASSIGNED (Kafka Connect
        answers 404), and work that is RUNNING or PAUSED on a dead worker of this cluster is LOST, with a
        sentence under the key `lost`: what happened, and the latest time at which another worker runs it. The connector
        has `waits` (why a source has nothing to read), `retries`, `skipped` and `dead_letters` (numbers) if any.
        """
        return self._status(self._client)

    @property
    def state(self) -> str:
        """State of the connector itself. Its tasks have separate states."""
        return str(self.status()["connector"]["state"])

    @property
    def tasks(self) -> Listed[Task]:
        """The tasks with their present states, by number."""
        return self._tasks(self.status())

    @property
    def type(self) -> str:
        """source, sink or unknown."""
        return str(self._client.info(self.name)["type"])

    @property
    def config(self) -> ConnectorConfig:
        """The present configuration: a mapping, with `update` and `replace` to change it."""
        return ConnectorConfig(self.name, self._client.config(self.name), self._client)

    @property
    def offsets(self) -> ConnectorOffsets:
        """Committed offsets: get, alter, reset (KIP-875)."""
        return ConnectorOffsets(self.name, self._client)

    def topics(self) -> list[str]:
        """Topics that the tasks have used since the last reset (KIP-558), sorted."""
        return self._client.topics(self.name)

    def validate(self, changes: Config | None = None) -> ConfigInfos:
        """Check the configuration, with `changes` merged into it, without applying it; the shape is that of REST."""
        return self._client.validate(_merged(self._client.config(self.name), changes or {}))

    def pause(self) -> None:
        """Ask for PAUSED: tasks stay assigned and do nothing."""
        self._client.pause(self.name)

    def resume(self) -> None:
        """Ask for RUNNING, after a pause or a stop."""
        self._client.resume(self.name)

    def stop(self) -> None:
        """Ask for STOPPED: tasks end, and offsets can be altered (KIP-875)."""
        self._client.stop(self.name)

    def restart(self, *, include_tasks: bool = False, only_failed: bool = False) -> None:
        """Restart the connector, and its tasks when asked to (KIP-745)."""
        self._client.restart(self.name, include_tasks=include_tasks, only_failed=only_failed)

    def delete(self) -> None:
        """Delete the connector; its topics and offsets stay."""
        self._client.delete(self.name)

    def reset_topics(self) -> None:
        """Forget which topics were used."""
        self._client.reset_topics(self.name)

    def wait(self, state: str = "RUNNING", timeout: float = 60.0) -> Connector:
        """Wait until the connector and all its tasks are in `state`, at most `timeout` seconds; returns itself.

        All configured tasks count, also those without a status because no worker has started them yet. RUNNING
        needs at least one task, STOPPED needs none, FAILED needs one failure.

        Raises:
            ConnectorFailedError: it or a task is FAILED instead, for three seconds or at the timeout; has the trace.
            WaitTimeoutError: `state` was not reached in time.
            ConfigError: there is no such state.
        """
        wanted = _known_state(state)
        begin = failed_since = time.monotonic()
        failures: list[_Failure] = []
        while True:
            status = self.status()
            if _is_in(status, wanted) and (wanted is State.FAILED or self._has_all_tasks(status)):
                return self
            now = time.monotonic()
            if (found := _failures(status)) != failures:
                failures, failed_since = found, now
            if failures and (now - failed_since >= _FAILED_FOR_S or now - begin >= timeout):
                raise self._failed(wanted, failures)
            if now - begin >= timeout:
                raise WaitTimeoutError(
                    f"Connector {self.name} is not {wanted} after {timeout:g} s: {_summary(status)}.",
                    next_step="Wait longer with timeout=, or see cluster.events for what happened.",
                )
            time.sleep(min(_POLL_S, timeout))

    def _has_all_tasks(self, status: Mapping[str, Any]) -> bool:
        """A task that no worker has started yet is not in the status."""
        return len(status["tasks"]) >= len(self._client.info(self.name)["tasks"])

    def _failed(self, wanted: State, failures: list[_Failure]) -> ConnectorFailedError:
        who, worker_id, trace = failures[0]
        cause = masked_text(_last_line(trace)) or "no trace"
        return ConnectorFailedError(
            f"Connector {self.name} is not {wanted}: {who} is FAILED on {self._worker_name(worker_id)}: {cause}",
            trace,
            next_step="Repair the cause, then restart(include_tasks=True, only_failed=True).",
        )

    def row(self) -> dict[str, object]:
        """One line of a table of connectors."""
        try:
            status = self._status(self._client.impatient())
        except ConnectxError as error:
            return {"connector": self.name, "type": "", "state": error.message, "worker": "", "tasks": ""}
        return {
            "connector": self.name,
            "type": status["type"],
            "state": shown_state(status["connector"]["state"]) + _noted(status["connector"]),
            "worker": self._worker(status["connector"]),
            "tasks": _counts(status),
        }

    def _status(self, client: RestClient) -> dict[str, Any]:
        status = _status(client, self.name)
        for part in (status["connector"], *status["tasks"]):
            if part["state"] in (State.RUNNING, State.PAUSED) and (lost := self._lost(part["worker_id"])):
                part |= {"state": LOST, "lost": lost}
        status["connector"] |= self._notes(self.name)
        return status

    def _tasks(self, status: Mapping[str, Any]) -> Listed[Task]:
        tasks = [
            Task(TaskId(self.name, task["id"]), task, self._worker(task), self._client) for task in status["tasks"]
        ]
        return Listed(tasks, f"tasks of {self.name}")

    def _worker(self, state: Mapping[str, Any]) -> str:
        return self._worker_name(state["worker_id"]) if state["worker_id"] else ""

    def __repr__(self) -> str:
        try:
            status = self._status(self._client.impatient())
        except ConnectxError as error:
            return f"Connector {self.name}: {error.message}"
        worker = self._worker(status["connector"])
        state = shown_state(status["connector"]["state"]) + _noted(status["connector"])
        head = f"Connector {self.name} ({status['type']}): {state}"
        lines = [f"{head} on {worker}" if worker else head]
        if reason := _why(status["connector"]):
            lines.append(reason)
        lines.append(text_table([task.row() for task in self._tasks(status)]) or "no tasks")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        client = self._client.impatient()
        try:
            status, config = self._status(client), client.config(self.name)
        except ConnectxError as error:
            return html_card(f"Connector {self.name}", {"": error.message})
        tasks = self._tasks(status)
        facts = {
            "type": status["type"],
            "class": config.get("connector.class"),
            "state": shown_state(status["connector"]["state"]),
            "worker": self._worker(status["connector"]),
            **({"why": why} if (why := _why(status["connector"])) else {}),
        }
        traces = [("connector", status["connector"].get("trace", ""))]
        traces += [(f"task {task.id.task}", task.trace) for task in tasks]
        return html_card(
            f"Connector {self.name}",
            facts,
            html_table([task.row() for task in tasks]),
            *(html_details(f"trace of {who}", masked_text(trace)) for who, trace in traces if trace),
            html_details("configuration", text_facts(masked(config))),
        )


class Task:
    """One task as it was at the time of the request: `id`, `state`, `worker`, `trace`, and `why` in one line.

    Get it by `connector.tasks`.
    """

    def __init__(self, task: TaskId, status: Mapping[str, Any], worker: str, client: RestClient) -> None:
        self.id = task
        self.state = str(status["state"])
        self.worker = worker
        self.trace = str(status.get("trace", ""))
        self.why = _why(status)
        self._client = client

    def restart(self) -> None:
        """Restart this task; errors as with the connector's verbs."""
        self._client.restart_task(self.id.connector, self.id.task)

    def row(self) -> dict[str, object]:
        """One line of a table of tasks."""
        return {"task": self.id.task, "state": shown_state(self.state), "worker": self.worker, "why": self.why}

    def __repr__(self) -> str:
        why = f": {self.why}" if self.why else ""
        place = f" on {self.worker}" if self.worker else ""
        return f"Task {self.id}: {shown_state(self.state)}{place}{why}"

    def _repr_html_(self) -> str:
        details = html_details("trace", masked_text(self.trace)) if self.trace else ""
        facts = {"state": shown_state(self.state), "worker": self.worker, **({"why": self.why} if self.why else {})}
        return html_card(f"Task {self.id}", facts, details)


class ConnectorConfig(Mapping[str, "str | None"]):
    """A connector's configuration at the time of the request. Text forms hide secrets, indexing does not."""

    def __init__(self, connector: str, values: Config, client: RestClient) -> None:
        self._connector = connector
        self._values = dict(values)
        self._client = client

    def update(self, changes: Config) -> None:
        """Change some keys, None removes one (KIP-477); the connector restarts with the result.

        Raises:
            ConfigRejectedError: the result is invalid; has all messages. Nothing was changed.
        """
        self._values = dict(self._client.patch_config(self._connector, changes)["config"] or {})
        warn_of_misspelled(self._client, self._connector, self._values, level=2)

    def replace(self, values: Config) -> None:
        """Use these values instead of all others; errors as with `update`."""
        self._values = dict(self._client.put_config(self._connector, values)["config"] or {})
        warn_of_misspelled(self._client, self._connector, self._values, level=2)

    def __getitem__(self, key: str) -> str | None:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return text_facts(masked(self._values))

    def _repr_html_(self) -> str:
        return html_card(f"Configuration of {self._connector}", masked(self._values))


class ConnectorOffsets:
    """Committed offsets of a connector (KIP-875). Source offsets by source partition, or a sink group's by topic."""

    def __init__(self, connector: str, client: RestClient) -> None:
        self._connector = connector
        self._client = client

    def get(self) -> list[CommittedOffset]:
        """[{"partition": {...}, "offset": {...}}], as of the last commit."""
        return self._client.offsets(self._connector)

    def alter(self, offsets: Sequence[Mapping[str, Any]]) -> str:
        """Set offsets of a STOPPED connector, in the shape of `get`; None as offset deletes that of the partition.

        Returns the worker's message. RestError when the connector is not STOPPED, or an offset is not valid.
        """
        return self._client.alter_offsets(self._connector, offsets)

    def reset(self) -> str:
        """Delete all offsets of a STOPPED connector; returns the worker's message, errors as with `alter`."""
        return self._client.reset_offsets(self._connector)

    def __repr__(self) -> str:
        return self._form(text_table, str)

    def _repr_html_(self) -> str:
        title = f"Offsets of {self._connector}"
        return self._form(
            lambda rows: html_card(title, {}, html_table(rows)) if rows else "",
            lambda message: html_card(title, {"": message.removeprefix(f"{title}: ")}),
        )

    def _form(self, table: Callable[[Sequence[Mapping[str, object]]], str], text: Callable[[str], str]) -> str:
        try:
            offsets = self._client.impatient().offsets(self._connector)
        except ConnectxError as error:
            return text(f"Offsets of {self._connector}: {error.message}")
        return table(offsets) or text(f"Offsets of {self._connector}: none yet")


_Failure = tuple[str, str, str]
"""Who, on which worker, with which trace."""


def _status(client: RestClient, connector: str) -> dict[str, Any]:
    try:
        return {**client.status(connector)}
    except ConnectorNotFoundError:
        info = client.info(connector)
        state = {"state": State.UNASSIGNED.value, "worker_id": ""}
        return {"name": connector, "connector": state, "tasks": [], "type": info["type"]}


def _is_in(status: Mapping[str, Any], wanted: State) -> bool:
    tasks = [task["state"] for task in status["tasks"]]
    states = [status["connector"]["state"], *tasks]
    if wanted is State.FAILED:
        return State.FAILED in states
    if wanted is State.STOPPED:
        return states == [State.STOPPED]
    return all(state == wanted for state in states) and (bool(tasks) or wanted is not State.RUNNING)


def _known_state(name: str) -> State:
    try:
        return State(name)
    except ValueError as error:
        raise ConfigError([f"There is no state {name}. States are {', '.join(State)}."]) from error


def _failures(status: Mapping[str, Any]) -> list[_Failure]:
    found = [("the connector", status["connector"])]
    found += [(f"task {task['id']}", task) for task in status["tasks"]]
    return [(who, at["worker_id"], at.get("trace", "")) for who, at in found if at["state"] == State.FAILED]


def _counts(status: Mapping[str, Any]) -> str:
    states = [task["state"] for task in status["tasks"]]
    return ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "none"


def _summary(status: Mapping[str, Any]) -> str:
    head = f"the connector is {status['connector']['state']}"
    return f"{head}, its tasks: {_counts(status)}{_noted(status['connector'])}"


def _merged(config: Config, changes: Config) -> dict[str, str | None]:
    return {key: value for key, value in {**config, **changes}.items() if changes.get(key, "") is not None}


def _why(status: Mapping[str, Any]) -> str:
    """Why something FAILED or is LOST, in one line; empty otherwise."""
    return str(status.get("lost") or masked_text(_last_line(status.get("trace", ""))))


def _noted(status: Mapping[str, Any]) -> str:
    """Why it waits, what it tried again and what it skipped, to follow its state; empty when there is nothing."""
    skipped, letters = status.get("skipped", 0), status.get("dead_letters", 0)
    counts = f"{plural(skipped, 'record')} skipped" if skipped else ""
    counts += f", {letters:,} in the dead letter queue" if letters else ""
    waits = f"waits: {str(status['waits']).rstrip('.')}" if status.get("waits") else ""
    retries = f"{retried:,} {'retry' if retried == 1 else 'retries'}" if (retried := status.get("retries", 0)) else ""
    found = "; ".join(filter(None, (waits, retries, counts)))
    return f" ({found})" if found else ""


def _last_line(trace: str) -> str:
    """The last line of a Python trace, or the first line of a Java trace."""
    lines = [line.strip() for line in trace.strip().splitlines()]
    if not lines:
        return ""
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]
