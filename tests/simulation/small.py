"""A small world whose states are all visited: instances of one exactly-once source task and a broker.

Time does not exist here: the chooser picks who does the next thing, and whether the answer to a commit gets lost. A
state is a value: it is copied, compared and left out when it was seen before, so that states are visited and not paths.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from connectx.core.loops.messages import Done, EffectFailed, FailureKind, NotDone, ReportFailed
from connectx.core.messages import BeginTask, TaskProducerReady, TaskStopped
from connectx.core.source import messages as m
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.progress import SourceTaskSettings
from connectx.model.ids import TaskId, TopicPartition
from tests.simulation.broker import Broker
from tests.simulation.broker_logs import Outcome
from tests.simulation.chooser import Chooser, Exhaustive
from tests.simulation.direct_producer import DirectProducer
from tests.simulation.invariants import broken
from tests.support.task_loops import feed

RECORDS = 2
INSTANCES = 2
ID = "g-c-0"
DATA, OFFSETS = TopicPartition("data", 0), TopicPartition("offsets", 0)


TASK = TaskId("c", 0)


@dataclass
class Instance:
    """One instance of the task, with the effect that it is about to carry out; None when it rests or has ended."""

    producer: DirectProducer
    core: SourceTaskCore = field(default_factory=lambda: SourceTaskCore(SourceTaskSettings(TASK, True, ID)))
    todo: Any = None
    position: int = 0
    lost_answers: int = 0
    is_committed: bool = False

    def feed(self, stimulus: Any) -> None:
        self.todo = None
        for effect in feed(self.core, stimulus).effects:
            self.todo = effect
        if isinstance(self.todo, m.Idle | ReportFailed | TaskStopped):
            self.todo = None


@dataclass
class Small:
    """A state."""

    broker: Broker = field(default_factory=Broker)
    instances: list[Instance] = field(default_factory=list)

    def step(self, chooser: Chooser) -> bool:
        """Somebody does the next thing; False when nothing is left to do."""
        able = [instance for instance in self.instances if self.is_able(instance)]
        starts = len(self.instances) < INSTANCES
        if not able and not starts:
            return False
        picked = chooser.pick(len(able) + starts)
        if picked == len(able):
            self.start()
        else:
            able[picked].feed(self.carry_out(able[picked], chooser))
        self.check()
        return True

    def start(self) -> None:
        """A new instance: its producer fences the older ones."""
        instance = Instance(DirectProducer(ID))
        instance.producer.init(self.broker.transactions)
        self.instances.append(instance)
        instance.feed(TaskProducerReady(TASK, 0, instance.producer.epoch))
        instance.feed(BeginTask(TASK, 0))
        instance.feed(m.PluginStarted({"p": 0}))

    def is_able(self, instance: Instance) -> bool:
        waits = isinstance(instance.todo, m.ReadOffsets) and self.broker.last_stable("offsets", 0) < self.broker.end(
            "offsets", 0
        )
        return instance.todo is not None and not waits

    def carry_out(self, instance: Instance, chooser: Chooser) -> Any:
        broker, producer = self.broker, instance.producer
        match instance.todo:
            case m.ReadOffsets():
                offsets = [value for _, value in broker.read("offsets", 0, 0)]
                instance.position = offsets[-1] if offsets else 0
                return m.OffsetsRead({"n": instance.position} if offsets else None)
            case m.Poll():
                if instance.position == RECORDS:
                    return m.PolledNothing()
                instance.position += 1
                return m.Polled(instance.position, 1, {"n": instance.position})
            case m.BeginTransaction():
                instance.is_committed = False
                return answer(producer.begin(broker.transactions), m.TransactionBegun(3))
            case m.SendSlice(number):
                producer.send(broker.transactions, DATA, [number])
                return m.Sent()
            case m.WriteOffsets():
                producer.send(broker.transactions, OFFSETS, [instance.position])
                return Done()
            case m.CommitTransaction():
                return self.commit(instance, chooser)
        raise AssertionError(f"{instance.todo} is not expected here")

    def commit(self, instance: Instance, chooser: Chooser) -> Any:
        """Once in the life of an instance the answer may get lost: then it asks again."""
        if instance.is_committed:
            still = instance.producer.epoch == self.broker.transactions.epochs[ID]
            return answer(Outcome.OK if still else Outcome.FENCED, Done())
        outcome = instance.producer.end(self.broker.transactions, commit=True)
        instance.is_committed = outcome is Outcome.OK
        if instance.lost_answers == 0 and chooser.pick(2) == 1:
            instance.lost_answers += 1
            return NotDone("undecided")
        return answer(outcome, Done())

    def check(self) -> None:
        """2 and 3, on what a read_committed consumer sees."""
        seen = [value for _, value in self.broker.read("data", 0, 0)]
        if seen != list(range(1, len(seen) + 1)):
            broken(2, f"a consumer sees {seen}")
        offsets = [value for _, value in self.broker.read("offsets", 0, 0)]
        if self.broker.last_stable("data", 0) == self.broker.end("data", 0) and offsets[-1:] != seen[-1:]:
            broken(3, f"a consumer sees {seen}, and the source offsets are {offsets}")


def answer(outcome: Outcome, success: Any) -> Any:
    if outcome is Outcome.OK:
        return success
    return EffectFailed("the producer is refused", FailureKind.FENCED)


def explore(first: Small) -> list[Small]:
    """Visit every state that can be reached; returns those from which nothing more can happen."""
    seen, left, ends = {repr(first)}, [first], []
    while left:
        state = left.pop()
        ways, moved = Exhaustive(), False
        while ways.next_round():
            world = copy.deepcopy(state)
            if not world.step(ways):
                continue
            moved = True
            if (key := repr(world)) not in seen:
                seen.add(key)
                left.append(world)
        if not moved:
            ends.append(state)
    return ends
