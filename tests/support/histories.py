"""Hand-written histories for the tests of the views: a small vocabulary over `Event`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from connectx.history.codec import sighting_of
from connectx.model.causes import (
    Cause,
    CoordinatorUnreachable,
    GroupRebalances,
    GroupRequestRefused,
    LaneObstacle,
    OutsideGroup,
    ProcessEnded,
    RebalanceSuperseded,
    RefusedByKafka,
    SessionExpired,
    TakenOver,
    WorkerStarts,
)
from connectx.model.events import Event, EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.json_values import json_value
from connectx.model.payloads import PAYLOADS, FencedBy, payload_of

START_MS = 1_700_000_000_000
_LEAST: Mapping[str, Any] = {
    **{"bootstrap_servers": "", "group_id": "", "url": "", "origin": "", "error": "", "fault": "", "group": ""},
    **{"members": {}, "lost": (), "delay_ms": 0, "transactional_id": "", "transactional_ids": (), "tasks": 0},
    **{"target_state": "STARTED", "task_count": 0, "include_tasks": False, "only_failed": False, "state": "RUNNING"},
    **{"step": "begin", "known": False, "offsets": None, "partitions": (), "lane": "tail", "lag": 0, "since_ms": 0},
    **{"lasted_ms": 0, "leader_url": "", "protocol": "", "is_new": False, "records": 0, "token": 0, "refused": 0},
}
"""Values of fields that a test leaves out."""

_TYPED: Mapping[str, Cause] = {
    str(cause): cause
    for cause in (
        WorkerStarts(),
        GroupRebalances(),
        RebalanceSuperseded(),
        CoordinatorUnreachable(),
        ProcessEnded(),
        OutsideGroup(answers=True),
        OutsideGroup(answers=False),
        RefusedByKafka(),
    )
}
"""Causes that views of the history decide by."""


def cause_of(text: str) -> Cause | None:
    """Return the cause with this sentence; any other sentence is the reason of a lane."""
    if found := re.fullmatch(r"(Heartbeat|JoinGroup|SyncGroup) was refused: (.*)", text):
        return GroupRequestRefused(found[1], found[2])
    if found := re.fullmatch(r"no heartbeat was answered for (\d+) ms", text):
        return SessionExpired(int(found[1]))
    return _TYPED.get(text) or (LaneObstacle(text) if text else None)


def transition(
    kind: EventKind,
    connector: str | None = None,
    task: int | None = None,
    generation: int | None = None,
    producer_epoch: int | None = None,
    cause: str = "",
    data: Mapping[str, Any] | None = None,
) -> Transition:
    """Return a transition as its reader sees it: with a sentence as its cause, and data by name."""
    about = None if connector is None or task is None else TaskId(connector, task)
    required = [item.name for item in fields(PAYLOADS[kind]) if item.default is MISSING]
    given = {**{name: _LEAST[name] for name in required}, **(data or {})}
    given = {name: value for name, value in given.items() if value is not None or name == "offsets"}
    payload = payload_of(kind, given)
    why = cause_of(cause or (str(given.get("reason", "")) if payload.has_reason else ""))
    if isinstance(payload, FencedBy) and about is not None and payload.by is not None and payload.state is not None:
        generation_there = -1 if payload.by_generation is None else payload.by_generation
        why = TakenOver(payload.by, about, generation_there, payload.newer_epoch, payload.state, payload.since_ms)
    return Transition(payload, connector, task, generation, producer_epoch, why, sighting_of(kind, given))


@dataclass(frozen=True)
class Recorded:
    """What a recorded transition must show; equal to one that does. Data that is None or empty need not be there."""

    kind: EventKind
    connector: str | None = None
    task: int | None = None
    generation: int | None = None
    producer_epoch: int | None = None
    cause: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transition):
            return NotImplemented
        fields = ("kind", "connector", "task", "generation", "producer_epoch")
        same = all(getattr(self, name) == getattr(other, name) for name in fields)
        cause = self.cause or str(self.data.get("reason", ""))
        return same and cause == other.cause and _plain(self.data) == _plain(other.data)

    def __hash__(self) -> int:
        return hash((self.kind, self.connector, self.task))


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    shown = json_value(data)
    return {key: value for key, value in shown.items() if value not in (None, "", [], {}, 0, False)}


class History:
    """Builds events; `at(seconds)` sets the time of those that follow."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.time_ms = START_MS
        self.generation: int | None = None

    def at(self, seconds: float) -> History:
        self.time_ms = START_MS + round(seconds * 1000)
        return self

    def add(self, kind: EventKind, worker: str | None = None, work: str | None = None, **fields: Any) -> History:
        connector, task = work, None
        if work is not None and work.rpartition("-")[2].isdigit():
            name, _, number = work.rpartition("-")
            connector, task = name, int(number)
        known = {key: fields.pop(key) for key in ("generation", "producer_epoch", "cause") if key in fields}
        known.setdefault("generation", self.generation)
        t = transition(kind, connector, task, data=fields, **known)
        rest = (t.connector, t.task, t.generation, t.producer_epoch, t.why, t.seen)
        self.events.append(Event(len(self.events) + 1, self.time_ms, worker, t.payload, *rest))
        return self

    def started(self, *workers: str) -> History:
        for worker in workers:
            self.add(EventKind.WORKER_STARTED, worker, url=f"http://{worker}/")
        return self

    def rebalance(
        self,
        generation: int,
        took: float = 0.2,
        *,
        leader: str,
        work: dict[str, list[str]],
        reason: str = "a member joined",
        delay_ms: int = 0,
        lost: list[str] | None = None,
    ) -> History:
        """A whole round: every worker of `work` (name to its tasks and connectors) joins and gets its work."""
        for worker in work:
            self.add(EventKind.REBALANCE_STARTED, worker, cause=reason, reason=reason)
        self.time_ms += round(took * 1000)
        self.generation = generation
        members = {f"http://{worker}/": {"owns": items} for worker, items in work.items()}
        self.add(EventKind.ASSIGNMENT_COMPUTED, leader, members=members, lost=lost or [], delay_ms=delay_ms)
        if delay_ms:
            self.add(EventKind.REBALANCE_DELAYED, leader, lost=lost or [], delay_ms=delay_ms)
        for worker, items in work.items():
            self.add(
                EventKind.REBALANCE_COMPLETED,
                worker,
                leader=f"member-of-{leader}",
                leader_url=f"http://{leader}/",
                protocol="sessioned",
                tasks=[item for item in items if item.rpartition("-")[2].isdigit()],
                connectors=[item for item in items if not item.rpartition("-")[2].isdigit()],
                delay_ms=delay_ms,
            )
        return self

    def step(self, worker: str, work: str, step: str, instance: int = 1, **fields: Any) -> History:
        return self.add(EventKind.TASK_STEP, worker, work, step=step, instance=instance, **fields)

    def state(self, worker: str, work: str, state: str, instance: int = 1, **fields: Any) -> History:
        kind = EventKind.TASK_STATE if work.rpartition("-")[2].isdigit() else EventKind.CONNECTOR_STATE
        if kind is EventKind.TASK_STATE:
            fields["instance"] = instance
        return self.add(kind, worker, work, state=state, **fields)

    def start(self, worker: str, work: str, instance: int = 1, epoch: int | None = None, took: float = 0.1) -> History:
        """All of a task's start-up up to RUNNING; with an epoch as an exactly-once source."""
        self.step(worker, work, "prepare", instance)
        self.time_ms += round(took * 1000)
        if epoch is not None:
            self.step(worker, work, "read_config_to_end", instance, producer_epoch=epoch)
        self.step(worker, work, "begin", instance)
        return self.state(worker, work, "RUNNING", instance)

    def fault(self, fault: str, worker: str, **fields: Any) -> History:
        return self.add(EventKind.FAULT_INJECTED, worker, fault=fault, **fields)

    def ended(self, worker: str, work: str, instance: int = 1, reason: str = "killed") -> History:
        return self.add(EventKind.TASK_ENDED, worker, work, instance=instance, reason=reason)

    def fenced(self, worker: str, work: str, epoch: int | None = None, **fields: Any) -> History:
        return self.add(EventKind.PRODUCER_FENCED, worker, work, producer_epoch=epoch, error="_FENCED", **fields)


def small_cluster() -> History:
    """Three workers, a source with one task, a sink with two; all run at 1.5 s, generation 2."""
    history = History()
    history.add(EventKind.CLUSTER_STARTED, bootstrap_servers="127.0.0.1:9092", group_id="flights")
    history.started("worker-1", "worker-2", "worker-3")
    history.at(0.2).rebalance(1, leader="worker-1", work={"worker-1": [], "worker-2": [], "worker-3": []})
    history.at(1.0).rebalance(
        2,
        0.1,
        leader="worker-1",
        work={
            "worker-1": ["flights-in", "flights-out-1"],
            "worker-2": ["flights-out", "flights-in-0"],
            "worker-3": ["flights-out-0"],
        },
        reason="connector flights-in was configured",
    )
    history.state("worker-1", "flights-in", "RUNNING").state("worker-2", "flights-out", "RUNNING")
    history.at(1.2).start("worker-2", "flights-in-0", epoch=0)
    history.at(1.4).start("worker-3", "flights-out-0")
    history.at(1.4).start("worker-1", "flights-out-1")
    return history


def _move_to_worker_3(history: History) -> None:
    """Of `small_cluster` the group leaves worker-2 out at 13 s, and its work moves at 16.2 s."""
    history.at(13.0).rebalance(
        3,
        leader="worker-1",
        work={"worker-1": ["flights-in", "flights-out-1"], "worker-3": ["flights-out-0"]},
        reason="the group is rebalancing",
        delay_ms=3000,
        lost=["flights-out", "flights-in-0"],
    )
    history.at(16.2).rebalance(
        4,
        0.1,
        leader="worker-1",
        work={
            "worker-1": ["flights-in", "flights-out-1"],
            "worker-3": ["flights-out", "flights-out-0", "flights-in-0"],
        },
        reason="the scheduled rebalance delay has passed",
    )
    history.state("worker-3", "flights-out", "RUNNING")
    history.at(16.4).start("worker-3", "flights-in-0", instance=2, epoch=1, took=0.2)


def kill_of_source() -> History:
    """`small_cluster`, then worker-2 is killed at 10 s: zombie for 0.4 s, delay of 3 s, moved to worker-3 at 16.6 s."""
    history = small_cluster()
    history.at(10.0).fault("kill", "worker-2")
    history.at(10.4).ended("worker-2", "flights-in-0")
    _move_to_worker_3(history)
    return history


def pause_with_fence() -> History:
    """`small_cluster`, then worker-2 is paused at 10 s, left out at 13 s, resumes at 22 s and is fenced at 22.2 s."""
    history = small_cluster()
    history.at(10.0).fault("pause", "worker-2")
    _move_to_worker_3(history)
    history.at(22.0).fault("resume", "worker-2")
    history.generation = 2
    history.at(22.2).fenced("worker-2", "flights-in-0", epoch=0, open_ms=12_100)
    history.at(22.3).add(EventKind.MEMBER_LOST, "worker-2", cause="the coordinator does not know this member")
    history.at(22.4).state("worker-2", "flights-in-0", "FAILED", trace="ProducerFenced: another producer")
    history.generation = 4
    history.at(22.5).rebalance(
        5,
        leader="worker-1",
        work={
            "worker-1": ["flights-in", "flights-out-1"],
            "worker-2": [],
            "worker-3": ["flights-out", "flights-out-0", "flights-in-0"],
        },
        reason="a member joined",
    )
    return history


def crowded(workers: int = 5, tasks: int = 8, seconds: float = 60.0) -> History:
    """Long names, many tasks, every form: paused, failed, zombie, fenced, aborted, restarts."""
    names = [f"worker-{number}" for number in range(1, workers)] + ["ingest-node-eu-central-1b.internal.example"]
    pieces = [f"orders-warehouse-replica-eu-{number}" for number in range(tasks // 2)]
    pieces += [f"audit-{number}" for number in range(tasks - tasks // 2)]
    history = History()
    history.started(*names)
    work: dict[str, list[str]] = {name: [] for name in names}
    for number, piece in enumerate(pieces):
        work[names[number % workers]].append(piece)
    work[names[0]].append("orders-warehouse-replica-eu")
    work[names[1]].append("audit")
    history.at(0.5).rebalance(1, 0.4, leader=names[0], work={name: [] for name in names})
    history.at(1.5).rebalance(2, 0.3, leader=names[0], work=work, reason="connector audit was configured")
    history.state(names[0], "orders-warehouse-replica-eu", "RUNNING").state(names[1], "audit", "RUNNING")
    for worker, items in work.items():
        for item in items:
            if item.rpartition("-")[2].isdigit():
                history.at(2.0).start(worker, item, epoch=3 if item.startswith("orders") else None, took=1.2)
    part = seconds / 60
    history.at(14 * part).state(names[1], "orders-warehouse-replica-eu-1", "PAUSED")
    history.at(20 * part).state(names[1], "orders-warehouse-replica-eu-1", "RUNNING")
    trace = "ValueError: the file <b>in.txt</b> & more\n at x"
    history.at(24 * part).state(names[2], "orders-warehouse-replica-eu-2", "FAILED", trace=trace)
    history.at(33 * part).state(names[2], "orders-warehouse-replica-eu-2", "RESTARTING")
    history.start(names[2], "orders-warehouse-replica-eu-2", instance=7, epoch=4, took=0.5)
    for second in (26.0, 26.1, 26.2, 30.0):
        history.at(second * part).add(
            EventKind.TRANSACTION_ABORTED, names[0], "orders-warehouse-replica-eu-0", records=9
        )
    history.at(36 * part).fault("stall", names[0])
    rest = {name: items for name, items in work.items() if name != names[0]}
    history.at(39 * part).rebalance(3, 0.6, leader=names[1], work=rest, lost=work[names[0]], delay_ms=3000)
    moved = {
        **rest,
        names[1]: [*rest[names[1]], "orders-warehouse-replica-eu-0"],
        names[-1]: [*rest[names[-1]], "audit-1"],
    }
    history.at(43 * part).rebalance(
        4, 0.3, leader=names[1], work=moved, reason="the scheduled rebalance delay has passed"
    )
    history.start(names[1], "orders-warehouse-replica-eu-0", instance=3, epoch=4, took=0.8)
    history.start(names[-1], "audit-1", instance=3, took=0.2)
    history.at(48 * part).fenced(names[0], "orders-warehouse-replica-eu-0", epoch=3, open_ms=40)
    history.at(52 * part).add(EventKind.COMMIT_REFUSED, names[0], "audit-1", reason="the table is ahead")
    history.at(53 * part).ended(names[0], "audit-1", reason="kicked out")
    history.at(59 * part).fault("kill", names[-2])
    history.at(seconds).add(EventKind.OFFSETS_COMMITTED, names[1], "audit-0", records=10)
    return history


def many(workers: int = 10, connectors: int = 100) -> History:
    """So many connectors with two tasks each, spread over the workers; all run at 2 s."""
    names = [f"worker-{number}" for number in range(1, workers + 1)]
    pieces = [f"{kind}{number:02}" for number in range(connectors // 2) for kind in ("orders", "table")]
    work: dict[str, list[str]] = {name: [] for name in names}
    for number, piece in enumerate(pieces):
        for place, item in enumerate((piece, f"{piece}-0", f"{piece}-1")):
            work[names[(number + place) % workers]].append(item)
    history = History()
    history.started(*names)
    history.at(1.0).rebalance(1, 0.3, leader=names[0], work=work)
    for worker, items in work.items():
        for item in items:
            if "-" in item:
                history.at(1.5).start(worker, item, took=0.4)
            else:
                history.at(1.5).state(worker, item, "RUNNING")
    return history.at(2.0).add(EventKind.SESSION_KEY_ROTATED, names[0])
