"""The rules of the task loops: each is broken by a mutant, and holds in the sound loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

from connectx.core.loops.lifecycle import LoopRule, TaskLoop
from connectx.core.loops.messages import Done, EffectFailed, NotDone
from connectx.core.loops.retries import Retry
from connectx.core.sink import messages as sink
from connectx.core.sink.bulk import BulkLane, Job
from connectx.core.sink.loop import SinkTaskCore
from connectx.core.sink.progress import Batch, Commit, Progress, SinkTaskSettings
from connectx.core.sink.rules import SinkRule
from connectx.core.source import messages as source
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.messages import Polled, PolledNothing, Sent, TransactionBegun
from connectx.core.source.rules import SourceRule
from connectx.model.ids import TaskId, TopicPartition
from tests.support.source_loop import AT_5, AT_LEAST_ONCE, FILE, ORDERS, exactly_once, working
from tests.support.task_loops import Orders, numbered

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
OUT = Orders(TaskId("out", 1))


@dataclass(frozen=True)
class Mutant:
    """A way to break a loop by replacing one method, and the stimuli after which the rule finds it."""

    rule: StrEnum
    cls: type
    method: str
    replacement: Callable[..., Any]
    stimuli: tuple[Any, ...]
    begun: bool = True


def nothing(*args: object, **named: object) -> None:
    """The call is forgotten."""


def sets(**fields: Any) -> Callable[..., None]:
    """The call only sets these fields."""

    def set_them(self: Any, *args: object, **named: object) -> None:
        for name, value in fields.items():
            setattr(self, name, value)

    return set_them


def asks(effect: Any) -> Callable[..., None]:
    def ask(self: Any, *args: object) -> None:
        self.ask(effect)

    return ask


def ask_twice(self: Any, effect: Any) -> None:
    for _ in range(2):
        self.last_number += 1
        self.outstanding[self.last_number] = effect


def wait_and_go_on(self: Any) -> None:
    TaskLoop.wait(self)
    self.pause_requested = False


def wait_and_fail(self: Any) -> None:
    TaskLoop.wait(self)
    self.fail("x")


def wait_and_retry(self: Any) -> None:
    TaskLoop.wait(self)
    self.retry = Retry(1, 0, 9)


def job_beside_a_slice(self: Any) -> None:
    self.bulk.begin(source.BulkPolled(1, 1, None))
    self.ask(source.BeginTransaction())


def commit_other_offsets(self: Any) -> None:
    self.ask(source.WriteOffsets(()))


def own_some(self: Progress, positions: Any) -> None:
    self.positions.update(positions)


def below(self: Progress, batch: Batch, records: int) -> None:
    self.positions |= {partition: end + 1 for partition, (_, end) in batch.ranges.items()}


def take_with_gap(self: Progress, fetched: Any) -> list[Batch]:
    return [Batch({partition: (first + 1, end + 1) for partition, (first, end) in fetched.ranges.items()})]


def take_two(self: Progress, fetched: Any) -> list[Batch]:
    retry = Retry(1, 0, 10)
    return [Batch({A0: (10, 12)}), Batch({A1: (20, 22)}, retry=retry)]


def number_back(self: Progress, partitions: Any, now_ms: int) -> Commit:
    self.commit = Commit(self.sequence, {}, 0, now_ms)
    self.sequence += 1
    return self.commit


def job_at_once(self: BulkLane, fetched: Any) -> None:
    self.job = Job(1, {})


def epoch_back(self: Any, positions: Any) -> None:
    self.epoch -= 1


POLLED = Polled(1, 2, AT_5.offset)
OPEN = (POLLED, TransactionBegun(3))
FETCHED = sink.Fetched(1, {A0: (10, 15)})
PUT = (FETCHED, sink.PutDone(1, 5))

MUTANTS = (
    Mutant(LoopRule.WORK_IS_ASKED, SourceTaskCore, "_continue", nothing, (PolledNothing(),)),
    Mutant(LoopRule.PAUSE_IS_ORDERED, SourceTaskCore, "wait", wait_and_go_on, (ORDERS.pause, PolledNothing())),
    Mutant(
        LoopRule.FAILURE_ENDS,
        SourceTaskCore,
        "wait",
        wait_and_fail,
        (ORDERS.pause, PolledNothing()),
    ),
    Mutant(LoopRule.NEVER_BACK, SourceTaskCore, "_continue", sets(last_number=0), (PolledNothing(),)),
    Mutant(SourceRule.ONE_EFFECT, SourceTaskCore, "ask", ask_twice, (PolledNothing(),)),
    Mutant(
        SourceRule.OPEN_IN_PHASE,
        SourceTaskCore,
        "_record_abort",
        nothing,
        (*OPEN, EffectFailed("x"), Done()),
    ),
    Mutant(SourceRule.PARTS_LEFT, SourceTaskCore, "_proceed", sets(part=1), (POLLED,)),
    Mutant(SourceRule.SLICE_OR_JOB, SourceTaskCore, "_proceed", job_beside_a_slice, (POLLED,)),
    Mutant(
        SourceRule.ABORT_IS_ASKED,
        SourceTaskCore,
        "_obey",
        lambda self, boundary: sets(aborting=True)(self),
        (PolledNothing(),),
    ),
    Mutant(
        SourceRule.RETRY_WORKS,
        SourceTaskCore,
        "wait",
        wait_and_retry,
        (ORDERS.pause, PolledNothing()),
    ),
    Mutant(
        SourceRule.OFFSETS_NEED_START,
        SourceTaskCore,
        "_on_started",
        lambda self, offset: (self.progress.sent(None, {"n": 1}, 1), self.ask(source.Poll(None))),
        (ORDERS.begin, source.PluginStarted(FILE), source.OffsetsRead(None)),
        begun=False,
    ),
    Mutant(SourceRule.COMMIT_HAS_OFFSETS, SourceTaskCore, "_commit", commit_other_offsets, (*OPEN, Sent())),
    Mutant(
        SourceRule.FAILING_ENDS,
        SourceTaskCore,
        "_on_failure",
        lambda self, failed: (self.fail(failed), self.ask(source.Poll(None))),
        (EffectFailed("x"),),
    ),
    Mutant(SinkRule.ONE_EFFECT, SinkTaskCore, "_continue", lambda self: ask_twice(self, sink.Poll(1, 1)), (Done(),)),
    Mutant(SinkRule.OWNED_ONLY, Progress, "own", own_some, (sink.PartitionsAssigned({TopicPartition("b", 0): 1}),)),
    Mutant(SinkRule.REACHED, Progress, "put", below, PUT),
    Mutant(SinkRule.BATCH_FOLLOWS, Progress, "take", take_with_gap, (FETCHED,)),
    Mutant(SinkRule.FIRST_IS_RETRIED, Progress, "take", take_two, (FETCHED,)),
    Mutant(SinkRule.JOB_OR_BATCH, BulkLane, "fetched", job_at_once, (FETCHED,)),
    Mutant(
        SinkRule.RELEASING, SinkTaskCore, "_released", nothing, (*PUT, sink.PartitionsRevoked((A0, A1)), NotDone("x"))
    ),
    Mutant(
        SinkRule.COMMIT_IS_LAST, Progress, "begin_commit", number_back, (*PUT, sink.PartitionsRevoked((A0, A1)), Done())
    ),
    Mutant(SinkRule.ALARM_HAS_TIME, SinkTaskCore, "_on_lag", sets(lag_alarm=True), (sink.LagKnown(5),)),
    Mutant(SinkRule.ENDED_IS_EMPTY, SinkTaskCore, "_drop", nothing, (OUT.stop, Done())),
    Mutant(LoopRule.NEVER_BACK, SinkTaskCore, "_on_assigned", epoch_back, (sink.PartitionsAssigned({A0: 1}),)),
)


def loop_of(mutant: Mutant) -> Any:
    """A loop whose first poll is outstanding; a sink owns a-0 and a-1 at 10 and 20."""
    if isinstance(mutant.rule, SourceRule) or mutant.cls is SourceTaskCore:
        return working(exactly_once()) if mutant.begun else SourceTaskCore(AT_LEAST_ONCE)
    core = SinkTaskCore(SinkTaskSettings(TaskId("out", 1), exactly_once=False))
    for stimulus in (OUT.begin, Done(), sink.PartitionsAssigned({A0: 10, A1: 20}), sink.Opened(1, {}), Done()):
        core.handle(numbered(core, stimulus), 0)
    return core


def broken_by(mutant: Mutant, core: Any) -> list[StrEnum]:
    """The rules that the last of the stimuli breaks."""
    broken: list[StrEnum] = []
    for stimulus in mutant.stimuli:
        before = core.marks()
        core.handle(numbered(core, stimulus), 0)
        broken = [found.rule for found in core.check(before)]
    return broken


def name_of(mutant: Mutant) -> str:
    return f"{mutant.rule.name}-{mutant.cls.__name__}.{mutant.method}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_a_rule_finds_its_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    core = loop_of(mutant)
    monkeypatch.setattr(mutant.cls, mutant.method, mutant.replacement)
    assert mutant.rule in broken_by(mutant, core)


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_the_sound_loop_keeps_the_rules_that_find_mutants(mutant: Mutant) -> None:
    assert broken_by(mutant, loop_of(mutant)) == []


def test_every_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in MUTANTS} == {*LoopRule, *SourceRule, *SinkRule}
