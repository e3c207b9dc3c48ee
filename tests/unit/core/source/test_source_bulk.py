"""Bulk slices of a source task's loop: a transaction of their own, and what follows when their job fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectx.core.lanes import BulkMode, LaneSettings
from connectx.core.loops.messages import (
    CoresKnown,
    Done,
    FailureKind,
    NotDone,
    QueryCores,
    ReportFailed,
    StopPlugin,
)
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.messages import (
    AbortTransaction,
    BeginTransaction,
    BulkFailed,
    BulkPolled,
    BulkSent,
    CloseProducer,
    CommitTransaction,
    FlushAndCommitOffsets,
    NotifyCommitted,
    PartitionOffset,
    PartitionRange,
    Poll,
    PollBulk,
    Polled,
    PolledNothing,
    QueryRoute,
    QueryWaiting,
    RouteKnown,
    RunBulk,
    Sent,
    SourceEffect,
    TransactionBegun,
    Waiting,
    WriteOffsets,
)
from connectx.core.source.progress import SourceTaskSettings
from connectx.model import payloads
from connectx.model.events import EventKind
from connectx.model.payloads import SourceRange
from connectx.model.states import TransactionBoundary
from tests.support.source_loop import (
    AT_5,
    AT_9,
    AT_LEAST_ONCE,
    END,
    ORDERS,
    exactly_once,
    run,
    transition,
    working,
)
from tests.support.task_loops import feed

MB = 1 << 20
ASK = QueryWaiting(None)
JOB = BulkPolled(1, 64 * MB, AT_9.offset)


def with_bulk(settings: SourceTaskSettings | None = None, mode: BulkMode = BulkMode.AUTO) -> SourceTaskCore:
    """A task whose connector has a bulk lane; it asks how much waits."""
    return working(replace(settings or exactly_once(), lanes=LaneSettings(mode)))


def waits(core: SourceTaskCore, size_bytes: int, now_ms: int = 0, obstacle: str | None = None) -> list[SourceEffect]:
    """So many bytes wait; if Spark is asked, it has 8 cores, and an obstacle on the way to Kafka or none."""
    effects = run(core, Waiting(size_bytes), now_ms=now_ms)
    if effects == [QueryCores()]:
        effects = run(core, CoresKnown(8), now_ms=now_ms)
    return run(core, RouteKnown(obstacle), now_ms=now_ms) if effects == [QueryRoute()] else effects


def running(core: SourceTaskCore) -> SourceTaskCore:
    """The same with a job that runs."""
    waits(core, 100 * MB)
    effects = run(core, JOB)
    if core.settings.exactly_once:
        assert effects == [BeginTransaction()]
        effects = run(core, TransactionBegun(3))
    assert effects == [RunBulk(1)]
    return core


def test_a_task_without_a_bulk_lane_polls_without_asking_for_waiting_bytes() -> None:
    core = working(exactly_once())
    assert run(core, PolledNothing()) != [ASK]
    assert str(core.bulk.choice.reason) == "the connector has no bulk lane"


@pytest.mark.parametrize(
    ("lanes", "obstacle"), [(LaneSettings(BulkMode.NEVER), None), (LaneSettings(BulkMode.ALWAYS), "no")]
)
def test_mode_never_and_an_obstacle_leave_all_to_the_tail(lanes: LaneSettings, obstacle: str | None) -> None:
    core = working(replace(exactly_once(), lanes=lanes, bulk_obstacle=obstacle))
    for stimulus in (PolledNothing(), PolledNothing()):
        assert ASK not in run(core, stimulus)
    assert str(core.bulk.choice.reason) == ("bulk.mode is never" if obstacle is None else obstacle)


def test_few_bytes_are_polled_by_the_worker() -> None:
    assert run(with_bulk(), Waiting(5)) == [Poll(None)]


def test_unknown_waiting_bytes_are_polled_by_the_worker() -> None:
    assert run(with_bulk(mode=BulkMode.ALWAYS), Waiting(None)) == [Poll(None)]


def test_an_obstacle_that_the_plugin_finds_moves_the_task_to_the_tail_for_all_polls() -> None:
    core = with_bulk(mode=BulkMode.ALWAYS)
    assert waits(core, 100 * MB) == [PollBulk(None, 64 * MB)]
    assert run(core, PolledNothing()) != [ASK]
    assert run(core, PolledNothing()) == [ASK]
    step = feed(core, Waiting(None, "the server shares nothing"), 0)
    assert step.effects == [Poll(None)]
    (change,) = step.transitions
    assert (change.data["lane"], "the server shares nothing" in str(change.data["reason"])) == ("tail", True)
    assert ASK not in run(core, PolledNothing())
    assert run(core, PolledNothing()) == [Poll(None)]


def test_many_bytes_go_to_executors_and_the_change_is_recorded() -> None:
    core = with_bulk()
    assert run(core, Waiting(100 * MB)) == [QueryCores()]
    step = feed(core, CoresKnown(8), 0)
    reason = "104.9 MB wait, and Spark has 8 cores"
    assert step.transitions == [transition(EventKind.LANE_CHANGED, lane="bulk", reason=reason)]
    assert step.effects == [QueryRoute()]
    step = feed(core, RouteKnown(None), 0)
    assert (step.effects, step.transitions) == ([PollBulk(None, 64 * MB)], [])


@pytest.mark.parametrize("cores", [None, 0])
def test_without_cores_the_worker_polls(cores: int | None) -> None:
    core = with_bulk()
    assert run(core, Waiting(100 * MB), CoresKnown(cores)) == [Poll(None)]


def until_asked(core: SourceTaskCore) -> None:
    """Polls find nothing, until the plugin is asked how much waits."""
    while not isinstance(effect := next(iter(core.outstanding.values())), QueryWaiting):
        run(core, RouteKnown(None) if isinstance(effect, QueryRoute) else PolledNothing())


@pytest.mark.parametrize(("cores", "again_ms"), [(8, 60_000), (None, 60_000), (0, 0)])
def test_spark_is_asked_for_its_cores_once_a_minute_and_again_as_long_as_it_has_none(
    cores: int | None, again_ms: int
) -> None:
    core = with_bulk()
    assert run(core, Waiting(100 * MB)) == [QueryCores()]
    run(core, CoresKnown(cores))
    if again_ms:
        until_asked(core)
        assert run(core, Waiting(100 * MB), now_ms=again_ms - 1) != [QueryCores()]
    until_asked(core)
    assert run(core, Waiting(100 * MB), now_ms=again_ms) == [QueryCores()]


def test_a_bulk_slice_is_committed_with_its_offset() -> None:
    core = running(with_bulk())
    (write,) = run(core, BulkSent(1, 1_000))
    assert write == WriteOffsets((AT_9,))
    assert run(core, Done()) == [CommitTransaction()]
    assert run(core, Done()) == [NotifyCommitted(AT_9.offset), QueryWaiting(AT_9.offset)]


def test_a_job_that_finds_its_offsets_out_commits_those_of_all_partitions_with_where_they_began() -> None:
    core = with_bulk()
    waits(core, 100 * MB)
    run(core, replace(JOB, offset=None), TransactionBegun(3))
    ranges = (PartitionRange({"f": 1}, None, {"n": 4}), PartitionRange({"f": 2}, {"n": 3}, {"n": 9}))
    ends = tuple(PartitionOffset(one.partition, one.end) for one in ranges)
    assert run(core, BulkSent(1, 10, ranges=ranges)) == [WriteOffsets(ends)]
    run(core, Done())
    step = feed(core, Done(), 0)
    assert step.effects == [NotifyCommitted({"n": 4}), NotifyCommitted({"n": 9}), QueryWaiting(None)]
    (committed,) = step.transitions
    covered = [SourceRange(dict(one.partition), dict(one.end), one.start) for one in ranges]
    assert committed.payload == payloads.TransactionCommitted(10, tuple(covered), core.settings.instance)


def test_a_job_of_parts_without_records_commits_their_ends() -> None:
    core = with_bulk()
    waits(core, 100 * MB)
    run(core, replace(JOB, offset=None), TransactionBegun(3))
    empty = PartitionRange({"f": 1}, None, {"n": 0})
    assert run(core, BulkSent(1, 0, ranges=(empty,))) == [WriteOffsets((PartitionOffset({"f": 1}, {"n": 0}),))]


def test_the_transaction_of_a_job_that_read_nothing_is_aborted_and_the_task_continues() -> None:
    core = with_bulk()
    waits(core, 100 * MB)
    run(core, replace(JOB, offset=None), TransactionBegun(3))
    assert run(core, BulkSent(1, 0)) == [AbortTransaction(insist=True)]
    step = feed(core, Done(), 0)
    assert step.effects == [ASK]
    assert step.transitions == [
        transition(EventKind.TRANSACTION_ABORTED, records=0, reason="a bulk job had nothing to commit")
    ]
    waits(core, 100 * MB)
    assert run(core, JOB) == [BeginTransaction()]


def test_without_transactions_a_job_without_records_moves_the_positions() -> None:
    core = with_bulk(AT_LEAST_ONCE)
    waits(core, 100 * MB)
    run(core, replace(JOB, offset=None))
    assert run(core, BulkSent(1, 0, ranges=(PartitionRange({"f": 1}, None, {"n": 0}),))) == [ASK]
    running(core)
    assert run(core, BulkSent(1, 5)) == [FlushAndCommitOffsets((AT_9, PartitionOffset({"f": 1}, {"n": 0})), 500)]


def test_what_was_sent_before_a_bulk_slice_is_committed_first() -> None:
    core = with_bulk(exactly_once(TransactionBoundary.INTERVAL))
    run(core, Waiting(5), Polled(1, 2, AT_5.offset), TransactionBegun(3))
    assert run(core, Sent()) == [QueryWaiting(AT_5.offset)]
    assert waits(core, 100 * MB) == [WriteOffsets((AT_5,))]
    run(core, Done(), Done())
    assert waits(core, 100 * MB) == [PollBulk(AT_5.offset, 64 * MB)]


def test_without_transactions_a_bulk_slice_is_flushed_with_its_offset() -> None:
    core = running(with_bulk(AT_LEAST_ONCE))
    assert run(core, BulkSent(1, 10)) == [FlushAndCommitOffsets((AT_9,), 500)]
    assert run(core, Sent()) == [NotifyCommitted(AT_9.offset), QueryWaiting(AT_9.offset)]


@pytest.mark.parametrize("settings", [AT_LEAST_ONCE, exactly_once()])
def test_a_bulk_slice_without_records_leaves_no_transaction_open(settings: SourceTaskSettings) -> None:
    core = running(with_bulk(settings))
    step = feed(core, BulkSent(1, 0, filtered=3, skipped=2, skip_reason="bad"), 0)
    assert step.effects == [WriteOffsets((AT_9,)) if settings.exactly_once else QueryWaiting(AT_9.offset)]
    kinds = [EventKind.BULK_STAGED, EventKind.RECORDS_FILTERED, EventKind.RECORDS_SKIPPED]
    assert [event.kind for event in step.transitions] == kinds


def test_the_start_and_the_end_of_a_job_are_recorded() -> None:
    core = with_bulk(AT_LEAST_ONCE)
    waits(core, 100 * MB)
    step = feed(core, replace(JOB, slice_number=7), 0)
    assert (step.effects, step.transitions) == ([RunBulk(7)], [transition(EventKind.BULK_STARTED, token=7)])
    step = feed(core, BulkSent(7, 10, skipped=2, skip_reason="bad"), 0)
    assert step.transitions[0] == transition(EventKind.BULK_STAGED, token=7, records=10, refused=2)


def test_after_a_failed_job_the_transaction_is_aborted_and_the_worker_reads_the_slice() -> None:
    core = running(with_bulk())
    step = feed(core, BulkFailed(1, "an executor died\ntrace"), 0)
    assert step.effects == [AbortTransaction(insist=True)]
    assert step.transitions == [transition(EventKind.BULK_FAILED, error="an executor died\ntrace", token=1)]
    assert run(core, Done()) == [ASK]
    assert waits(core, 100 * MB) == [Poll(None)]
    assert str(core.bulk.choice.reason) == "a job failed: an executor died"
    assert run(core, Polled(2, 1, AT_5.offset), TransactionBegun(3), Sent()) == [WriteOffsets((AT_5,))]


def test_jobs_are_tried_again_after_a_pause() -> None:
    core = running(with_bulk())
    run(core, BulkFailed(1, "x"), Done())
    assert waits(core, 100 * MB, now_ms=29_999) == [Poll(None)]
    run(core, PolledNothing(), PolledNothing(), now_ms=29_999)
    assert waits(core, 100 * MB, now_ms=30_000) == [PollBulk(None, 32 * MB)]


def test_with_mode_always_a_job_is_tried_three_times_and_then_the_task_fails() -> None:
    core = with_bulk(mode=BulkMode.ALWAYS)
    for _ in range(2):
        running(core)
        assert run(core, BulkFailed(1, "x"), Done()) == [ASK]
    running(core)
    assert run(core, BulkFailed(1, "x")) == [AbortTransaction()]
    failed = ReportFailed("x", FailureKind.FATAL)
    assert run(core, Done()) == [StopPlugin(), CloseProducer(), failed]


def test_a_job_that_was_done_clears_earlier_failures() -> None:
    core = with_bulk(mode=BulkMode.ALWAYS)
    for _ in range(4):
        effects = run(running(core), BulkFailed(1, "x"), Done())
        assert [type(effect) for effect in effects] == [QueryWaiting]
        run(running(core), BulkSent(1, 5), Done(), Done())


def test_a_task_that_is_stopped_commits_a_job_that_is_done() -> None:
    core = running(with_bulk())
    run(core, ORDERS.stop)
    run(core, BulkSent(1, 10), Done())
    assert run(core, Done()) == [NotifyCommitted(AT_9.offset), *END]


def test_a_task_that_is_stopped_waits_no_longer_than_usual_for_the_abort_of_a_failed_job() -> None:
    core = running(with_bulk())
    run(core, ORDERS.stop)
    assert run(core, BulkFailed(1, "x")) == [AbortTransaction(insist=False)]
    assert run(core, NotDone("no answer")) == [StopPlugin(), CloseProducer(), ORDERS.stopped]


def test_without_transactions_a_failed_job_is_read_again() -> None:
    core = running(with_bulk(AT_LEAST_ONCE))
    effects: list[SourceEffect] = run(core, BulkFailed(1, "x"))
    assert effects == [ASK]


@pytest.mark.parametrize(("took_ms", "bytes_"), [(1_000, 128 * MB), (20_000, 32 * MB), (10_000, 64 * MB)])
def test_the_size_of_a_slice_follows_the_time_of_the_last_one(took_ms: int, bytes_: int) -> None:
    core = running(with_bulk())
    run(core, BulkSent(1, 10), Done(), Done(), now_ms=took_ms)
    assert waits(core, 1 << 40, now_ms=took_ms) == [PollBulk(AT_9.offset, bytes_)]


@pytest.mark.parametrize(("min_bytes", "first"), [(32 * MB, 32 * MB), (1, 16 * MB), (4096 * MB, 1024 * MB)])
def test_the_first_slice_has_the_bytes_from_which_on_a_job_is_worth_it(min_bytes: int, first: int) -> None:
    core = working(replace(exactly_once(), lanes=LaneSettings(BulkMode.AUTO, min_bytes)))
    assert waits(core, 1 << 40) == [PollBulk(None, first)]


def test_executors_that_reach_kafka_are_not_asked_again_until_a_job_fails() -> None:
    core = running(with_bulk(mode=BulkMode.ALWAYS))
    run(core, BulkSent(1, 10), Done(), Done())
    assert run(core, Waiting(100 * MB), now_ms=1 << 40) == [PollBulk(AT_9.offset, 128 * MB)]
    run(core, replace(JOB, slice_number=2), TransactionBegun(4), BulkFailed(2, "x"), Done())
    assert run(core, Waiting(100 * MB)) == [QueryRoute()]


def test_what_executors_without_a_route_to_kafka_make_is_sent_by_the_worker() -> None:
    core = with_bulk(mode=BulkMode.ALWAYS)
    assert run(core, Waiting(300 * MB)) == [QueryRoute()]
    step = feed(core, RouteKnown("no broker answered"), 0)
    reason = "Spark's executors cannot reach Kafka: no broker answered"
    assert step.transitions == [transition(EventKind.BULK_SENT_BY_WORKER, reason=reason)]
    assert step.effects == [PollBulk(None, 64 * MB)]
    assert run(core, JOB, TransactionBegun(3)) == [RunBulk(1, by_worker=True)]
    assert run(core, BulkSent(1, 10)) == [WriteOffsets((AT_9,))]


def test_executors_without_a_route_are_asked_again_after_ten_minutes() -> None:
    core = with_bulk(mode=BulkMode.ALWAYS)
    waits(core, 100 * MB, obstacle="x")
    run(core, PolledNothing(), PolledNothing())
    assert run(core, Waiting(100 * MB), now_ms=599_999) == [PollBulk(None, 64 * MB)]
    run(core, PolledNothing(), PolledNothing())
    assert run(core, Waiting(100 * MB), now_ms=600_000) == [QueryRoute()]
    step = feed(core, RouteKnown("x"), 600_000)
    assert step.transitions == []
    run(core, PolledNothing(), PolledNothing())
    assert waits(core, 100 * MB, now_ms=1_200_000) == [PollBulk(None, 64 * MB)]
    assert run(core, JOB, TransactionBegun(3)) == [RunBulk(1)]


def test_the_worker_sends_slices_that_fit_in_its_memory() -> None:
    core = working(replace(exactly_once(), lanes=LaneSettings(BulkMode.ALWAYS, 512 * MB)))
    assert waits(core, 1 << 40, obstacle="x") == [PollBulk(None, 128 * MB)]
    run(core, replace(JOB, size_bytes=128 * MB), TransactionBegun(3))
    run(core, BulkSent(1, 10), Done(), Done(), now_ms=1_000)
    assert waits(core, 1 << 40, now_ms=1_000) == [PollBulk(AT_9.offset, 128 * MB)]
