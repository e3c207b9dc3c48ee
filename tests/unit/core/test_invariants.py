"""The rules between the parts of a core: each is broken by a mutant of the core, and holds in the sound core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

from connectx.core import verbs
from connectx.core.config_log import ConfigLog
from connectx.core.config_writer import ConfigWriter
from connectx.core.connectors import Connectors
from connectx.core.context import Context
from connectx.core.group.leadership import Leadership
from connectx.core.group.membership import Membership
from connectx.core.group.rebalance import Rebalance
from connectx.core.group_messages import GroupRequestFailed, HeartbeatReplied
from connectx.core.invariants import Rule
from connectx.core.messages import (
    ConfigReadToEnd,
    ConfigRecordRead,
    ConfigRecordsWritten,
    ConnectorStopped,
    FenceRequestAnswered,
    ProducersFenced,
    Request,
    ShutdownRequested,
    StatusRecordRead,
    Stimulus,
    TaskPrepared,
    TaskProducerReady,
    TaskStopped,
    TimerFired,
)
from connectx.core.pending import TaskRead
from connectx.core.requests import RequestHandler
from connectx.core.tasks import TaskLife, TaskPhase, Tasks
from connectx.core.timer_keys import GroupTimer
from connectx.core.timers import Timers
from connectx.core.worker import WorkerCore
from connectx.model.config_records import ConfigRecord, RestartRecord, TaskCommitRecord, TaskConfigRecord
from connectx.model.states import State
from connectx.model.status_records import ConnectorStatusRecord, Status
from tests.support.worker_script import C0, C1, ME, SOURCE, following, leading, task_config

pytestmark = [pytest.mark.rule("always.10"), pytest.mark.unchecked]  # this file checks its own steps


@dataclass(frozen=True)
class Mutant:
    """A way to break the core by replacing one method, and the stimuli after which the rule finds it."""

    rule: Rule
    part: type
    method: str
    replacement: Callable[..., Any]
    stimuli: tuple[Stimulus, ...]
    leads: bool = False


def nothing(*args: object, **named: object) -> None:
    """The call is forgotten."""


def read(*records: ConfigRecord) -> tuple[Stimulus, ...]:
    return tuple(ConfigRecordRead(6 + number, record) for number, record in enumerate(records))


def forget_without_timers(self: Tasks, life: TaskLife) -> None:
    del self.lives[life.task]


def release_without_stopping(self: Rebalance, reason: str) -> None:
    self.context.group.assignment = None


def begin_and_wait(self: Tasks, life: TaskLife) -> None:
    life.phase, life.request_id = TaskPhase.STARTING, self.context.new_request_id(TaskRead(life.task))


def older_offset(self: ConfigLog, log_offset: int, record: ConfigRecord) -> list[Any]:
    self.offset = -1
    return []


NEW_CONFIGS = read(TaskConfigRecord(C0, task_config(0, "2")), TaskCommitRecord("c", 1))
PREPARED = TaskPrepared(C0, 2)
HEARTBEAT = TimerFired(GroupTimer.HEARTBEAT, 3)
STARTED = (PREPARED, FenceRequestAnswered(1), TaskProducerReady(C0, 2), ConfigReadToEnd(2))
STOPPED = (ShutdownRequested(), TaskStopped(C0, 2), TaskStopped(C1, 3), ConnectorStopped("c", 1))
FENCED = (*NEW_CONFIGS, Request(7, verbs.Fence("c")), ConfigReadToEnd(2), ProducersFenced(3))
RESTARTED = (
    StatusRecordRead(ConnectorStatusRecord("c", Status(State.RUNNING, ME, 3))),
    Request(7, verbs.RestartConnector("c", include_tasks=True)),
    *(ConfigReadToEnd(2), ConfigRecordsWritten(3), ConfigReadToEnd(4)),
)
REFUSED = (Request(7, verbs.Create("n", SOURCE)), ConfigRecordsWritten(2, "fenced", fenced=True))

MUTANTS = (
    Mutant(Rule.ASSIGNED_ONLY, Rebalance, "release_work", release_without_stopping, (ShutdownRequested(),)),
    Mutant(Rule.NEWEST_CONFIGS, Tasks, "on_new_task_configs", nothing, (*STARTED, *NEW_CONFIGS)),
    Mutant(
        Rule.OWN_INSTANCE, Context, "new_instance", lambda _: 1,
        (*read(RestartRecord("c", True, False)), TaskStopped(C0, 2)),
    ),
    Mutant(Rule.STEP_IS_AWAITED, Tasks, "_ask_for_fencing", nothing, (PREPARED,)),
    Mutant(Rule.STEP_IS_AWAITED, Context, "set_timer", nothing, NEW_CONFIGS),
    Mutant(Rule.STEP_IS_AWAITED, ConfigWriter, "put_task_count", nothing, FENCED, leads=True),
    Mutant(Rule.REQUEST_IN_PHASE, Tasks, "_begin", begin_and_wait, STARTED),
    Mutant(Rule.UNIQUE_REQUESTS, Context, "new_request_id", lambda *_: 1, (PREPARED, TaskPrepared(C1, 3))),
    Mutant(Rule.UNIQUE_REQUESTS, Context, "new_request_id", lambda *_: 99, (PREPARED,)),
    Mutant(Rule.TIMER_HAS_OWNER, Tasks, "_forget", forget_without_timers, (*NEW_CONFIGS, TaskStopped(C0, 2))),
    Mutant(Rule.TIMER_HAS_OWNER, Timers, "cancel", nothing, NEW_CONFIGS),
    Mutant(Rule.QUEUE_MOVES, ConfigWriter, "_proceed", nothing, (Request(7, verbs.Pause("c")),)),
    Mutant(Rule.LEADER_HAS_LIMIT, Context, "set_timer", nothing, REFUSED[:1], leads=True),
    Mutant(Rule.TIMER_HAS_OWNER, Timers, "cancel", nothing, (*REFUSED[:1], ConfigRecordsWritten(2)), leads=True),
    Mutant(Rule.SIGNALS_ROUTED, WorkerCore, "_route", nothing, (Request(7, verbs.Create("c", SOURCE)),), leads=True),
    Mutant(Rule.REPLIES_ARE_DUE, RequestHandler, "on_written", nothing, RESTARTED, leads=True),
    Mutant(
        Rule.REPLIES_ARE_DUE, Connectors, "restart", nothing,
        (Request(7, verbs.RestartConnector("c")), ConfigReadToEnd(1)),
    ),
    Mutant(
        Rule.RIGHTS_OF_LEADER, Leadership, "suspend", nothing,
        (HEARTBEAT, HeartbeatReplied(5, "UNKNOWN_MEMBER_ID")), leads=True,
    ),
    Mutant(Rule.CLAIM_IS_AWAITED, Context, "set_timer", nothing, REFUSED, leads=True),
    Mutant(
        Rule.SETTLED_MEMBER, Rebalance, "on_join_preparing", nothing,
        (HEARTBEAT, HeartbeatReplied(5, "REBALANCE_IN_PROGRESS")),
    ),
    Mutant(
        Rule.MEMBER_CONTINUES, Membership, "_back_off", nothing,
        (HEARTBEAT, GroupRequestFailed(5, "the connection was cut")),
    ),
    Mutant(Rule.STOPPED_IS_EMPTY, Membership, "leave", nothing, STOPPED),
    Mutant(Rule.NEVER_BACK, ConfigLog, "apply", older_offset, read(TaskCommitRecord("c", 1))),
)  # fmt: skip


def working(mutant: Mutant) -> WorkerCore:
    """A settled member that starts connector c (instance 1) and tasks c-0 and c-1 (instances 2 and 3)."""
    return (leading() if mutant.leads else following()).core


def broken_by(mutant: Mutant, core: WorkerCore) -> list[StrEnum]:
    """The rules that the last of the stimuli breaks."""
    broken: list[StrEnum] = []
    for number, stimulus in enumerate(mutant.stimuli):
        before = core.marks()
        core.handle(stimulus, 1_000 + number)
        broken = [found.rule for found in core.check(before)]
    return broken


def name_of(mutant: Mutant) -> str:
    return f"{mutant.rule.name}-{mutant.part.__name__}.{mutant.method}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_a_rule_finds_its_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    core = working(mutant)
    monkeypatch.setattr(mutant.part, mutant.method, mutant.replacement)
    assert mutant.rule in broken_by(mutant, core)


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_the_sound_core_keeps_the_rules_that_find_mutants(mutant: Mutant) -> None:
    assert broken_by(mutant, working(mutant)) == []


def test_every_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in MUTANTS} == set(Rule)


def test_a_broken_rule_names_itself_and_what_was_found() -> None:
    core = leading().core
    core.context.signals.append("an outcome")  # type: ignore[arg-type]
    (found,) = core.check()
    assert str(found) == "no signal between parts is left after a step: an outcome"
