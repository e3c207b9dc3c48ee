"""How the leader's work grows with its group: whole rebalances of its core, and the topics that it decides from.

No Kafka, no threads: the leader is a real core, the other members are what they would send. Times are processor times,
so that other load on the machine counts less. `cpu_s` is what a rebalance waits for: to decode metadata, to
assign, to encode the answers; `adopt_s` is what the leader does afterwards, as a leader and with its own work.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from connectx.core.config_log import ConfigLog
from connectx.core.group_messages import (
    CoordinatorFound,
    FindCoordinator,
    HeartbeatReplied,
    JoinGroupReplied,
    SendHeartbeat,
    SendJoinGroup,
    SendSyncGroup,
    SyncGroupReplied,
)
from connectx.core.messages import (
    ClaimConfigWrites,
    ConfigReadToEnd,
    ConfigRecordRead,
    ConfigWritesClaimed,
    ConnectorStopped,
    ReadConfigToEnd,
    SetTimer,
    StatusRecordRead,
    StopConnector,
    StopTask,
    TaskStopped,
    TimerFired,
    WorkerStarted,
)
from connectx.core.settings import CoreSettings
from connectx.core.timer_keys import GroupTimer
from connectx.core.worker import WorkerCore
from connectx.model.config_records import ConfigRecord, ConnectorConfigRecord, TaskCommitRecord, TaskConfigRecord
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import ConnectorType, State
from connectx.model.status_records import Status, StatusRecord, TaskStatusRecord
from connectx.model.worker_config import WorkerConfig, own_kafka_config
from connectx.protocol.config_topic import decode_config_record, encode_config_record
from connectx.protocol.group import decode_metadata, encode_assignment, encode_metadata
from connectx.protocol.status_topic import decode_status_record, encode_status_record

SIZES = ((10, 500), (100, 5_000), (300, 15_000), (1_000, 50_000))
"""Workers and tasks."""

SHAPES: dict[str, Callable[[int], int]] = {
    "10 connectors": lambda tasks: 10,
    "10 tasks each": lambda tasks: tasks // 10,
}

WORKER = WorkerConfig.parse(
    own_kafka_config(
        {"bootstrap.servers": "127.0.0.1:9", "group.id": "connect-cluster", "connect.protocol": "compatible"}
    )
)
DELAY_MS = WORKER.scheduled_rebalance_max_delay_ms
Figures = Iterator[dict[str, object]]


def measure_scale() -> Figures:
    """Both shapes of work over all sizes; every figure with how it grew since the size before."""
    for shape, connectors_of in SHAPES.items():
        before: dict[str, tuple[int, float]] = {}
        for workers, tasks in SIZES:
            for figure in _at_size(workers, tasks, connectors_of(tasks)):
                name = str(figure["phase"])
                growth = _growth(before.get(name), (tasks, float(str(figure["cpu_s"]))))
                before[name] = tasks, float(str(figure["cpu_s"]))
                yield {"measure": "scale", "shape": shape, "workers": workers, "tasks": tasks, **figure, **growth}


def _growth(before: tuple[int, float] | None, now: tuple[int, float]) -> dict[str, float]:
    """The exponent e of time ~ tasks^e since the size before; times too short to compare have none."""
    if before is None or before[1] < 0.01 or now[1] < 0.01:
        return {}
    return {"exponent": round(math.log(now[1] / before[1]) / math.log(now[0] / before[0]), 2)}


def _at_size(workers: int, tasks: int, connectors: int) -> Figures:
    records = config_topic(connectors, tasks)
    yield from _measure_config_log(records)
    group = Group(records)
    yield from _measure_status_log(group, connectors, tasks)
    yield from _measure_rebalances(group, workers)


def config_topic(connectors: int, tasks: int) -> list[ConfigRecord]:
    """What a topic holds after every connector was created, as records."""
    records: list[ConfigRecord] = []
    for number in range(connectors):
        name, per_connector = f"connector-{number:05}", tasks // connectors
        config = {"name": name, "connector.class": "FileStreamSource", "tasks.max": str(per_connector)}
        records.append(ConnectorConfigRecord(name, config))
        for task in range(per_connector):
            own = {f"setting.{key}": f"value {key} of task {task}" for key in range(8)}
            records.append(TaskConfigRecord(TaskId(name, task), {**config, **own, "task.class": "Task"}))
        records.append(TaskCommitRecord(name, per_connector))
    return records


def _measure_config_log(records: list[ConfigRecord]) -> Figures:
    wire = [encode_config_record(record) for record in records]
    config = ConfigLog()
    tracemalloc.start()
    _replay(config, wire)
    memory_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    config = ConfigLog()
    took_s = _cpu_s(lambda: _replay(config, wire))
    yield {"phase": "config topic read", "cpu_s": took_s, "records": len(wire), "memory_mb": _mb(memory_bytes)}
    gone = [encode_config_record(ConnectorConfigRecord(name, None)) for name in config.connectors()]
    yield {"phase": "all connectors deleted", "cpu_s": _cpu_s(lambda: _replay(config, gone)), "records": len(gone)}


def _replay(config: ConfigLog, wire: list[tuple[str, bytes | None]]) -> None:
    for log_offset, (key, value) in enumerate(wire):
        config.apply(log_offset, decode_config_record.value("a record", key.encode(), value))


def status_topic(connectors: int, tasks: int) -> list[StatusRecord]:
    """A status for every task, as workers report them: those of a connector not one after the other."""
    running = Status(State.RUNNING, "127.0.0.1:8083", 1)
    ids = [TaskId(f"connector-{n % connectors:05}", n // connectors) for n in range(tasks)]
    return [TaskStatusRecord(task, running) for task in ids]


def _measure_status_log(group: Group, connectors: int, tasks: int) -> Figures:
    wire = [encode_status_record(record) for record in status_topic(connectors, tasks)]

    def read() -> None:
        for key, value in wire:
            group.deliver(StatusRecordRead(decode_status_record.value("a record", key.encode(), value)))

    yield {"phase": "status topic read", "cpu_s": _cpu_s(read), "records": len(wire)}


def _measure_rebalances(group: Group, workers: int) -> Figures:
    yield {"phase": "leader alone", **group.settle()}  # takes everything over, and cleans statuses up
    for _ in range(workers - 1):
        group.add()
    yield {"phase": "all others join", **group.settle()}
    yield {"phase": "all others join, memory", **group.settle(traced=True)}
    group.add()
    yield {"phase": "one joins", **group.settle()}
    (lost,) = group.lose(1)
    yield {"phase": "one is lost", **group.settle()}
    group.now_ms += DELAY_MS + 1
    yield {"phase": "delay over", **group.settle()}
    group.return_with(lost, group.claims_of_lost[lost])
    yield {"phase": "it returns with old claims", **group.settle()}
    many = group.lose(workers // 3)
    yield {"phase": "a third is lost", **group.settle()}
    for member in many:
        group.return_with(member, WorkSet())
    yield {"phase": "they return empty", **group.settle()}
    group.now_ms += DELAY_MS + 1
    yield {"phase": "delay over again", **group.settle()}


class Group:
    """A leader's core and what the other members claim."""

    def __init__(self, records: list[ConfigRecord]) -> None:
        self.core = WorkerCore(
            CoreSettings(
                url="http://127.0.0.1:8083/",
                worker=WORKER,
                connector_type_of=lambda _: ConnectorType.SOURCE,
                check_signature=lambda *_: None,
            )
        )
        self.now_ms = 1_000_000
        self.generation = 0
        self.others: dict[str, WorkSet] = {}
        self.claims_of_lost: dict[str, WorkSet] = {}
        self.join: SendJoinGroup | None = None
        self.sync: SendSyncGroup | None = None
        self.heartbeat_timer = 0
        self.numbers = count(1)
        self.leader_id = self._new_id()
        started = self.core.handle(WorkerStarted(), self.now_ms).effects
        for log_offset, record in enumerate(records):
            self.core.handle(ConfigRecordRead(log_offset, record), self.now_ms)
        self._carry_out(started)

    def add(self) -> None:
        self.others[self._new_id()] = WorkSet()

    def lose(self, how_many: int) -> list[str]:
        lost = list(self.others)[:how_many]
        for member in lost:
            self.claims_of_lost[member] = self.others.pop(member)
        return lost

    def return_with(self, member: str, claims: WorkSet) -> None:
        self.others[member] = claims

    def settle(self, *, traced: bool = False) -> dict[str, object]:
        """Rebalance until no member has to revoke work; figures of the longest round, and the number of rounds."""
        rounds = [self.rebalance(traced=traced)]
        while rounds[-1]["revoked"]:
            rounds.append(self.rebalance(traced=traced))
        longest = max(rounds, key=lambda figures: float(str(figures["cpu_s"])) + float(str(figures["adopt_s"])))
        return {**longest, "rounds": len(rounds), "revoked": sum(int(str(figures["revoked"])) for figures in rounds)}

    def rebalance(self, *, traced: bool) -> dict[str, object]:
        """One round, as the leader sees it: decode the members' metadata, assign, encode the assignments."""
        self._make_leader_join()
        assert self.join is not None
        wire = {member: encode_metadata(metadata) for member, metadata in self._metadata().items()}
        request, self.join, self.generation = self.join, None, self.generation + 1
        if traced:
            tracemalloc.start()
        start_s = time.process_time()
        members = {member: decode_metadata.value("metadata", data) for member, data in wire.items()}
        decoded_s = time.process_time()
        self.deliver(
            JoinGroupReplied(
                request.request_id, None, self.generation, self.leader_id, self.leader_id, "compatible", members
            )
        )
        assigned_s = time.process_time()
        assert self.sync is not None
        answers = {member: encode_assignment(assignment) for member, assignment in self.sync.assignments.items()}
        encoded_s = time.process_time()
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        start_adopt_s = time.process_time()
        revoked = self._adopt(self.sync)
        adopted_s = time.process_time()
        memory = {"memory_mb": _mb(peak_bytes)} if traced else {}
        return {
            "cpu_s": round(encoded_s - start_s, 3),
            "decode_s": round(decoded_s - start_s, 3),
            "assign_s": round(assigned_s - decoded_s, 3),
            "encode_s": round(encoded_s - assigned_s, 3),
            "adopt_s": round(adopted_s - start_adopt_s, 3),
            "read_bytes": sum(map(len, wire.values())),
            "sent_bytes": sum(map(len, answers.values())),
            "revoked": revoked,
            **memory,
        }

    def deliver(self, stimulus: Any) -> None:
        """Hand a stimulus to the core, and answer what it orders where a rebalance waits for the answer."""
        self._carry_out(self.core.handle(stimulus, self.now_ms).effects)

    def _carry_out(self, effects: list[Any]) -> None:
        for effect in effects:
            if (answer := self._answer(effect)) is not None:
                self.deliver(answer)

    def _answer(self, effect: Any) -> Any:
        match effect:
            case ReadConfigToEnd():
                return ConfigReadToEnd(effect.request_id)
            case FindCoordinator():
                return CoordinatorFound(effect.request_id)
            case SendJoinGroup() if not effect.member_id:
                refused = "MEMBER_ID_REQUIRED", -1, self.leader_id, "", ""
                return JoinGroupReplied(effect.request_id, *refused, {})
            case SendJoinGroup():
                self.join = effect
            case SendSyncGroup():
                self.sync = effect
            case SendHeartbeat():
                return HeartbeatReplied(effect.request_id, "REBALANCE_IN_PROGRESS")
            case ClaimConfigWrites():
                return ConfigWritesClaimed(effect.request_id)
            case StopTask():
                return TaskStopped(effect.task, effect.instance)
            case StopConnector():
                return ConnectorStopped(effect.connector, effect.instance)
            case SetTimer(key=GroupTimer.HEARTBEAT):
                self.heartbeat_timer = effect.token
        return None

    def _make_leader_join(self) -> None:
        if self.join is None:
            self.deliver(TimerFired(GroupTimer.HEARTBEAT, self.heartbeat_timer))

    def _metadata(self) -> dict[str, MemberMetadata]:
        assert self.join is not None
        offset, version = self.core.context.config.offset, ProtocolVersion.COMPATIBLE
        found = {self.leader_id: self.join.protocols[0]}
        for member, claims in self.others.items():
            url = f"http://{member}/"
            found[member] = MemberMetadata(version, url, offset, Assignment(version, 0, "l", "u", offset, claims))
        return found

    def _adopt(self, sync: SendSyncGroup) -> int:
        """Every member adopts its assignment; returns the number of revocations."""
        self.deliver(SyncGroupReplied(sync.request_id, None, sync.assignments[self.leader_id]))
        for member, claims in self.others.items():
            assignment = sync.assignments[member]
            self.others[member] = claims.minus(assignment.revoked).plus(assignment.assigned)
        self.sync = None
        revoked = [assignment.revoked for assignment in sync.assignments.values()]
        return sum(len(work.connectors) + len(work.tasks) for work in revoked)

    def _new_id(self) -> str:
        return f"connect-127.0.0.1:{next(self.numbers):05}"


def _cpu_s(work: Callable[[], None]) -> float:
    start_s = time.process_time()
    work()
    return round(time.process_time() - start_s, 3)


def _mb(size_bytes: int) -> float:
    return round(size_bytes / 2**20, 1)
