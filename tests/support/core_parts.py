"""What tests of the core's parts share: a context in the middle of its life, and ways to say what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from connectx.core.config_writer import Claim
from connectx.core.context import Context, WorkerPhase
from connectx.core.group.membership import MembershipState
from connectx.core.group.rebalance import RebalancePhase
from connectx.core.messages import Effect
from connectx.core.settings import CoreSettings, SignatureCheck
from connectx.core.signals import Signal
from connectx.core.timer_keys import GroupTimer
from connectx.core.worker import WorkerCore
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from connectx.model.events import Transition
from connectx.model.group import WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import ConnectorType, State, TargetState
from connectx.model.status_records import ConnectorStatusRecord, Status, TaskStatusRecord
from connectx.model.worker_config import WorkerConfig, own_kafka_config
from connectx.model.worker_keys import WorkerKeys

_Signal = TypeVar("_Signal", bound=Signal)
ME, LEADER_URL = "127.0.0.1:8083", "http://127.0.0.1:9999/"
C0, C1 = TaskId("c", 0), TaskId("c", 1)
SOURCE: dict[str, str | None] = {"connector.class": "Source"}
KEY = SessionKeyRecord(b"k" * 32, "HmacSHA256", 1_000)


def type_of(config: Mapping[str, str | None]) -> ConnectorType:
    return ConnectorType.SINK if config.get("connector.class") == "Sink" else ConnectorType.SOURCE


@cache
def worker_of(**settings: Any) -> WorkerConfig:
    """A worker of group g, Kafka Connect's defaults but for `settings` (`session_timeout_ms=3_000`)."""
    given = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "exactly.once.source.support": "enabled"}
    changed = {getattr(WorkerKeys, name).name: value for name, value in settings.items()}
    return WorkerConfig.parse(own_kafka_config(given | changed))


def settings(check_signature: SignatureCheck = lambda *_: None, **worker: Any) -> CoreSettings:
    return CoreSettings(f"http://{ME}/", worker_of(**worker), type_of, check_signature)


def a_context(*, leads: bool = True, **changes: Any) -> Context:
    """A settled member of generation 3 at 1,000 ms; connector c is configured, it and its two tasks are assigned."""
    context = Context(settings(**changes), phase=WorkerPhase.RUNNING, now_ms=1_000)
    group = context.group
    group.member_id, group.generation, group.settled = "me", 3, True
    group.leader_id, group.leader_url = ("me", context.settings.url) if leads else ("other", LEADER_URL)
    group.assignment = WorkSet(("c",), (C0, C1))
    configure(context)
    return context


def a_core(*, leads: bool = True, **changes: Any) -> WorkerCore:
    """A worker's core around `a_context`; its membership is that of a settled member, with the request 5 next."""
    given = a_context(leads=leads, **changes)
    core = WorkerCore(given.settings)
    for item in fields(Context):
        setattr(core.context, item.name, getattr(given, item.name))
    core.writer.claim = Claim.HELD if leads else Claim.NONE
    core.rebalance.phase = RebalancePhase.SETTLED
    member = core.membership
    member.state, member.member_id, member.generation = MembershipState.STABLE, "me", 3
    member.leader_id, member.protocol, member.last_request_id = given.group.leader_id, given.group.protocol, 4
    for key in (GroupTimer.HEARTBEAT, GroupTimer.SESSION):
        member.timers.set(key, 1_000)
    return core


def starting_core() -> WorkerCore:
    """A worker that has read connector c and its two tasks, and has not started yet."""
    core = WorkerCore(settings())
    configure(core.context)
    return core


def follow(core: WorkerCore) -> None:
    """Another worker leads now."""
    group = core.context.group
    group.leader_id, group.leader_url = "other", LEADER_URL
    core.leadership.step_down()


def task_config(number: int, of: str = "1") -> dict[str, str | None]:
    return {"task.class": "T", "number": str(number), "of": of}


def read(context: Context, *records: ConfigRecord) -> None:
    """Read records from the config topic, after those that are there."""
    for record in records:
        context.config.apply(max(0, context.config.offset), record)


def configure(context: Context, connector: str = "c", tasks: int = 2, of: str = "1", **config: str | None) -> None:
    """The connector and a complete set of task configs, with its task count record, and a session key."""
    read(context, ConnectorConfigRecord(connector, SOURCE | config))
    commit(context, connector, tasks, of)
    read(context, TaskCountRecord(connector, tasks), KEY)


def commit(context: Context, connector: str = "c", tasks: int = 2, of: str = "2") -> None:
    """A new complete set of task configs."""
    read(context, *(TaskConfigRecord(TaskId(connector, n), task_config(n, of)) for n in range(tasks)))
    read(context, TaskCommitRecord(connector, tasks))


def target(context: Context, state: TargetState, connector: str = "c") -> None:
    read(context, TargetStateRecord(connector, state))


def shown(context: Context, subject: str | TaskId, state: State, worker_id: str = ME, generation: int = 3) -> None:
    """The status topic says this."""
    status = Status(state, worker_id, generation)
    match subject:
        case TaskId():
            context.status.apply(TaskStatusRecord(subject, status))
        case _:
            context.status.apply(ConnectorStatusRecord(subject, status))


def signals_of(context: Context, kind: type[_Signal]) -> list[_Signal]:
    """Signals of a kind that were not taken yet."""
    return [signal for signal in context.signals if isinstance(signal, kind)]


def effects(context: Context) -> list[Effect]:
    """What was ordered since the last call."""
    ordered, context.step.effects = context.step.effects, []
    return ordered


def transitions(context: Context) -> list[Transition]:
    """Transitions since the last call."""
    recorded, context.step.transitions = context.step.transitions, []
    return recorded


def both(context: Context) -> tuple[list[Transition], list[Effect]]:
    """Transitions and effects since the last call."""
    return transitions(context), effects(context)
