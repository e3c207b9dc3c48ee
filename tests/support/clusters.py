"""Whole clusters: their events, who runs what, and three workers that are well again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

import connectx as cx
from connectx.model.events import Event, EventKind
from tests.support.records import read_all
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from connectx.api.workers import Worker

MakeCluster = Callable[..., cx.Cluster]
_SHOWN = 80  # events of a task that has no owner


def events(cluster: cx.Cluster, kind: EventKind, since: int = 0, **wanted: Any) -> list[Event]:
    """Return events of a kind, with attributes or data as wanted."""

    def fits(event: Event) -> bool:
        given = {**event.data, "worker": event.worker, "connector": event.connector, "task": event.task}
        return event.kind is kind and all(given.get(key) == value for key, value in wanted.items())

    return [event for event in cluster.events.since(since) if fits(event)]


def of_task(task: str) -> dict[str, Any]:
    """Return what selects the events of a task `connector-number`."""
    connector, _, number = task.rpartition("-")
    return {"connector": connector, "task": int(number)}


def owner_of(cluster: cx.Cluster, task: str) -> Worker:
    """Return the healthy worker that runs a task, once the task is RUNNING there."""

    def runs_on(worker: Worker) -> bool:
        states = events(cluster, EventKind.TASK_STATE, worker=worker.name, **of_task(task))
        return worker.is_healthy and task in worker.tasks and bool(states) and states[-1].data["state"] == "RUNNING"

    def found() -> Worker | None:
        candidates = [worker for worker in cluster.workers if runs_on(worker)]
        return candidates[0] if len(candidates) == 1 else None

    try:
        owner = until(found, f"an owner of {task}")
    except AssertionError as error:
        history = [str(event) for event in cluster.events if _is_about(event, task)]
        raise AssertionError("\n".join([str(error), repr(cluster), *history[-_SHOWN:]])) from error
    assert owner is not None
    return owner


def _is_about(event: Event, task: str) -> bool:
    """Whether an event is one of the task, or one of the whole group."""
    return event.connector is None or {"connector": event.connector, "task": event.task} == of_task(task)


def steps_of(cluster: cx.Cluster, worker: str, task: str, since: int) -> list[str]:
    """Return the steps that a worker took for a task, in order, over all its instances."""
    found = events(cluster, EventKind.TASK_STEP, since, worker=worker, **of_task(task))
    return [event.data["step"] for event in found]


def explained_fence(cluster: cx.Cluster, worker: str, task: str, since: int) -> Event:
    """Return the event in which a worker names the producer that fenced its task, once it is known."""
    wanted = {"worker": worker, "known": True, **of_task(task)}
    return until(lambda: events(cluster, EventKind.FENCED_BY, since, **wanted), f"who fenced {task} of {worker}")[0]


def restore(cluster: cx.Cluster, workers: int = 3) -> None:
    """Resume, heal and add workers until so many run and agree; delete all connectors."""
    for worker in cluster.workers:
        if worker.state in ("paused", "stalled"):
            worker.resume()
        if worker.cut is not None and worker.state == "running":
            worker.heal()
    for connector in cluster.connectors:
        connector.delete()
    for _ in range(workers - len([worker for worker in cluster.workers if worker.state == "running"])):
        cluster.add_worker(WAIT_S)
    cluster.wait_stable(WAIT_S)


def netloc(worker: Worker) -> str:
    """Return host and port of a worker's REST server."""
    return urlsplit(worker.url).netloc


def ask(worker: Worker, method: str, path: str, body: Any = None) -> httpx.Response:
    """Send one REST request to this very worker."""
    return httpx.request(method, worker.url.rstrip("/") + path, json=body, timeout=120, trust_env=False)


def ask_settled(worker: Worker, method: str, path: str) -> httpx.Response:
    """Send it again while the group rebalances: work of a worker that was killed before may move at any moment."""

    def answer() -> httpx.Response | None:
        given = ask(worker, method, path)
        return None if given.status_code == 409 else given

    settled = until(answer, f"an answer to {method} {path}")
    assert settled is not None
    return settled


def config_records(cluster: cx.Cluster, prefix: str) -> list[tuple[str, Any]]:
    """Return key and value of committed records of the config topic whose keys begin so, in order."""
    messages = read_all(cluster.bootstrap_servers, cluster.config.config_topic.name)
    found = [(message.key().decode(), message.value()) for message in messages]
    return [(key, None if value is None else json.loads(value)) for key, value in found if key.startswith(prefix)]
