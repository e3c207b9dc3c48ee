"""Ways to break the core, or the order in which its driver carries effects out: what the simulation must find.

A mutant is a function that patches one method for the length of a test. `seed` is one that finds it, so that the test
is cheap; where the core has moved on and it does not any more, others are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from connectx.core import verbs
from connectx.core.clients.messages import Unanswered
from connectx.core.clients.requests import InFlight
from connectx.core.config_log import ConfigLog
from connectx.core.fencing import FencingRound, FencingRounds
from connectx.core.group.leadership import Leadership
from connectx.core.group.rebalance import Rebalance
from connectx.core.group_messages import SendJoinGroup
from connectx.core.lanes import BulkMode
from connectx.core.loops.messages import Done, EffectFailed
from connectx.core.messages import (
    Answer,
    BeginTask,
    ConfigReadToEnd,
    ConfigRecordsWritten,
    ConnectorFailed,
    InitTaskProducer,
    ReadConfigToEnd,
    TaskProducerReady,
    TimerFired,
)
from connectx.core.pending import TaskRead
from connectx.core.producer import messages as msg
from connectx.core.producer.producer import ProducerCore
from connectx.core.sink import messages as sm
from connectx.core.sink.bulk import BulkLane, Job
from connectx.core.sink.loop import SinkTaskCore
from connectx.core.sink.progress import Progress
from connectx.core.source import messages as m
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.messages import SlicePart
from connectx.core.tasks import TaskLife, TaskPhase, Tasks
from connectx.core.timers import Timers
from connectx.core.worker import WorkerCore
from connectx.model.causes import Cause, FencingNotDone, NewTaskConfigs, TaskCountMissing
from connectx.model.config_records import TaskCommitRecord, TaskConfigRecord
from connectx.model.group import Assignment, WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import ExactlyOnceSupport
from tests.simulation.broker_coordinator import Coordinator, Partition
from tests.simulation.broker_logs import Outcome
from tests.simulation.broker_requests import TransactionState
from tests.simulation.connections import Connection, Packet
from tests.simulation.invariants import must
from tests.simulation.producer_mutants import as_librdkafka
from tests.simulation.sim_job import SimJob
from tests.simulation.sim_sink import SimSink, Target
from tests.simulation.sim_source import OFFSETS_TOPIC, SimSource
from tests.simulation.sim_worker import task_config
from tests.simulation.world import World

Hits = list[str]
"""Grows each time when a mutant does other than the sound code would."""


@dataclass(frozen=True)
class Mutant:
    """One way to break it; `invariants` are the numbers that may find it, `seed` or `scenario` what does."""

    name: str
    patch: Callable[[pytest.MonkeyPatch, Hits], None]
    invariants: tuple[int, ...]
    seed: int = 0
    scenario: Callable[[], None] | None = None


def no_fencing(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The leader writes the task count record, and leaves older producers alone."""

    def fence(self: FencingRounds, fencing: FencingRound, recorded: int) -> None:
        hits.append(fencing.connector)
        self._write_record(fencing)

    patch.setattr(FencingRounds, "_fence", fence)


def count_record_too_early(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The record is written while producers are still being fenced."""
    fence = FencingRounds._fence

    def fence_and_write(self: FencingRounds, fencing: FencingRound, recorded: int) -> None:
        hits.append(fencing.connector)
        fence(self, fencing, recorded)
        self._write_record(fencing)

    patch.setattr(FencingRounds, "_fence", fence_and_write)


def zombie_with_slow_fencing() -> None:
    """A stalled worker goes on with a task while the task count is reduced, and fencing takes its time."""
    world = World(3, scheduled_rebalance_max_delay_ms=0)
    world.settle()
    config = {"connector.class": "Source", "name": "a", "tasks.max": "3"}
    world.ask(verbs.Create, "a", config=config)
    world.settle()
    leader = world.leader
    zombie = next(w for w in world.living if w is not leader and w.running and TaskId("a", 0) not in w.running)
    zombie.frozen = True
    fence = leader.fence
    leader.fence = lambda effect: world.at(1_500, lambda: fence(effect))  # type: ignore[method-assign]
    world.ask(verbs.PutConfig, "a", config={**config, "tasks.max": "1"})
    world.run_until(lambda: any(TaskId("a", 0) in worker.running for worker in world.living), look_ms=50)
    world.run_for(10_000)


def late_endtxn(protocol: int) -> None:
    """An EndTxn hangs, is repeated on another connection, and arrives in the next transaction; its worker is killed."""
    world = World(2, protocol=protocol, scheduled_rebalance_max_delay_ms=0)
    world.boundary_ms = 2_000
    world.settle()
    world.ask(verbs.Create, "a", config={"connector.class": "Source", "name": "a", "tasks.max": "1"})
    world.settle()
    arrive = world.arrive
    held: list[tuple[Connection, Packet]] = []

    def hold_the_first(connection: Connection, packet: Packet, *, is_late: bool) -> msg.Answer:
        request = packet.request
        if held or not isinstance(request, msg.EndTransaction) or request.transactional_id != "g-a-0":
            return arrive(connection, packet, is_late=is_late)
        held.append((connection, packet))
        connection.cut()
        return msg.TransactionEnded(None)  # on a connection that is gone

    world.arrive = hold_the_first  # type: ignore[method-assign]
    world.produce()
    transactions = world.broker.transactions
    world.run_until(lambda: bool(held) and world.checks.data.lag("a") is None)
    world.produce()
    world.run_until(lambda: transactions.ids["g-a-0"].state is TransactionState.ONGOING)
    world.run_for(100)
    arrive(*held[0], is_late=True)
    world.kill(next(worker.name for worker in world.living if worker.running))
    world.produce()
    world.run_until(lambda: world.checks.data.lag("a") is None, look_ms=50)


def late_endtxn_of_protocol_1() -> None:
    """The same where one epoch has many transactions."""
    late_endtxn(1)


def late_join_of_a_killed_worker() -> None:
    """A worker was killed and its work has moved; then its last JoinGroup arrives."""
    world = World(3, scheduled_rebalance_max_delay_ms=0)
    world.settle()
    victim = next(worker for worker in world.living if worker is not world.leader)
    joins: list[SendJoinGroup] = []
    execute = victim.execute

    def keep_joins(effect: object) -> None:
        if isinstance(effect, SendJoinGroup):
            joins.append(effect)
        execute(effect)

    victim.execute = keep_joins  # type: ignore[method-assign]
    world.ask(verbs.Create, "a", config={"connector.class": "Source", "name": "a", "tasks.max": "3"})
    world.settle()
    world.kill(victim.name)
    coordinator = world.broker.coordinator
    world.run_until(lambda: joins[-1].member_id not in coordinator.members)
    world.settle()
    generation = coordinator.generation
    world.hand_out(coordinator.join(None, joins[-1]))
    world.run_for(2_000)
    must(9, coordinator.generation == generation, "a worker that is gone takes part in a rebalance")


def worker_that_lags_before_its_producer() -> None:
    """The eight steps of KIP-618."""
    from tests.simulation.test_lagging_worker import lagging_worker, unblock

    unblock(*lagging_worker())


def torn_set_of_task_configs() -> None:
    """Another leader has written one task config of two, and the commit record; the connector cannot mend it."""
    world = World(2)
    world.settle()
    world.ask(verbs.Create, "a", config={"connector.class": "Source", "name": "a", "tasks.max": "2"})
    world.settle()
    owner = next(worker for worker in world.living if worker.connectors)
    owner.deliver(ConnectorFailed(*next(iter(owner.connectors)), "fails in this test"))
    world.run_for(100)
    world.publish_config((TaskConfigRecord(TaskId("a", 0), task_config("new", 0, 2)), TaskCommitRecord("a", 2)))
    world.run_for(3_000)


def record_not_read_back(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """What was ordered to be written counts as written, and a task that starts does not look for the record."""
    write = FencingRounds._write_record
    reason = Tasks._reason_to_refuse

    def write_and_end(self: FencingRounds, fencing: FencingRound) -> None:
        hits.append(fencing.connector)
        write(self, fencing)
        if self.rounds.get(fencing.connector) is fencing:
            self._end(fencing, 200, None)

    def without_record(self: Tasks, life: TaskLife) -> Cause | None:
        found = reason(self, life)
        return None if isinstance(found, TaskCountMissing) else found

    patch.setattr(FencingRounds, "_write_record", write_and_end)
    patch.setattr(Tasks, "_reason_to_refuse", without_record)


def lag_check_left_out(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A task begins although newer task configs came, or it was assigned elsewhere."""
    reason = Tasks._reason_to_refuse

    def none(self: Tasks, life: TaskLife) -> str | None:
        if reason(self, life) is not None:
            hits.append(str(life.task))
        return None

    patch.setattr(Tasks, "_reason_to_refuse", none)
    ignore_news_before_the_start(patch)


def generation_not_compared(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The generation of the task configs that a task was made from is not compared with the newest one."""
    reason = Tasks._reason_to_refuse

    def with_any_generation(self: Tasks, life: TaskLife) -> Cause | None:
        newest = self.context.config.task_config_generation(life.task.connector)
        if newest != life.task_config_generation:
            hits.append(str(life.task))
            life.task_config_generation = newest
        return reason(self, life)

    patch.setattr(Tasks, "_reason_to_refuse", with_any_generation)
    ignore_news_before_the_start(patch)


def ignore_news_before_the_start(patch: pytest.MonkeyPatch) -> None:
    """Newer task configs do not stop what has not begun: only the look before the start is left."""

    def stop_what_runs(self: Tasks, connector: str) -> None:
        for life in self._of(connector):
            if life.phase not in (TaskPhase.FENCING, TaskPhase.INITIALIZING, TaskPhase.VERIFYING):
                self.stop(life.task, NewTaskConfigs())

    patch.setattr(Tasks, "on_new_task_configs", stop_what_runs)


def looks_before_its_producer(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The config topic is read to its end first, and the producer initialised after that."""

    def fenced(self: Tasks, waiter: Any, error: str | None, *, retriable: bool = False) -> None:
        life = self._reported(waiter.task, waiter.instance, TaskPhase.FENCING)
        if life is None:
            return
        if error is not None:
            self._retry_fencing(life, FencingNotDone(error))
            return
        life.phase = TaskPhase.VERIFYING
        life.request_id = self.context.new_request_id(TaskRead(life.task))
        self.context.emit(ReadConfigToEnd(life.request_id, timeout_ms=None))

    def read(self: Tasks, task: TaskId, stimulus: ConfigReadToEnd) -> None:
        life = self.lives[task]
        if (reason := self._reason_to_refuse(life)) is not None:
            self._refuse(life, reason)
            return
        hits.append(str(task))
        life.phase = TaskPhase.INITIALIZING
        self.context.emit(InitTaskProducer(task, life.instance))

    def ready(self: Tasks, stimulus: TaskProducerReady) -> None:
        life = self._reported(stimulus.task, stimulus.instance, TaskPhase.INITIALIZING)
        if life is not None:
            life.phase = TaskPhase.STARTING
            self.context.emit(BeginTask(life.task, life.instance))

    patch.setattr(Tasks, "on_fenced", fenced)
    patch.setattr(Tasks, "on_config_read", read)
    patch.setattr(Tasks, "on_producer_ready", ready)
    ignore_news_before_the_start(patch)


def old_completion_applied(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The answer to any write counts for the one at the head of the queue."""

    on_answer = WorkerCore._on_answer

    def take(self: WorkerCore, answer: Answer) -> None:
        head = self.writer.queue[0] if self.writer.queue else None
        awaited = None if head is None or head.reading else head.request_id
        if isinstance(answer, ConfigRecordsWritten) and awaited not in (None, answer.request_id):
            hits.append(str(answer))
            answer = replace(answer, request_id=awaited)
        on_answer(self, answer)

    patch.setattr(WorkerCore, "_on_answer", take)


def stale_timer_accepted(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A timer that was set anew fires at its old time, too."""

    def expects(self: Timers, fired: TimerFired) -> bool:
        if fired.key in self.awaited and self.awaited[fired.key] != fired.token:
            hits.append(str(fired.key))
        return fired.key in self.awaited

    patch.setattr(Timers, "expects", expects)


def partial_set_acted_on(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A commit counts though some of its task configs are missing."""
    commit = ConfigLog._commit_tasks

    def commit_what_there_is(self: ConfigLog, connector: str, tasks: int) -> Any:
        buffered = self._buffered.get(connector)
        missing = [TaskId(connector, n) for n in range(tasks) if TaskId(connector, n) not in (buffered or {})]
        older = {task: config for task in missing if (config := self.task_config(task)) is not None}
        if buffered and older and len(older) == len(missing):
            hits.append(connector)
            buffered.update(older)
        return commit(self, connector, tasks)

    patch.setattr(ConfigLog, "_commit_tasks", commit_what_there_is)


def leader_writes_without_claim(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A new leader writes at once."""

    def claim(self: Leadership) -> None:
        if self.context.settings.worker.exactly_once_source_support.leader_is_transactional:
            hits.append(self.context.settings.url)
        self._may_write()

    patch.setattr(Leadership, "_claim", claim)


def duplicate_assignment_kept(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """What the leader revoked stays."""
    adopt = Rebalance._adopt

    def keep(self: Rebalance, assignment: Assignment) -> None:
        if assignment.revoked:
            hits.append(str(assignment.revoked))
        adopt(self, replace(assignment, revoked=WorkSet()))

    patch.setattr(Rebalance, "_adopt", keep)


def delay_ignored(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """When the delay for lost work has passed, nobody joins again."""

    def over(self: Rebalance) -> None:
        hits.append("delay")

    patch.setattr(Rebalance, "on_delay_over", over)


def offsets_outside_the_transaction(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """Source offsets are sent by another producer."""

    def write(self: SimSource, effect: Any) -> Any:
        hits.append(str(self.order.task))
        self.world.broker.append(OFFSETS_TOPIC, 0, self.offset_records(effect.offsets))
        return Done()

    patch.setattr(SimSource, "write_offsets", write)


def offsets_before_acknowledgement(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """At-least-once: offsets are committed while records may still be on their way."""

    def flush(self: SimSource, effect: Any) -> None:
        if not self.live.is_settled:
            hits.append(str(self.order.task))
        self.world.broker.append(OFFSETS_TOPIC, 0, self.offset_records(effect.offsets))
        self.answer(m.Sent(), 5)

    patch.setattr(SimSource, "flush", flush)


def source_moves_without_its_records(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The offset of a slice is taken when it was polled, not when its records were sent."""
    polled = SourceTaskCore._on_polled

    def on_polled(self: SourceTaskCore, slice_: Any) -> None:
        if slice_.records:
            hits.append(str(self.settings.task))
            slice_ = replace(slice_, offset={"n": slice_.offset["n"] + 1})
        polled(self, slice_)

    patch.setattr(SourceTaskCore, "_on_polled", on_polled)


def job_done_too_early(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A job reports its records before Kafka has acknowledged them."""

    def is_done(self: SimJob) -> bool:
        if self._batches or self.error is not None:
            return False
        if not self.producer.is_settled:
            hits.append("early")
        return True

    patch.setattr(SimJob, "is_done", property(is_done))


def offsets_read_to_the_stable_end(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A starting task does not wait for transactions that are open in the offsets topic."""

    def read(self: SimSource, token: int, end: int | None) -> None:
        if token == self.token and not self.dead:
            log = self.world.broker.log(OFFSETS_TOPIC, 0)
            if log.last_stable < log.end:
                hits.append(str(self.order.task))
            self.answered(token, self.offsets_read())

    patch.setattr(SimSource, "read_offsets", read)


def sink_commits_what_it_lost(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """Partitions that were taken away are still committed."""

    def keep(self: Progress, partitions: sm.Partitions) -> None:
        hits.append(str(partitions))

    patch.setattr(Progress, "disown", keep)


def sink_commits_before_put(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """What was fetched counts as put."""
    take = Progress.take

    def take_as_put(self: Progress, fetched: sm.Fetched) -> Any:
        taken = take(self, fetched)
        for batch in taken or ():
            hits.append(str(batch.ends))
            self.reached |= batch.ends
        return taken

    patch.setattr(Progress, "take", take_as_put)


def sink_does_not_flush(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """At-least-once: offsets are committed before what was put is durable."""

    def flush(self: SimSink) -> sm.SinkAnswer:
        if self.unflushed:
            hits.append(str(self.order.task))
        return Done()

    patch.setattr(SimSink, "flush", flush)


def offset_ahead_of_tables(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """Each table of a slice has the offset after the whole slice."""
    parts_left = SourceTaskCore._parts_left

    def with_offsets(self: SourceTaskCore) -> tuple[SlicePart, ...]:
        polled, parts = self.current_slice, parts_left(self)
        if polled is None:
            return parts
        hits.extend(str(polled.offset) for part in parts if part.offset is None)
        return tuple(replace(part, offset=polled.offset) for part in parts)

    patch.setattr(SourceTaskCore, "_parts_left", with_offsets)


def a_table_that_cannot_be_sent() -> None:
    """An at-least-once task fails at the second table of a slice, and a user restarts it."""
    world = World(1, exactly_once_source_support=ExactlyOnceSupport.DISABLED)
    world.slices_have_tables = True
    world.settle()
    world.ask(verbs.Create, "a", config={"connector.class": "Source", "name": "a", "tasks.max": "1"})
    world.settle()
    send = SimSource.send_slice
    failed: list[int] = []

    def fail_once(self: SimSource, effect: m.SendSlice) -> m.SourceAnswer:
        if effect.part == 0 or failed:
            return send(self, effect)
        failed.append(effect.slice_number)
        return EffectFailed("a table cannot be sent in this test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimSource, "send_slice", fail_once)
        world.produce()
        world.run_until(lambda: not any(task.running for task in world.all_tasks()))
        world.ask(verbs.RestartTask, "a", task=0)
        world.run_until(lambda: world.checks.data.lag("a") is None, look_ms=50)


def transaction_of_dropped_records_left_open(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A bulk slice whose records are all dropped moves the position, and its transaction stays open."""
    on_sent = SourceTaskCore._on_bulk_sent

    def move(self: SourceTaskCore, sent: m.BulkSent) -> None:
        if sent.records:
            on_sent(self, sent)
            return
        job = self.bulk.succeed(self.now_ms)
        hits.append(str(job.offset))
        self.progress.dropped(job.partition, job.offset or {})
        self._continue()

    patch.setattr(SourceTaskCore, "_on_bulk_sent", move)


def a_job_whose_records_are_all_dropped() -> None:
    """The last record is dropped by a transformation, and then nothing comes for longer than a transaction lasts."""
    world = World(1, protocol=1)
    world.source_bulk = BulkMode.ALWAYS
    world.settle()
    world.ask(verbs.Create, "a", config={"connector.class": "Source", "name": "a", "tasks.max": "1"})
    world.settle()
    world.produce(4)
    world.run_until(lambda: world.checks.data.lag("a") is None)
    world.run_for(1_000)
    world.produce(1)
    world.run_for(2 * world.transaction_timeout_ms)
    world.produce()
    world.run_for(1_000)
    must(9, world.checks.data.lag("a") is None, "the transaction of a job without records has expired")


def bulk_sink(workers: int = 1) -> World:
    """A cluster with a sink whose records are all staged by executors."""
    world = World(workers, scheduled_rebalance_max_delay_ms=0)
    world.bulk_mode = BulkMode.ALWAYS
    world.settle()
    world.ask(verbs.Create, "s", config={"connector.class": "Sink", "name": "s", "tasks.max": "1"})
    world.settle()
    world.produce()
    return world


def lost_job() -> None:
    """The first job fails."""
    world = bulk_sink()
    lost = [True]
    world.fails_put = lambda: bool(lost and lost.pop())  # type: ignore[method-assign]
    world.run_until(lambda: world.checks.sinks.lag("s") is None, look_ms=50)


def unanswered_commit_and_restart() -> None:
    """What executors staged is committed, but no answer comes, and the task is restarted."""
    world = bulk_sink()
    commit = SimSink.commit_bulk
    first: list[SimSink] = []

    def lose(self: SimSink, effect: sm.CommitBulk) -> sm.SinkAnswer:
        answer = commit(self, effect)
        if not first:
            first.append(self)
            world.send(world.leader, verbs.RestartTask("s", 0), lambda reply: None)
        return sm.PutFailed(effect.epoch, True, "no answer") if self is first[0] else answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimSink, "commit_bulk", lose)
        world.run_until(lambda: world.checks.sinks.lag("s") is None, look_ms=50)


def unanswered_commits() -> None:
    """Executors stage records, and for ten seconds the target takes no commit."""
    world = bulk_sink()
    end_ms = world.now_ms + 10_000

    def fails() -> bool:
        tasks = [task for task in world.all_tasks() if isinstance(task, SimSink)]
        return world.now_ms < end_ms and any(task.staged for task in tasks)

    world.fails_put = fails  # type: ignore[method-assign]
    world.run_until(lambda: world.checks.sinks.lag("s") is None, look_ms=50)


def answer_of_a_discarded_job() -> None:
    """A pause discards a job, whose answer comes while the next job runs."""
    world = bulk_sink()
    jobs_ms = [5_000, 20_000]
    world.job_ms = lambda: jobs_ms.pop(0) if jobs_ms else 50  # type: ignore[method-assign]
    world.run_until(lambda: len(jobs_ms) == 1, look_ms=50)
    world.ask(verbs.Pause, "s")
    world.run_for(1_000)
    world.ask(verbs.Resume, "s")
    world.run_until(lambda: not jobs_ms, look_ms=50)
    world.run_until(lambda: world.checks.sinks.lag("s") is None, look_ms=50)


def late_commit_of_a_job() -> None:
    """A worker freezes while the commit of its job is on its way, which arrives after another worker's records."""
    world = bulk_sink(workers=2)
    world.run_until(lambda: world.checks.sinks.lag("s") is None, look_ms=50)
    zombie = next(worker for worker in world.living if worker.running)
    begun: list[bool] = []

    def commit_ms() -> int:
        begun.append(True)
        return 5 if len(begun) > 1 else 30_000

    world.put_ms = commit_ms  # type: ignore[method-assign]
    world.produce()
    world.run_until(lambda: bool(begun), look_ms=5)
    zombie.freeze()
    world.run_until(lambda: world.checks.sinks.lag("s") is None, look_ms=50)
    world.run_for(30_000)
    zombie.wake()
    world.produce()
    world.settle()
    world.run_until(lambda: world.checks.sinks.lag("s") is None, look_ms=50)


def committed_files_removed(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """What a job staged is removed though a commit of it was not answered, and has happened."""

    def discard(self: SimSink, token: int) -> None:
        rows = self.staged.pop(token, [])
        if token in self.committed_jobs:
            hits.append(str(rows))
            self.target.rows.subtract(rows)

    patch.setattr(SimSink, "discard", discard)


def job_counts_as_committed(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A job that was lost counts as one that staged its records."""
    on_failed = SinkTaskCore._on_bulk_failed

    def move(self: SinkTaskCore, failed: sm.BulkFailed) -> None:
        if self.bulk.job is not None and self.bulk.job.token == failed.token:
            hits.append(failed.error)
            self.progress.reached |= {partition: end for partition, (_, end) in self.bulk.job.ranges.items()}
            self.progress.positions |= {partition: end for partition, (_, end) in self.bulk.job.ranges.items()}
        on_failed(self, failed)

    patch.setattr(SinkTaskCore, "_on_bulk_failed", move)


def staged_counts_as_committed(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """Offsets move when executors have staged the records."""
    on_staged = SinkTaskCore._on_staged

    def move(self: SinkTaskCore, staged: sm.BulkStaged) -> None:
        on_staged(self, staged)
        if self.batches:
            hits.append(str(self.batches[0].ends))
            self.progress.put(self.batches[0], staged.records)

    patch.setattr(SinkTaskCore, "_on_staged", move)


def any_job_counts_as_the_current_one(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The answer of a job that was discarded is taken for that of the job that runs."""
    end = BulkLane.end

    def take(self: BulkLane, token: int) -> Job | None:
        if self.job is not None and self.job.token != token:
            hits.append(str(token))
            token = self.job.token
        return end(self, token)

    patch.setattr(BulkLane, "end", take)


def offsets_of_a_job_not_compared(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The target takes what a zombie's job staged."""

    def take(self: SimSink, effect: sm.CommitBulk) -> sm.SinkAnswer:
        rows = self.staged.get(effect.token, [])
        if any(self.target.held.get(p, first) != first for p, (first, _) in effect.ranges.items()):
            hits.append(str(effect.ranges))
        self.target.rows.update(rows)
        self.target.held |= {p: end for p, (_, end) in effect.ranges.items()}
        self.world.checks.sinks.on_rows(self, rows)
        return sm.PutDone(effect.epoch, len(rows))

    patch.setattr(SimSink, "commit_bulk", take)


def target_row_not_compared(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The target takes what a zombie puts."""
    differs = Target.differs

    def never(self: Target, held: Any, ranges: sm.Ranges) -> bool:
        if differs(self, held, ranges):
            hits.append(str(held))
        return False

    patch.setattr(Target, "differs", never)


def unanswered_batch_counts_as_delivered(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A batch whose connection was cut is not sent again."""
    unanswered = ProducerCore._on_unanswered

    def on_unanswered(self: ProducerCore, sent: InFlight[msg.Request], lost: Unanswered) -> None:
        if not isinstance(sent.request, msg.Produce):
            unanswered(self, sent, lost)
            return
        hits.append(lost.reason)
        results = {batch.number: msg.BatchResult() for batch in sent.request.batches}
        self._on_answer(sent, msg.Produced(results))

    patch.setattr(ProducerCore, "_on_unanswered", on_unanswered)


def commit_of_an_older_generation(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """The coordinator takes offsets that a member commits with the generation before, or after it has left."""
    commit = Coordinator.commit_offsets

    def commit_offsets(
        self: Coordinator, member_id: str, generation: int, offsets: Mapping[Partition, int], node: int | None = None
    ) -> Outcome:
        outcome = commit(self, member_id, generation, offsets, node)
        if outcome in (Outcome.ILLEGAL_GENERATION, Outcome.UNKNOWN_MEMBER):
            hits.append(member_id)
            self.offsets |= offsets
            return Outcome.OK
        return outcome

    patch.setattr(Coordinator, "commit_offsets", commit_offsets)


def late_join_of_a_former_member(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A JoinGroup with an id that the coordinator has dropped makes a member of it."""

    def is_known(self: Coordinator, member_id: str) -> bool:
        if member_id not in self.members and member_id not in self.promised:
            hits.append(member_id)
        return True

    patch.setattr(Coordinator, "_is_known", is_known)


MUTANTS = (
    Mutant("no fencing", no_fencing, (1, 2), 45),
    Mutant("count record too early", count_record_too_early, (1, 2), scenario=zombie_with_slow_fencing),
    Mutant("record not read back", record_not_read_back, (4,), 3),
    Mutant("lag check left out", lag_check_left_out, (1, 2, 4), 53),
    Mutant("generation of task configs not compared", generation_not_compared, (1, 2, 4), 128),
    Mutant(
        "config topic read before the producer is initialised",
        looks_before_its_producer,
        (1, 2, 4, 10),
        scenario=worker_that_lags_before_its_producer,
    ),
    Mutant("old completion of a write applied", old_completion_applied, (5, 7, 9), 120),
    Mutant("stale timer token accepted", stale_timer_accepted, (7, 9), 1),
    Mutant("partial task configs acted on", partial_set_acted_on, (6,), scenario=torn_set_of_task_configs),
    Mutant("leader writes without claim", leader_writes_without_claim, (5,), 0),
    Mutant("duplicate assignment kept", duplicate_assignment_kept, (5, 9), 6),
    Mutant("delay ignored", delay_ignored, (9,), 29),
    Mutant("offsets outside the transaction", offsets_outside_the_transaction, (2, 3), 6),
    Mutant("offsets before acknowledgement", offsets_before_acknowledgement, (2, 3), 34),
    Mutant("offset ahead of its records", source_moves_without_its_records, (2, 3), 3),
    Mutant("offset ahead of tables", offset_ahead_of_tables, (3,), scenario=a_table_that_cannot_be_sent),
    Mutant(
        "transaction of dropped records left open",
        transaction_of_dropped_records_left_open,
        (9,),
        scenario=a_job_whose_records_are_all_dropped,
    ),
    Mutant("a job is done before Kafka has its records", job_done_too_early, (2, 3), 1),
    Mutant("offsets read to the stable end only", offsets_read_to_the_stable_end, (2, 3), 102),
    Mutant("sink commits partitions that it lost", sink_commits_what_it_lost, (8,), 15),
    Mutant("sink commits before put", sink_commits_before_put, (8,), 43),
    Mutant("sink commits before flush", sink_does_not_flush, (8,), 3),
    Mutant(
        "files of an unanswered commit removed", committed_files_removed, (8,), scenario=unanswered_commit_and_restart
    ),
    Mutant("a lost job counts as committed", job_counts_as_committed, (8,), scenario=lost_job),
    Mutant("a staged job counts as committed", staged_counts_as_committed, (8,), scenario=unanswered_commits),
    Mutant(
        "answer of a discarded job taken", any_job_counts_as_the_current_one, (8, 9), scenario=answer_of_a_discarded_job
    ),
    Mutant("job of a zombie not compared", offsets_of_a_job_not_compared, (8,), scenario=late_commit_of_a_job),
    Mutant("row of a zombie not compared", target_row_not_compared, (8,), 29),
    Mutant("protocol 1: one epoch for many transactions", as_librdkafka, (2, 3), scenario=late_endtxn_of_protocol_1),
    Mutant("an unanswered batch counts as delivered", unanswered_batch_counts_as_delivered, (2, 3), 8),
    Mutant("commit of an older generation taken", commit_of_an_older_generation, (8,), 16),
    Mutant(
        "late join of a former member taken", late_join_of_a_former_member, (9,), scenario=late_join_of_a_killed_worker
    ),
)
