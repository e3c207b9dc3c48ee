"""A source task in virtual time: the real loop, a plugin over numbered records, a producer of the model broker.

A connector has four source partitions, shared out among its tasks; a source partition is the numbers 0, 1, 2 and so on
as far as the world has made them. Every fifth is dropped by a transform. Source offsets count all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from connectx.core.messages import PrepareTask, TaskPrepared, TaskProducerReady, TopicUsed
from connectx.core.source import messages as m
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.progress import SourceTaskSettings
from connectx.model.states import TransactionBoundary
from tests.simulation.broker_logs import Outcome
from tests.simulation.sim_task import SimTask

if TYPE_CHECKING:
    from tests.simulation.sim_worker import SimWorker

PARTITIONS = 4  # source partitions of a connector
TOPIC_PARTITIONS = 2
SLICE_RECORDS = 4
OFFSETS_TOPIC = "connect-offsets"


def topic_of(connector: str) -> str:
    return f"data-{connector}"


def is_dropped(number: int) -> bool:
    """True for records that a transform drops."""
    return number % 5 == 4


def task_partitions(config: Mapping[str, str | None]) -> list[int]:
    """Source partitions in a task config."""
    return [int(number) for number in (config.get("partitions") or "").split(",") if number]


class SimSource(SimTask):
    """One instance of a source task. `positions` are where its plugin polls next, by source partition."""

    def __init__(self, worker: SimWorker, order: PrepareTask, task_set: int) -> None:
        super().__init__(worker, order, task_set)
        world = self.world
        self.connector = order.task.connector
        self.transactional_id = f"g-{order.task}"
        self.partitions = task_partitions(order.task_config)
        self.positions: dict[int, int] = {}
        self.at_hand: tuple[int, list[int]] = (0, [])
        self.slices = 0
        self.next = 0
        self.idle = False
        self.refused: Outcome | None = None  # what a send was told; the client says it at the commit
        self.is_committed = False
        self.unsent: list[tuple[str, int, list[Any]]] = []
        self.core = SourceTaskCore(
            SourceTaskSettings(
                order.task,
                order.exactly_once,
                self.transactional_id,
                TransactionBoundary.INTERVAL if world.boundary_ms else TransactionBoundary.POLL,
                boundary_interval_ms=world.boundary_ms,
                offset_flush_interval_ms=2_000,
                offset_flush_timeout_ms=1_000,
            )
        )
        worker.deliver(TaskPrepared(*self.key, "1"), self.key)

    @property
    def is_fenced(self) -> bool:
        """True when a newer producer has its transactional id."""
        return self.producer_epoch != self.world.broker.epochs.get(self.transactional_id)

    @property
    def can_commit(self) -> bool:
        return self.order.exactly_once and self.running and not self.is_fenced

    def init_producer(self) -> None:
        def init() -> m.SourceStimulus:
            self.producer_epoch = self.world.broker.init_transactions(
                self.transactional_id, self.world.transaction_timeout_ms
            )
            return m.ProducerReady(self.producer_epoch)

        self.ask_broker(init)

    def interrupted(self) -> None:
        """An idle plugin is woken."""
        if self.idle:
            self.idle = False
            self.answer(m.Idled(), 1)

    def records_came(self) -> None:
        self.interrupted()

    # ------------------------------------------------------------------------------------------------------- effects

    def loop(self, stimulus: Any) -> None:
        super().loop(stimulus)
        if isinstance(stimulus, m.ProducerReady) and not self.ended:
            self.worker.deliver(TaskProducerReady(*self.key, stimulus.producer_epoch), self.key)

    def effect(self, effect: Any) -> Any:  # a table: one line per effect
        match effect:
            case m.StartPlugin():
                self.worker.deliver(TopicUsed(self.order.task, topic_of(self.connector)), self.key)
                return m.PluginStarted({"p": self.partitions[0] if self.partitions else -1})
            case m.ReadOffsets():
                self.busy = True
                self.world.at(self.world.latency_ms(), partial(self.read_offsets, self.token, None))
            case m.Poll():
                self.answer(None, self.world.poll_ms())
            case m.Idle():
                self.wait(effect.until_ms)
            case m.BeginTransaction():
                self.is_committed, self.refused = False, None
                outcome = self.world.broker.begin(self.transactional_id, self.epoch)
                return m.TransactionBegun() if outcome is Outcome.OK else _failed(outcome)
            case m.SendSlice():
                return self.send_slice(effect)
            case m.WriteOffsets():
                return self.write_offsets(effect)
            case m.CommitTransaction():
                self.ask_broker(self.commit, m.CommitUndecided())
            case m.AbortTransaction():
                self.ask_broker(self.abort, m.TransactionAborted("no answer"))
            case m.FlushAndCommitOffsets():
                self.flush(effect, self.world.now_ms + effect.timeout_ms)
        return None

    @property
    def epoch(self) -> int:
        assert self.producer_epoch is not None, "the producer was initialised before"
        return self.producer_epoch

    def read_offsets(self, token: int, end: int | None) -> None:
        """Take the end of the offsets topic, and wait until all below it is stable."""
        if token != self.token or self.dead:
            return
        if self.worker.sends and self.worker.receives and not self.world.broker_down:
            end = self.world.broker.end(OFFSETS_TOPIC, 0) if end is None else end
            if self.world.broker.last_stable(OFFSETS_TOPIC, 0) >= end:
                self.answered(token, self.offsets_read())
                return
        self.world.at(100, lambda: self.read_offsets(token, end))

    def offsets_read(self) -> m.SourceStimulus:
        offsets = self.world.checks.data.offsets_in_topic()
        self.positions = {p: offsets.get((self.connector, p), 0) for p in self.partitions}
        own = self.partitions[0] if self.partitions else -1
        return m.OffsetsRead({"n": self.positions[own]} if (self.connector, own) in offsets else None)

    def answered(self, token: int, stimulus: Any) -> None:
        """A poll sees what is there when it ends."""
        if stimulus is None and token == self.token and not (self.dead or self.ended or self.worker.tasks_frozen):
            stimulus = self.poll()
        super().answered(token, stimulus)

    def poll(self) -> m.SourceStimulus:
        for turn in range(len(self.partitions)):
            partition = self.partitions[(self.next + turn) % len(self.partitions)]
            first, end = self.positions[partition], self.world.made(self.connector, partition)
            if first < end:
                self.next += turn + 1
                last = min(end, first + SLICE_RECORDS)
                numbers = [number for number in range(first, last) if not is_dropped(number)]
                self.positions[partition] = last
                self.at_hand = partition, numbers
                self.slices += 1
                of = None if partition == self.partitions[0] else {"p": partition}
                dropped = last - first - len(numbers)
                reason = "dropped by a transform" if dropped else ""
                return m.Polled(self.slices, len(numbers), {"n": last}, of, dropped, reason)
        return m.PolledNothing()

    def wait(self, until_ms: int | None) -> None:
        """Idle until there are records, an order comes, or time is over."""
        self.busy = self.idle = True
        if any(self.positions[p] < self.world.made(self.connector, p) for p in self.partitions):
            self.interrupted()
        elif until_ms is not None:
            token = self.token
            self.world.at(max(1, until_ms - self.world.now_ms), lambda: self.wake(token))

    def wake(self, token: int) -> None:
        if token == self.token:
            self.idle = False
            self.answered(token, m.Idled())

    def send_slice(self, effect: m.SendSlice) -> m.SourceStimulus:
        partition, numbers = self.at_hand
        values = [(partition, number) for number in numbers]
        self.send(topic_of(self.connector), partition % TOPIC_PARTITIONS, values)
        return m.SliceSent(effect.slice_number)

    def write_offsets(self, effect: m.WriteOffsets) -> m.SourceStimulus:
        self.send(OFFSETS_TOPIC, 0, self.offset_records(effect.offsets))
        return m.OffsetsWritten()

    def offset_records(self, offsets: tuple[m.PartitionOffset, ...]) -> list[Any]:
        return [((self.connector, o.partition["p"]), o.offset["n"]) for o in offsets]

    def send(self, topic: str, partition: int, values: list[Any]) -> None:
        """A client buffers and sends; it tells of a refusal only at the end of the transaction."""
        if not self.order.exactly_once:
            self.unsent.append((topic, partition, values))
            if len(self.unsent) == 1:
                self.world.at(self.world.latency_ms(), self.deliver_unsent)
        elif self.refused is None:
            outcome = self.world.broker.send(self.transactional_id, self.epoch, topic, partition, values)
            self.refused = None if outcome is Outcome.OK else outcome

    def deliver_unsent(self) -> None:
        """At-least-once: what was handed to the producer arrives in its order, also after the task's end."""
        if self.worker.sends and not self.world.broker_down:
            while self.unsent and (not self.dead or self.world.lands()):
                topic, partition, values = self.unsent.pop(0)
                self.world.broker.send_plain(topic, partition, values)
            self.world.data_came()
            if self.dead:
                self.unsent = []
        elif not self.dead:
            self.world.at(200, self.deliver_unsent)

    def commit(self) -> m.SourceStimulus:
        """The broker ends the transaction; asked again, it says the same again unless somebody has fenced."""
        if self.is_committed:
            return _failed(Outcome.FENCED) if self.is_fenced else m.TransactionCommitted()
        outcome = self.refused or self.world.broker.commit(self.transactional_id, self.epoch)
        if outcome is not Outcome.OK:
            return _failed(outcome)
        self.is_committed = True
        self.world.checks.data.on_commit(self)
        self.world.data_came()
        return m.TransactionCommitted()

    def abort(self) -> m.SourceStimulus:
        outcome = self.refused or self.world.broker.abort(self.transactional_id, self.epoch)
        return m.TransactionAborted(None if outcome is Outcome.OK else outcome.value)

    def flush(self, effect: m.FlushAndCommitOffsets, until_ms: int, *, written: bool = False) -> None:
        """Wait for what was sent, send offsets, wait for them; look every few ms."""
        self.busy = True
        token = self.token

        def look() -> None:
            if token != self.token or self.dead:
                return
            if self.world.now_ms > until_ms:
                self.answered(token, m.OffsetsFlushFailed("not acknowledged in time"))
            elif self.unsent:
                self.world.at(50, look)
            elif not written:
                self.send(OFFSETS_TOPIC, 0, self.offset_records(effect.offsets))
                self.flush(effect, until_ms, written=True)
            else:
                self.answered(token, m.OffsetsFlushed())

        self.world.at(3, look)


def _failed(outcome: Outcome) -> m.EffectFailed:
    kind = m.FailureKind.EXPIRED if outcome is Outcome.EXPIRED else m.FailureKind.FENCED
    return m.EffectFailed(f"the producer is refused in this test: {json.dumps(outcome.value)}", kind)
