"""A source task in virtual time: the real loop and producer, a plugin over numbered records.

A connector has four source partitions, shared out among its tasks; a source partition is the numbers 0, 1, 2 and so on
as far as the world has made them. Every fifth is dropped by a transform. Source offsets count all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from connectx.core.lanes import LaneSettings
from connectx.core.loops.messages import CoresKnown, Done, EffectFailed, FailureKind, NotDone, QueryCores, StartPlugin
from connectx.core.messages import CancelTask, PrepareTask, TaskPrepared, TaskProducerReady, TopicUsed
from connectx.core.producer import errors
from connectx.core.producer import messages as msg
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.core.source import messages as m
from connectx.core.source.progress import SourceTaskSettings
from connectx.model.ids import TopicPartition
from connectx.model.states import TransactionBoundary
from connectx.recording.loops import SOURCE
from tests.simulation.producer_requests import is_fenced
from tests.simulation.sim_job import SimJob
from tests.simulation.sim_producer import SimProducer
from tests.simulation.sim_task import SimTask

if TYPE_CHECKING:
    from tests.simulation.sim_worker import SimWorker

PARTITIONS = 4  # source partitions of a connector
TOPIC_PARTITIONS = 2
SLICE_RECORDS = 4
OFFSETS_TOPIC = "connect-offsets"
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
COMMIT_MS = 1_000  # until a commit counts as undecided
ABORT_MS = 1_000
CLOSE_MS = 3_000  # for what an at-least-once task has not sent yet
Found = m.SourceAnswer | TaskProducerReady | None


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
        self.tables: list[list[int]] = []
        self.slices = 0
        self.next = 0
        self.idle = False
        self.producer: SimProducer | None = None
        self.awaited: tuple[int, Callable[[], Found]] | None = None  # the token, and what the effect waits for
        self.is_committing = False
        self.begun_ms = 0
        self.job: SimJob | None = None
        self.recorded = world.cores.make(
            SOURCE,
            self.name,
            SourceTaskSettings(
                order.task,
                order.exactly_once,
                self.transactional_id,
                TransactionBoundary.INTERVAL if world.boundary_ms else TransactionBoundary.POLL,
                instance=order.instance,
                boundary_interval_ms=world.boundary_ms,
                offset_flush_interval_ms=2_000,
                offset_flush_timeout_ms=1_000,
                lanes=LaneSettings(world.source_bulk, min_bytes=SLICE_RECORDS),
            ),
        )
        worker.deliver(TaskPrepared(*self.key, "1"), self.key)

    @property
    def is_fenced(self) -> bool:
        """True when its producer cannot commit any more, or not yet."""
        return self.producer is None or is_fenced(self.world.broker.transactions, self.producer)

    @property
    def can_commit(self) -> bool:
        return self.order.exactly_once and self.running and not self.is_fenced

    @property
    def live(self) -> SimProducer:
        assert self.producer is not None, "the producer was initialised before"
        return self.producer

    def init_producer(self) -> None:
        self.start_producer()
        self.wait_for(self.ready)

    def start_producer(self) -> None:
        exactly_once = self.order.exactly_once
        settings = msg.ProducerSettings(
            self.transactional_id if exactly_once else None,
            idempotent=exactly_once,
            transaction_timeout_ms=self.world.transaction_timeout_ms,
        )
        self.producer = SimProducer(self.world, self.worker, settings, self, self.after_step)
        self.worker.producers.append(self.producer)
        self.producer.handle(msg.Call.INITIALIZE)

    def ready(self) -> Found:
        if self.live.phase is not Phase.READY:
            return None
        self.producer_epoch = self.live.core.epoch
        return TaskProducerReady(*self.key, self.producer_epoch)

    def wait_for(self, outcome: Callable[[], Found], timeout_ms: int | None = None, no_answer: Found = None) -> None:
        """Answer the outstanding effect with what the producer comes to, or when time is over."""
        self.busy = True
        token = self.token
        self.awaited = token, outcome
        if timeout_ms is not None:
            self.world.at(timeout_ms, lambda: self.answered(token, no_answer))
        self.after_step()

    def after_step(self) -> None:
        """The producer has made a step: it may be what an effect waits for."""
        if self.live.phase is Phase.FAILED:
            self.world.checks.on_producer_failed(self.live)
        if self.awaited is None or self.awaited[0] != self.token:
            return
        if (found := self.awaited[1]()) is not None:
            self.awaited = None
            self.answer(found, 0)

    def execute(self, command: Any) -> None:
        """A cancelled task's producer drops what it has not sent."""
        if isinstance(command, CancelTask) and self.producer is not None:
            self.producer.handle(msg.Call.PURGE)
        super().execute(command)

    def end(self) -> None:
        """Without transactions, what was handed to the producer is sent for a while, unless the task was cancelled."""
        super().end()
        if self.job is not None:
            self.job.leave()
        if self.producer is None:
            return
        if self.order.exactly_once or self.cancelled or self.dead:
            self.producer.abandon()
        else:
            self.world.at(CLOSE_MS, self.producer.abandon)

    def interrupted(self) -> None:
        """An idle plugin is woken."""
        if self.idle:
            self.idle = False
            self.answer(m.PolledNothing(), 1)

    def records_came(self) -> None:
        self.interrupted()

    def loop(self, stimulus: Any) -> None:
        super().loop(stimulus)
        if isinstance(stimulus, TaskProducerReady) and not self.ended:
            self.worker.deliver(stimulus, self.key)

    def effect(self, effect: Any) -> Any:  # a table: one line per effect
        match effect:
            case StartPlugin():
                if not self.order.exactly_once:
                    self.start_producer()
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
                self.is_committing = False
                self.wait_for(self.begin)
            case m.QueryWaiting():
                waiting = sum(self.world.made(self.connector, p) - self.positions[p] for p in self.partitions)
                return m.Waiting(waiting)
            case QueryCores():
                return CoresKnown(8)
            case m.QueryRoute():
                return m.RouteKnown(None if self.world.executors_reach_kafka else "no route")
            case m.PollBulk():
                return self.poll_bulk()
            case m.RunBulk():
                self.run_bulk(effect)
            case m.SendSlice():
                return self.send_slice(effect)
            case m.WriteOffsets():
                return self.write_offsets(effect)
            case m.CommitTransaction():
                self.commit()
            case m.AbortTransaction():
                self.abort(effect)
            case m.FlushAndCommitOffsets():
                self.flush(effect)
        return None

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

    def offsets_read(self) -> m.SourceAnswer:
        offsets = self.world.checks.data.offsets_in_topic()
        self.positions = {p: offsets.get((self.connector, p), 0) for p in self.partitions}
        own = self.partitions[0] if self.partitions else -1
        return m.OffsetsRead({"n": self.positions[own]} if (self.connector, own) in offsets else None)

    def answered(self, token: int, stimulus: Any) -> None:
        """A poll sees what is there when it ends."""
        if stimulus is None and token == self.token and not (self.dead or self.ended or self.worker.tasks_frozen):
            stimulus = self.poll()
        super().answered(token, stimulus)

    def poll(self) -> m.SourceAnswer:
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
                return m.Polled(self.slices, len(numbers), {"n": last}, of, dropped, reason, parts=self.divide(last))
        return m.PolledNothing()

    def divide(self, end: int) -> tuple[m.SlicePart, ...]:
        """The tables of the slice at hand, which ends at a number."""
        _, numbers = self.at_hand
        if not self.world.slices_have_tables:
            self.tables = [numbers]
            return ()
        half = len(numbers) // 2
        self.tables = [numbers[:half], numbers[half:]]
        return m.SlicePart(half, None), m.SlicePart(len(numbers) - half, {"n": end})

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
            self.answered(token, m.PolledNothing())

    def send_slice(self, effect: m.SendSlice) -> m.SourceAnswer:
        partition, _ = self.at_hand
        values = [(partition, number) for number in self.tables[effect.part]]
        self.live.append((TopicPartition(topic_of(self.connector), partition % TOPIC_PARTITIONS), values))
        return self.refusal() or m.Sent()

    def poll_bulk(self) -> m.SourceAnswer:
        """All that waits in one source partition; the position moves when it was sent."""
        self.next += 1
        for turn in range(len(self.partitions)):
            partition = self.partitions[(self.next + turn) % len(self.partitions)]
            first, end = self.positions[partition], self.world.made(self.connector, partition)
            if first < end:
                self.at_hand = partition, list(range(first, end))
                self.slices += 1
                of = None if partition == self.partitions[0] else {"p": partition}
                return m.BulkPolled(self.slices, end - first, {"n": end}, of)
        return m.PolledNothing()

    def run_bulk(self, effect: m.RunBulk) -> None:
        """Lend the transaction, let an executor send, and take the loan back when it is done or has failed."""
        self.job = None
        if effect.by_worker:
            self.wait_for(self.sent_by_worker(effect))
            return
        targets = tuple(TopicPartition(topic_of(self.connector), number) for number in range(TOPIC_PARTITIONS))
        if self.order.exactly_once:
            self.live.handle(msg.Lend(targets))
        self.wait_for(lambda: self.bulk_outcome(effect))

    def sent_by_worker(self, effect: m.RunBulk) -> Callable[[], Found]:
        """Send what executors made; it is done when the producer has all answers."""
        partition, read = self.at_hand
        target = TopicPartition(topic_of(self.connector), partition % TOPIC_PARTITIONS)
        kept = [(partition, number) for number in read if not is_dropped(number)]
        self.live.append((target, kept))

        def sent() -> Found:
            if (refused := self.refusal()) is not None:
                return refused
            if not self.live.is_settled:
                return None
            self.positions[partition] = read[-1] + 1
            dropped = len(read) - len(kept)
            return m.BulkSent(effect.slice_number, len(kept), dropped, "dropped by a transform" if dropped else "")

        return sent

    def bulk_outcome(self, effect: m.RunBulk) -> Found:
        partition, read = self.at_hand
        target = TopicPartition(topic_of(self.connector), partition % TOPIC_PARTITIONS)
        kept = [(partition, number) for number in read if not is_dropped(number)]
        if self.job is None:
            if (refused := self.refusal()) is not None:
                return refused
            loan = self.live.core.loan
            if self.order.exactly_once and loan is None:
                return None
            batches = [(target, kept[at : at + SLICE_RECORDS]) for at in range(0, len(kept), SLICE_RECORDS)]
            settings, lost = self.live.core.settings, self.live.lost_epochs
            self.job = SimJob(self.world, settings, loan, lost, batches, self.after_step)
            return None
        job = self.job
        if job.failure is None and not job.is_done:
            return None
        self.awaited = None  # the lender's next step is not for this effect
        job.leave()
        late = job.producer.core.may_arrive_late
        if job.failure is not None:
            why = msg.Failure(errors.LOAN_FAILED, "send records", job.failure)
            self.live.handle(msg.Returned({}, late, why))
            return m.BulkFailed(effect.slice_number, job.failure)
        self.live.handle(msg.Returned({target: len(kept)}, late))
        self.positions[partition] = read[-1] + 1
        dropped = len(read) - len(kept)
        return m.BulkSent(effect.slice_number, len(kept), dropped, "dropped by a transform" if dropped else "")

    def write_offsets(self, effect: m.WriteOffsets) -> m.SourceAnswer:
        self.send_offsets(effect.offsets)
        return self.refusal() or Done()

    def send_offsets(self, offsets: tuple[m.PartitionOffset, ...]) -> None:
        self.live.append((OFFSETS, self.offset_records(offsets)))

    def offset_records(self, offsets: tuple[m.PartitionOffset, ...]) -> list[Any]:
        return [((self.connector, o.partition["p"]), o.offset["n"]) for o in offsets]

    def refusal(self) -> EffectFailed | None:
        """What the next call of a producer reports, None when nothing is wrong."""
        core = self.live.core
        if core.phase is Phase.FAILED and core.failure is not None:
            is_expired = self.world.now_ms - self.begun_ms >= self.world.transaction_timeout_ms
            kind = FailureKind.EXPIRED if is_expired else FailureKind.FENCED
            if core.failure.error not in errors.FENCED:
                kind = FailureKind.FATAL
            return EffectFailed(f"the producer has ended in this test: {core.failure}", kind)
        if core.phase is Phase.REFUSED:
            return EffectFailed(f"the transaction is refused: {core.refusal}", FailureKind.DELIVERY)
        return None

    def begin(self) -> Found:
        if self.live.phase is Phase.READY:
            self.begun_ms = self.world.now_ms
            self.live.handle(msg.Call.BEGIN)
            return m.TransactionBegun(self.live.core.epoch)
        return self.refusal()

    def commit(self) -> None:
        """Ask for the end once; asked again, only wait for it."""
        if not self.is_committing:
            self.is_committing = True
            self.live.handle(msg.Call.COMMIT)
        self.wait_for(self.committed, COMMIT_MS, NotDone("undecided"))

    def committed(self) -> Found:
        if self.live.phase in (Phase.READY, Phase.RENEWING):
            return Done()
        return self.refusal()

    def abort(self, effect: m.AbortTransaction) -> None:
        self.live.handle(msg.Call.ABORT)
        if self.live.phase is Phase.COMMITTING:
            self.answer(NotDone("the commit is not answered yet"), 0)
        elif effect.insist:
            self.wait_for(lambda: self.refusal() if self.live.phase is Phase.FAILED else self.aborted())
        else:
            self.wait_for(self.aborted, ABORT_MS, NotDone("no answer"))

    def aborted(self) -> Found:
        if self.live.phase is Phase.FAILED:
            return NotDone("the producer has ended")
        return Done() if self.live.phase is Phase.READY else None

    def flush(self, effect: m.FlushAndCommitOffsets) -> None:
        """Wait for what was sent, send offsets, wait for them."""
        is_written = False

        def flushed() -> Found:
            nonlocal is_written
            if not self.live.is_settled:
                return None
            if is_written:
                return m.Sent()
            is_written = True
            self.send_offsets(effect.offsets)
            return None

        self.wait_for(flushed, effect.timeout_ms, NotDone("not acknowledged in time"))
