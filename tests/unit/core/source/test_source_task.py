"""The source loop: state and stimulus in, exact transitions and effects out."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from connectx.core.loops.messages import (
    Done,
    EffectFailed,
    FailureKind,
    NotDone,
    ReportFailed,
    StartPlugin,
    StopPlugin,
)
from connectx.core.messages import TaskProducerReady
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.messages import (
    AbortTransaction,
    BeginTransaction,
    CloseProducer,
    CommitTransaction,
    FlushAndCommitOffsets,
    Idle,
    NotifyCommitted,
    OffsetsRead,
    PartitionOffset,
    PluginStarted,
    Poll,
    Polled,
    PolledNothing,
    PollFailed,
    ReadOffsets,
    SendSlice,
    Sent,
    SlicePart,
    TransactionBegun,
    WriteOffsets,
)
from connectx.core.source.progress import SourceProgress, SourceTaskSettings
from connectx.model.events import EventKind
from connectx.model.payloads import UNKNOWN
from connectx.model.states import TransactionBoundary
from tests.support.source_loop import (
    AT_5,
    AT_9,
    AT_LEAST_ONCE,
    END,
    FILE,
    ORDERS,
    TASK,
    at_commit,
    exactly_once,
    run,
    transition,
    working,
)
from tests.support.task_loops import feed

pytestmark = pytest.mark.rule("always.2", "always.3")


@pytest.mark.rule("618.3.7")
def test_begin_starts_the_plugin_then_reads_its_offsets_then_reports_and_polls() -> None:
    core = SourceTaskCore(exactly_once())
    assert run(core, TaskProducerReady(TASK, 0, 3)) == []
    assert run(core, ORDERS.begin) == [StartPlugin()]
    assert run(core, PluginStarted(FILE)) == [ReadOffsets(FILE)]
    assert run(core, OffsetsRead({"position": 5})) == [ORDERS.runs, Poll({"position": 5})]


def test_the_last_steps_of_a_start_are_in_the_history() -> None:
    core = SourceTaskCore(exactly_once())
    run(core, TaskProducerReady(TASK, 0, 3), ORDERS.begin)
    recorded = [*feed(core, PluginStarted(FILE), 0).transitions, *feed(core, OffsetsRead(None), 0).transitions]
    assert recorded == [transition(EventKind.TASK_STEP, step=name, instance=0) for name in ("read_offsets", "poll")]


def test_a_paused_task_waits_before_its_plugin_starts() -> None:
    core = SourceTaskCore(exactly_once())
    assert run(core, ORDERS.pause, ORDERS.begin) == [ORDERS.paused]
    assert run(core, ORDERS.pause) == []
    assert run(core, ORDERS.resume) == [StartPlugin()]


def test_a_stop_before_begin_ends_without_touching_the_plugin() -> None:
    assert run(SourceTaskCore(exactly_once()), ORDERS.stop) == [CloseProducer(), ORDERS.stopped]


@pytest.mark.rule("618.6.1")
def test_exactly_once_commits_records_and_offsets_in_one_transaction_per_poll() -> None:
    core = working(exactly_once())
    assert run(core, Polled(1, 2, AT_5.offset)) == [BeginTransaction()]
    assert run(core, TransactionBegun(3)) == [SendSlice(1)]
    assert run(core, Sent()) == [WriteOffsets((AT_5,))]
    assert run(core, Done()) == [CommitTransaction()]
    step = feed(core, Done(), 7)
    covered = [{"partition": FILE, "from": None, "offset": {"position": 5}}]
    assert step.transitions == [transition(EventKind.TRANSACTION_COMMITTED, instance=0, records=2, offsets=covered)]
    assert step.effects == [NotifyCommitted({"position": 5}), Poll({"position": 5})]


def test_a_commit_names_the_epoch_of_its_own_transaction() -> None:
    core = at_commit(working(exactly_once()))
    epochs = [t.producer_epoch for t in feed(core, Done(), 0).transitions]
    run(core, Polled(2, 1, AT_9.offset), TransactionBegun(4), Sent(), Done())
    epochs += [t.producer_epoch for t in feed(core, Done(), 0).transitions]
    assert epochs == [3, 4]


def test_each_commit_says_where_it_starts_the_last_one_or_what_was_read_at_the_start() -> None:
    core = SourceTaskCore(exactly_once())
    run(core, TaskProducerReady(TASK, 0, 3), ORDERS.begin, PluginStarted(FILE), OffsetsRead({"position": 5}))
    run(core, Polled(1, 2, {"position": 9}), TransactionBegun(3), Sent(), Done())
    first = feed(core, Done(), 7).transitions[0].data["offsets"]
    run(core, Polled(2, 0, {"position": 11}), Polled(3, 1, {"position": 12}), TransactionBegun(3), Sent())
    run(core, Done())
    second = feed(core, Done(), 8).transitions[0].data["offsets"]
    assert first == [{"partition": FILE, "from": {"position": 5}, "offset": {"position": 9}}]
    assert second == [{"partition": FILE, "from": {"position": 9}, "offset": {"position": 12}}]


def test_the_first_commit_of_another_source_partition_does_not_say_where_it_starts() -> None:
    core = working(exactly_once())
    run(core, Polled(1, 2, {"n": 1}, {"shard": 2}), TransactionBegun(3), Sent(), Done())
    first = feed(core, Done(), 7).transitions[0].data["offsets"]
    assert first == [{"partition": {"shard": 2}, "offset": {"n": 1}}]


def test_an_undecided_commit_is_asked_again_and_nothing_else() -> None:
    assert run(at_commit(working(exactly_once())), NotDone("undecided")) == [CommitTransaction()]


def test_interval_boundary_keeps_the_transaction_open_over_slices_until_it_is_due() -> None:
    core = working(exactly_once(TransactionBoundary.INTERVAL))
    assert run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent(), now_ms=400) == [Poll(AT_5.offset)]
    assert run(core, Polled(2, 3, AT_9.offset), now_ms=900) == [SendSlice(2)]
    assert run(core, Sent(), now_ms=1000) == [WriteOffsets((AT_9,))]
    run(core, Done(), now_ms=1000)
    step = feed(core, Done(), 1010)
    assert step.transitions[0].data["records"] == 5


def test_interval_boundary_commits_while_there_is_nothing_to_poll() -> None:
    core = working(exactly_once(TransactionBoundary.INTERVAL))
    run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent(), now_ms=400)
    assert run(core, PolledNothing(), now_ms=500) == [Idle(AT_5.offset, until_ms=1000)]
    assert run(core, PolledNothing(), now_ms=1000) == [WriteOffsets((AT_5,))]


def test_nothing_polled_waits_and_polls_again_from_the_same_offset() -> None:
    core = working(exactly_once())
    assert run(core, PolledNothing()) == [Idle(None, until_ms=None)]
    assert run(core, PolledNothing()) == [Poll(None)]


def test_a_retriable_poll_failure_counts_as_nothing_polled() -> None:
    assert run(working(exactly_once()), PollFailed("busy", retriable=True)) == [Idle(None, until_ms=None)]


def test_a_slice_of_dropped_records_commits_nothing_and_its_offset_rides_with_the_next_record() -> None:
    core = working(exactly_once())
    step = feed(core, Polled(1, 0, AT_5.offset, skipped=4, skip_reason="value converter"), 0)
    assert step.transitions == [transition(EventKind.RECORDS_SKIPPED, records=4, reason="value converter")]
    assert step.effects == [Poll(AT_5.offset)]
    assert run(copy.deepcopy(core), ORDERS.stop, PolledNothing()) == END, "there is nothing to commit"
    assert run(core, Polled(2, 1, AT_9.offset), TransactionBegun(3), Sent()) == [WriteOffsets((AT_9,))]


def test_offsets_of_several_source_partitions_are_committed_together() -> None:
    other = {"filename": "/other.txt"}
    core = working(exactly_once(TransactionBoundary.INTERVAL))
    run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent())
    assert run(core, Polled(2, 2, {"position": 3}, partition=other), Sent()) == [Poll(AT_5.offset)]
    run(core, Polled(3, 2, AT_9.offset))
    assert run(core, Sent(), now_ms=1000) == [WriteOffsets((AT_9, PartitionOffset(other, {"position": 3})))]


def test_pause_finishes_the_slice_and_commits_before_it_waits() -> None:
    core = working(exactly_once(TransactionBoundary.INTERVAL))
    assert run(core, ORDERS.pause) == []
    assert run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent()) == [WriteOffsets((AT_5,))]
    run(core, Done())
    assert run(core, Done()) == [
        NotifyCommitted(AT_5.offset),
        ORDERS.paused,
    ]
    assert run(core, ORDERS.resume) == [ORDERS.runs, Poll(AT_5.offset)]


def test_stop_commits_what_was_dispatched_before_it_ends() -> None:
    core = working(exactly_once(TransactionBoundary.INTERVAL))
    run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent())
    run(core, ORDERS.stop)
    assert run(core, PolledNothing()) == [WriteOffsets((AT_5,))]
    run(core, Done())
    assert run(core, Done()) == [NotifyCommitted(AT_5.offset), *END]
    assert core.ended
    assert run(core, Done()) == []


def test_stop_while_paused_ends_at_once() -> None:
    core = working(exactly_once())
    run(core, ORDERS.pause, PolledNothing())
    assert run(core, ORDERS.stop) == END


def test_a_fenced_commit_fails_the_task_and_names_the_transactional_id() -> None:
    core = at_commit(working(exactly_once()), now_ms=100)
    step = feed(core, EffectFailed("fenced by a newer producer", FailureKind.FENCED, newer_epoch=4), 350)
    assert step.transitions == [
        transition(
            EventKind.PRODUCER_FENCED,
            instance=0,
            transactional_id="g-lines-0",
            error="fenced by a newer producer",
            open_ms=250,
            newer_epoch=4,
        ),
        transition(EventKind.TRANSACTION_ABORTED, records=2, reason="fenced"),
    ]
    assert step.effects == [
        StopPlugin(),
        CloseProducer(),
        ReportFailed("fenced by a newer producer", FailureKind.FENCED, newer_epoch=4),
    ]


def test_an_expired_transaction_fails_the_task_without_calling_it_fenced() -> None:
    step = feed(at_commit(working(exactly_once())), EffectFailed("expired", FailureKind.EXPIRED), 60_000)
    assert step.transitions == [transition(EventKind.TRANSACTION_ABORTED, records=2, reason="expired")]
    assert step.effects[-1] == ReportFailed("expired", FailureKind.EXPIRED)


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_failed_send_aborts_the_open_transaction_and_commits_nothing(confirmed: bool) -> None:
    core = working(exactly_once())
    run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3))
    assert run(core, EffectFailed("too large", FailureKind.DELIVERY)) == [AbortTransaction()]
    step = feed(core, Done() if confirmed else NotDone("no broker"), 0)
    reason = "delivery" if confirmed else "delivery, unconfirmed: no broker"
    assert step.transitions == [transition(EventKind.TRANSACTION_ABORTED, records=2, reason=reason)]
    assert step.effects == [StopPlugin(), CloseProducer(), ReportFailed("too large", FailureKind.DELIVERY)]


def test_a_failed_poll_with_nothing_open_ends_without_an_abort() -> None:
    assert run(working(exactly_once()), PollFailed("gone", retriable=False)) == [
        StopPlugin(),
        CloseProducer(),
        ReportFailed("gone"),
    ]


def test_a_failed_poll_does_not_commit_the_open_transaction() -> None:
    core = working(exactly_once(TransactionBoundary.INTERVAL))
    run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent())
    assert run(core, PollFailed("gone", retriable=False)) == [AbortTransaction()]


def test_a_cancelled_task_commits_nothing_more() -> None:
    core = working(exactly_once(TransactionBoundary.INTERVAL))
    run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent(), ORDERS.stop, ORDERS.cancel)
    assert run(core, PolledNothing(), now_ms=5000) == [StopPlugin(), ORDERS.stopped]


def test_at_least_once_sends_slices_and_commits_their_offsets_at_the_flush_interval() -> None:
    core = working(AT_LEAST_ONCE)
    assert run(core, Polled(1, 2, AT_5.offset), now_ms=100) == [SendSlice(1)]
    assert run(core, Sent(), now_ms=110) == [Poll(AT_5.offset)]
    run(core, Polled(2, 3, AT_9.offset), now_ms=900)
    assert run(core, Sent(), now_ms=1000) == [FlushAndCommitOffsets((AT_9,), timeout_ms=500)]
    step = feed(core, Sent(), 1020)
    covered = [{"partition": FILE, "from": None, "offset": {"position": 9}}]
    assert step.transitions == [transition(EventKind.OFFSETS_COMMITTED, instance=0, records=5, offsets=covered)]
    assert step.effects == [NotifyCommitted(AT_9.offset), Poll(AT_9.offset)]


def test_a_flush_that_fails_keeps_the_offsets_for_the_next_tick() -> None:
    core = working(AT_LEAST_ONCE)
    run(core, Polled(1, 2, AT_5.offset), Sent(), PolledNothing(), now_ms=10)
    assert run(core, PolledNothing(), now_ms=1000) == [FlushAndCommitOffsets((AT_5,), timeout_ms=500)]
    assert run(core, NotDone("timed out"), now_ms=1500) == [Poll(AT_5.offset)]
    assert run(core, PolledNothing(), now_ms=1600) == [Idle(AT_5.offset, until_ms=2500)]
    assert run(core, PolledNothing(), now_ms=2500) == [FlushAndCommitOffsets((AT_5,), timeout_ms=500)]


def test_a_stop_flushes_once_more_within_the_flush_timeout_and_then_ends() -> None:
    core = working(AT_LEAST_ONCE)
    run(core, Polled(1, 2, AT_5.offset), ORDERS.stop)
    assert run(core, Sent()) == [FlushAndCommitOffsets((AT_5,), timeout_ms=500)]
    assert run(core, NotDone("timed out")) == END


def test_a_failed_at_least_once_task_commits_what_is_acknowledged_before_it_ends() -> None:
    core = working(AT_LEAST_ONCE)
    run(core, Polled(1, 2, AT_5.offset), Sent())
    assert run(core, PollFailed("gone", retriable=False)) == [FlushAndCommitOffsets((AT_5,), timeout_ms=500)]
    assert run(core, Sent()) == [
        NotifyCommitted(AT_5.offset),
        StopPlugin(),
        CloseProducer(),
        ReportFailed("gone"),
    ]


def test_after_a_refused_record_no_offset_is_committed() -> None:
    core = working(AT_LEAST_ONCE)
    run(core, Polled(1, 2, AT_5.offset), Sent(), Polled(2, 1, AT_9.offset))
    assert run(core, EffectFailed("too large", FailureKind.DELIVERY)) == [
        StopPlugin(),
        CloseProducer(),
        ReportFailed("too large", FailureKind.DELIVERY),
    ]


def of_tables(slice_number: int, *records: int) -> Polled:
    """A slice of several tables up to position 9."""
    parts = (*(SlicePart(count, None) for count in records[:-1]), SlicePart(records[-1], AT_9.offset))
    return Polled(slice_number, sum(records), AT_9.offset, parts=parts)


@pytest.mark.parametrize("first", [2, 0])
def test_a_task_that_fails_between_two_tables_of_a_slice_commits_only_earlier_slices(first: int) -> None:
    core = working(AT_LEAST_ONCE)
    run(core, Polled(1, 2, AT_5.offset), Sent())
    assert run(core, of_tables(2, first, 3, 4)) == [SendSlice(2, 0 if first else 1)]
    assert run(core, Sent())[:1] == [SendSlice(2, 1 if first else 2)]
    assert run(core, EffectFailed("no such topic")) == [FlushAndCommitOffsets((AT_5,), timeout_ms=500)]


def test_a_task_that_fails_between_two_tables_of_its_first_slice_commits_nothing() -> None:
    core = working(AT_LEAST_ONCE)
    assert run(core, of_tables(1, 2, 3), Sent(), ORDERS.stop, EffectFailed("no such topic"))[:2] == END[:2]


@pytest.mark.parametrize("settings", [AT_LEAST_ONCE, exactly_once()])
@pytest.mark.parametrize("last", [4, 0])
def test_the_offset_of_a_slice_is_committed_after_its_last_table(settings: SourceTaskSettings, last: int) -> None:
    core = working(settings)
    begun = [TransactionBegun(3)] if settings.exactly_once else []
    run(core, of_tables(1, 2, 0, last), *begun, ORDERS.stop)
    assert run(core, *[Sent()] * (2 if last else 1)) == [
        WriteOffsets((AT_9,)) if settings.exactly_once else FlushAndCommitOffsets((AT_9,), 500)
    ]


def test_a_slice_of_tables_without_records_commits_nothing() -> None:
    core = working(exactly_once())
    assert run(core, of_tables(1, 0, 0)) == [Poll(AT_9.offset)]


def test_an_offset_without_records_is_committed_when_the_plugin_asks_for_it() -> None:
    core = working(exactly_once())
    assert run(core, Polled(1, 0, AT_5.offset, commits_offset=True)) == [BeginTransaction()]
    assert run(core, TransactionBegun(3)) == [WriteOffsets((AT_5,))]
    assert run(core, Done()) == [CommitTransaction()]
    step = feed(core, Done(), 0)
    assert NotifyCommitted(AT_5.offset) in step.effects
    assert step.transitions[0].data["records"] == 0


def test_an_offset_without_records_goes_with_the_next_flush_at_least_once() -> None:
    core = working(AT_LEAST_ONCE)
    run(core, Polled(1, 0, AT_5.offset, commits_offset=True))
    assert run(core, PolledNothing(), now_ms=1000) == [FlushAndCommitOffsets((AT_5,), 500)]


def test_filtered_records_are_told_apart_from_skipped_ones_and_commit_nothing_by_themselves() -> None:
    core = working(exactly_once())
    step = feed(core, Polled(1, 0, AT_5.offset, filtered=4), 0)
    assert step.transitions == [transition(EventKind.RECORDS_FILTERED, records=4)]
    assert step.effects == [Poll(AT_5.offset)]
    assert run(core, Polled(2, 1, AT_9.offset), TransactionBegun(3), Sent()) == [WriteOffsets((AT_9,))]


def test_records_that_kafka_refused_and_tolerance_lets_go_are_counted() -> None:
    core = working(AT_LEAST_ONCE)
    run(core, Polled(1, 2, AT_5.offset))
    step = feed(core, Sent(1), 0)
    assert step.transitions == [transition(EventKind.RECORDS_SKIPPED, records=1, reason="refused by Kafka")]


def test_states_compare_by_value() -> None:
    left, right = at_commit(working(exactly_once())), at_commit(working(exactly_once()))
    assert left == right
    assert dataclasses.asdict(left) == dataclasses.asdict(right)
    run(left, Done())
    assert left != right


def test_the_first_commit_of_another_source_partition_names_where_it_started_if_that_is_known() -> None:
    progress = SourceProgress({"table": "a"})
    progress.begin(None)
    starts: dict[str, dict[str, int] | None] = {"b": {"n": 3}, "c": None, "d": {}}
    for table, start in starts.items():
        progress.starts({"table": table}, start)
        progress.sent({"table": table}, {"n": 9}, 1)
    covered, moved = progress.commit()
    assert moved == [{"n": 9}] * 3
    assert [one.from_ for one in covered] == [{"n": 3}, None, UNKNOWN]
    progress.starts({"table": "b"}, {"n": 5})
    progress.sent({"table": "b"}, {"n": 12}, 1)
    assert progress.commit()[0][0].from_ == {"n": 9}, "later commits start where the last one ended"
