"""A sink task in virtual time: the real loop, a consumer of the model broker, and a target with rows and offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from connectx.core.lanes import LaneSettings
from connectx.core.loops.messages import CoresKnown, Done, NotDone, QueryCores, StartPlugin
from connectx.core.messages import PrepareTask, TaskPrepared, TopicUsed
from connectx.core.sink import messages as m
from connectx.core.sink.progress import SinkTaskSettings
from connectx.model.ids import TopicPartition
from connectx.recording.loops import SINK
from tests.simulation.broker_logs import Outcome
from tests.simulation.connections import REQUEST_TIMEOUT_MS, deliver_late
from tests.simulation.sim_consumer import SimConsumer
from tests.simulation.sim_source import TOPIC_PARTITIONS, topic_of
from tests.simulation.sim_task import RETRY_MS, SimTask

if TYPE_CHECKING:
    from tests.simulation.sim_worker import SimWorker

FEED = "feed"  # a topic that the world writes
TOPICS = {FEED: 2, topic_of("a"): TOPIC_PARTITIONS}
FETCH_RECORDS = 6
RECORD_BYTES = 100
Row = tuple[TopicPartition, int]


@dataclass
class Target:
    """What a sink connector writes to. `held` are its own offsets by partition: locked, compared and moved by a put."""

    rows: Counter[Row] = field(default_factory=Counter)
    held: dict[TopicPartition, int] = field(default_factory=dict)
    away_until_ms: int = 0
    """Until when it cannot be reached to open partitions."""

    def put(self, rows: list[Row], ranges: m.Ranges) -> dict[TopicPartition, int] | None:
        """One transaction: rows and offsets; or the offsets that it holds, where others were expected."""
        held = {p: self.held.get(p, start) for p, (start, _) in ranges.items()}
        if self.differs(held, ranges):
            return held
        self.rows.update(rows)
        self.held |= {p: end for p, (_, end) in ranges.items()}
        return None

    def differs(self, held: Mapping[TopicPartition, int], ranges: m.Ranges) -> bool:
        return any(held[p] != start for p, (start, _) in ranges.items())


class SimSink(SimTask):
    """One instance of a sink task. `reads` is where its consumer reads next."""

    def __init__(self, worker: SimWorker, order: PrepareTask, task_set: int) -> None:
        super().__init__(worker, order, task_set)
        world = self.world
        self.connector = order.task.connector
        self.exactly_once = world.is_exactly_once_sink(self.connector)
        self.target = world.targets.setdefault(self.connector, Target())
        self.consumer: SimConsumer | None = None
        self.reads: dict[TopicPartition, int] = {}
        self.paused_partitions: set[TopicPartition] = set()
        self.fetches: dict[int, dict[TopicPartition, list[int]]] = {}
        self.fetched = 0
        self.unflushed: list[Row] = []
        self.staged: dict[int, list[Row]] = {}
        self.committed_jobs: set[int] = set()
        self.job_ends: list[m.BulkStaged | m.BulkFailed] = []
        self.late: list[m.SinkAnswer] = []
        self.polling: m.Poll | None = None
        self.rebalancing: str | None = None
        self.recorded = world.cores.make(
            SINK,
            self.name,
            SinkTaskSettings(
                order.task,
                self.exactly_once,
                instance=order.instance,
                offset_flush_interval_ms=2_000,
                offset_flush_timeout_ms=1_500,
                poll_timeout_ms=3_000,
                puts_nothing=True,
                lanes=LaneSettings(world.bulk_mode, 5 * RECORD_BYTES),
                bulk_core_bytes=2 * RECORD_BYTES,
            ),
        )
        worker.deliver(TaskPrepared(*self.key, "1"), self.key)

    def end(self) -> None:
        super().end()
        if self.consumer is not None and not self.consumer.closed:
            self.consumer.closed = True

    def on_cut(self) -> None:
        if self.consumer is not None:
            self.consumer.cut()

    def effect(self, effect: Any) -> Any:  # a table: one line per effect
        match effect:
            case StartPlugin():
                self.worker.deliver(TopicUsed(self.order.task, FEED), self.key)
                return Done()
            case m.JoinGroup():
                self.consumer = SimConsumer(self, f"connect-{self.connector}", TOPICS)
            case m.Poll():
                self.begin_poll(effect)
            case m.OpenPartitions():
                self.answer(self.open(effect), self.world.latency_ms() + effect.wait_ms)
            case m.Put():
                self.ask_target(lambda: self.put(effect), m.PutFailed(effect.epoch, True, "no answer"))
            case m.PutNothing():
                self.answer(Done(), self.world.latency_ms())
            case m.Flush():
                self.ask_target(self.flush, NotDone("no answer"))
            case m.CommitOffsets():
                self.commit(effect)
            case m.Seek(offsets):
                self.reads |= {p: offset for p, offset in offsets.items() if p in self.reads}
            case m.PausePartitions(partitions):
                self.paused_partitions |= set(partitions)
            case m.ResumePartitions(partitions):
                self.paused_partitions -= set(partitions)
            case m.QueryEnds(epoch, partitions):
                ends = {p: self.world.broker.last_stable(p.topic, p.partition) for p in partitions}
                self.ask_broker(lambda: m.EndsKnown(epoch, ends), m.EndsKnown(epoch, {}))
            case QueryCores():
                self.answer(CoresKnown(self.world.spark_cores), self.world.latency_ms())
            case m.RunBulk():
                self.world.at(self.world.job_ms(), lambda: self.end_job(effect))
            case m.CommitBulk():
                self.ask_target(lambda: self.commit_bulk(effect), m.PutFailed(effect.epoch, True, "no answer"))
            case m.DiscardBulk(token):
                self.discard(token)
            case m.LeaveGroup():
                assert self.consumer is not None, "joined"
                self.consumer.leave()
        return None

    def begin_poll(self, poll: m.Poll) -> None:
        self.polling = poll
        self.busy = True
        token = self.token
        self.world.at(max(1, poll.timeout_ms), lambda: self.end_poll(token))
        self.world.at(1, self.continue_poll)

    def interrupted(self) -> None:
        self.continue_poll()

    def records_came(self) -> None:
        self.continue_poll()

    def end_poll(self, token: int) -> None:
        if token == self.token and self.polling is not None:
            self.answered(token, Done())

    def continue_poll(self) -> None:
        """What a poll does: outcomes of commits, rebalances, then records; an order ends it."""
        if self.polling is None or self.rebalancing is not None or self.dead or self.ended:
            return
        if self.worker.tasks_frozen:
            self.held.append(self.continue_poll)
            return
        while self.late:
            self.loop(self.late.pop(0))
        assert self.consumer is not None, "joined before the first poll"
        if self.consumer.pending:
            self.begin_rebalance(*self.consumer.pending.pop(0))
        elif self.job_ends:
            self.answered(self.token, self.job_ends.pop(0))
        elif (answer := self.fetch(self.polling)) is not None:
            self.answered(self.token, answer)
        elif self.commands:
            self.answered(self.token, Done())

    def begin_rebalance(self, what: str, partitions: tuple[TopicPartition, ...]) -> None:
        """Hand it to the loop in the middle of the poll, which goes on when all that it orders is done."""
        self.rebalancing = what
        self.token += 1
        self.busy = False
        if what == "revoked":
            self.loop(m.PartitionsRevoked(partitions))
        elif what == "lost":
            self.loop(m.PartitionsLost(partitions))
        else:
            assert self.consumer is not None
            group = self.consumer.group
            positions = {p: group.committed(p.topic, p.partition) or 0 for p in partitions}
            self.reads |= positions
            self.loop(m.PartitionsAssigned(positions))

    def end_rebalance(self) -> None:
        assert self.consumer is not None
        assert self.polling is not None
        assert self.rebalancing is not None
        what, self.rebalancing = self.rebalancing, None
        if what != "assigned":
            self.reads = {}
            self.paused_partitions = set()
        self.consumer.carried_out(what)
        self.begin_poll(self.polling)

    def loop(self, stimulus: Any) -> None:
        if self.rebalancing is None and not isinstance(stimulus, m.CommitOutcome):
            self.polling = None
        super().loop(stimulus)
        if self.rebalancing is not None and not self.busy and not self.ended:
            self.end_rebalance()

    def take_requests(self) -> None:
        if self.rebalancing is None:
            super().take_requests()

    def fetch(self, poll: m.Poll) -> m.SinkAnswer | None:
        """Records of a few partitions, or the news that none lie below an offset."""
        found: dict[TopicPartition, list[int]] = {}
        ends: dict[TopicPartition, int] = {}
        for partition in sorted(self.reads):
            first = self.reads[partition]
            stable = self.world.broker.last_stable(partition.topic, partition.partition)
            if partition in self.paused_partitions or stable <= first:
                continue
            records = self.world.broker.read(partition.topic, partition.partition, first, limit=FETCH_RECORDS)
            if records:
                found[partition] = [offset for offset, _ in records]
            else:
                ends[partition] = stable
            self.reads[partition] = found[partition][-1] + 1 if records else stable
        if not (found or ends):
            return None
        ranges = {p: (offsets[0], offsets[-1] + 1) for p, offsets in found.items()}
        full = any(len(offsets) == FETCH_RECORDS for offsets in found.values())
        size_bytes = RECORD_BYTES * sum(end - first for first, end in ranges.values())
        return m.Fetched(poll.epoch, ranges, ends, full, self.keep(found), size_bytes)

    def keep(self, found: dict[TopicPartition, list[int]]) -> int:
        self.fetched += 1
        self.fetches = {n: kept for n, kept in self.fetches.items() if n > self.fetched - 20}
        self.fetches[self.fetched] = found
        return self.fetched

    def end_job(self, job: m.RunBulk) -> None:
        """Executors are done, or lost; also after the task discarded the job, or while its worker is dead."""
        if self.world.fails_put():
            some = {p: min(first + 1, end) for p, (first, end) in job.ranges.items()}
            self.job_ends.append(m.BulkFailed(job.token, "executor lost", some if self.world.lands() else {}))
        else:
            rows = []
            for partition, (first, end) in job.ranges.items():
                records = self.world.broker.read(partition.topic, partition.partition, first)
                rows += [(partition, offset) for offset, _ in records if offset < end]
            self.staged[job.token] = rows
            self.job_ends.append(m.BulkStaged(job.token, len(rows)))
        self.continue_poll()

    def commit_bulk(self, effect: m.CommitBulk) -> m.SinkAnswer:
        """The target takes all that was staged, or refuses it."""
        rows = self.staged.get(effect.token, [])
        answer: m.SinkAnswer = m.PutDone(effect.epoch, len(rows))
        if self.exactly_once:
            answer = self.put_at_once(rows, effect)
        else:
            self.target.rows.update(rows)
        if isinstance(answer, m.PutDone):
            self.committed_jobs.add(effect.token)
        return answer

    def discard(self, token: int) -> None:
        """Remove what was staged. What a commit has made visible stays, even if the commit was not answered."""
        self.staged.pop(token, None)

    def open(self, effect: m.OpenPartitions) -> m.SinkAnswer:
        """Offsets that the target holds, if it can be reached by then."""
        if self.world.now_ms + effect.wait_ms < self.target.away_until_ms:
            return NotDone("the target is away")
        held = {p: self.target.held[p] for p in effect.partitions if p in self.target.held}
        return m.Opened(effect.epoch, held if self.exactly_once else {})

    def ask_target(self, act: Any, no_answer: Any) -> None:
        """As a broker: what was sent may be done though nobody hears of it. A broker that is away does not matter."""
        self.busy = True
        token = self.token
        self.world.at(self.world.put_ms(), lambda: self.reach_target(token, act, no_answer))

    def reach_target(self, token: int, act: Any, no_answer: Any) -> None:
        is_gone = token != self.token or self.dead
        if is_gone and not self.world.lands():
            return
        if self.world.fails_put():
            answer = no_answer
        else:
            answer = act()
            answer = no_answer if self.world.loses_reply() else answer
        if not is_gone:
            self.answer(answer, 1)

    def put(self, put: m.Put) -> m.SinkAnswer:
        found = self.fetches[put.number]
        rows = [(p, offset) for p in put.ranges for offset in found.get(p, ())]
        if not self.exactly_once:
            self.unflushed += rows
            return m.PutDone(put.epoch, len(rows))
        return self.put_at_once(rows, put)

    def put_at_once(self, rows: list[Row], put: m.Put | m.CommitBulk) -> m.SinkAnswer:
        """Rows and offsets in one transaction."""
        held = self.target.put(rows, put.ranges)
        if held is not None:
            return m.PutRefused(put.epoch, held, "the target holds other offsets", len(rows))
        self.world.checks.sinks.on_rows(self, rows)
        return m.PutDone(put.epoch, len(rows))

    def flush(self) -> m.SinkAnswer:
        self.target.rows.update(self.unflushed)
        self.unflushed = []
        return Done()

    def commit(self, effect: m.CommitOffsets) -> None:
        """With `wait` the answer is that of the effect, otherwise some later poll tells. A lost one may arrive late."""
        world, consumer, token = self.world, self.consumer, self.token
        assert consumer is not None, "joined"
        reach = partial(consumer.commit, consumer.membership, consumer.node, dict(effect.offsets))
        self.busy |= effect.wait

        def arrive() -> None:
            if self.dead:
                deliver_late(world, reach)
            elif not self.worker.sends or world.broker_down:
                lose()
            else:
                outcome = reach()
                if not self.worker.receives or world.loses_reply():
                    lose()
                else:
                    world.at(world.reply_ms(), lambda: tell(outcome))

        def lose() -> None:
            deliver_late(world, reach)
            tell(None)

        def tell(outcome: Outcome | None) -> None:
            answer = _answer(effect, outcome)
            if outcome is not None:
                consumer.on_committed(outcome)
            if not effect.wait:
                self.late.append(answer)
                self.continue_poll()
            elif token == self.token:
                self.answer(answer, RETRY_MS if outcome is None else 0)

        if world.is_stuck():
            world.at(REQUEST_TIMEOUT_MS, lose)
        else:
            world.at(world.latency_ms(), arrive)


def _answer(effect: m.CommitOffsets, outcome: Outcome | None) -> m.SinkAnswer:
    if outcome is Outcome.OK:
        return m.OffsetsCommitted(effect.sequence)
    not_owner = outcome in (Outcome.UNKNOWN_MEMBER, Outcome.ILLEGAL_GENERATION)
    return m.CommitFailed(effect.sequence, "no answer" if outcome is None else outcome.value, not_owner)
