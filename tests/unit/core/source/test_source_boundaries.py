"""Where transactions end (KIP-618): `transaction.boundary`, dropped records, and copies of what was committed."""

from __future__ import annotations

import dataclasses

import pytest

from connectx.core.loops.messages import (
    Done,
    EffectFailed,
    FailureKind,
    ReportFailed,
)
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.messages import (
    BOTH_ASKED,
    AbortTransaction,
    BeginTransaction,
    Boundary,
    CommitTransaction,
    CopyOffsets,
    FlushAndCommitOffsets,
    Idle,
    NotifyCommitted,
    PartitionOffset,
    Poll,
    Polled,
    PolledNothing,
    PollFailed,
    SendSlice,
    Sent,
    SlicePart,
    TransactionBegun,
    WriteOffsets,
)
from connectx.model.events import EventKind
from connectx.model.states import TransactionBoundary
from tests.support.source_loop import (
    AT_5,
    AT_9,
    AT_LEAST_ONCE,
    END,
    FILE,
    ORDERS,
    exactly_once,
    run,
    transition,
    working,
)
from tests.support.task_loops import feed

pytestmark = pytest.mark.rule("618.6.3")

COMMIT, ABORT, BOTH = Boundary(commit=True), Boundary(abort=True), Boundary(True, True)
BY_TASK = exactly_once(TransactionBoundary.CONNECTOR)
INTERVAL = exactly_once(TransactionBoundary.INTERVAL)


def opened(core: SourceTaskCore) -> SourceTaskCore:
    """Two records are sent, their transaction is open, the next poll is outstanding."""
    effects = run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent())
    assert effects == [Poll(AT_5.offset)]
    return core


def test_connector_boundary_commits_only_when_the_task_asks() -> None:
    core = opened(working(BY_TASK))
    assert run(core, PolledNothing(), now_ms=10_000_000) == [Idle(AT_5.offset, None)]
    assert run(core, PolledNothing(), now_ms=10_000_000) == [Poll(AT_5.offset)]
    run(core, Polled(2, 3, AT_9.offset, boundary=COMMIT))
    assert run(core, Sent()) == [WriteOffsets((AT_9,))]
    assert run(core, Done()) == [CommitTransaction()]
    step = feed(core, Done(), 0)
    assert [t.data["records"] for t in step.transitions] == [5]
    assert step.effects == [NotifyCommitted(AT_9.offset), Poll(AT_9.offset)]


def test_a_commit_may_be_asked_for_by_a_poll_without_rows_one_that_is_retried_or_while_idle() -> None:
    for stimulus in (PolledNothing(COMMIT), PollFailed("busy", retriable=True, boundary=COMMIT)):
        assert run(opened(working(BY_TASK)), stimulus) == [WriteOffsets((AT_5,))]
    core = opened(working(BY_TASK))
    run(core, PolledNothing())
    assert run(core, PolledNothing(COMMIT)) == [WriteOffsets((AT_5,))]


def test_a_boundary_without_anything_sent_does_nothing() -> None:
    for asked in (COMMIT, ABORT):
        assert run(working(BY_TASK), PolledNothing(asked)) == [Idle(None, None)]


def test_an_abort_drops_what_was_sent_and_commits_its_offsets_in_a_transaction_of_their_own() -> None:
    core = opened(working(BY_TASK))
    run(core, Polled(2, 3, AT_9.offset, boundary=ABORT))
    assert run(core, Sent()) == [AbortTransaction(insist=True)]
    step = feed(core, Done(), 0)
    assert step.transitions == [
        transition(EventKind.TRANSACTION_ABORTED, records=5, reason="asked for by the task"),
    ]
    assert step.effects == [BeginTransaction()]
    assert run(core, TransactionBegun(3)) == [WriteOffsets((AT_9,))]
    run(core, Done())
    step = feed(core, Done(), 0)
    assert step.transitions == [
        transition(
            EventKind.TRANSACTION_COMMITTED,
            instance=0,
            records=0,
            offsets=[{"partition": FILE, "from": None, "offset": {"position": 9}}],
        )
    ]
    assert step.effects == [NotifyCommitted(AT_9.offset), Poll(AT_9.offset)]


def test_commit_and_abort_of_the_same_slice_fail_the_task_and_commit_nothing() -> None:
    core = opened(working(BY_TASK))
    run(core, Polled(2, 3, AT_9.offset, boundary=BOTH))
    assert run(core, Sent()) == [AbortTransaction()]
    step = feed(core, Done(), 0)
    assert step.transitions == [transition(EventKind.TRANSACTION_ABORTED, records=5, reason="fatal")]
    assert step.effects[-1] == ReportFailed(BOTH_ASKED)


def test_a_boundary_behind_a_record_divides_the_slice() -> None:
    parts = (SlicePart(2, AT_5.offset, COMMIT), SlicePart(1, AT_9.offset))
    core = working(BY_TASK)
    assert run(core, Polled(1, 3, AT_9.offset, parts=parts), TransactionBegun(3)) == [SendSlice(1, part=0)]
    assert run(core, Sent()) == [WriteOffsets((AT_5,))]
    run(core, Done())
    assert run(core, Done()) == [NotifyCommitted(AT_5.offset), BeginTransaction()]
    assert run(core, TransactionBegun(3)) == [SendSlice(1, part=1)]
    assert run(core, Sent()) == [Poll(AT_9.offset)]
    run(core, PolledNothing(COMMIT), Done())
    assert [t.data["records"] for t in feed(core, Done(), 0).transitions] == [1]


def test_an_abort_behind_a_record_drops_what_was_sent_up_to_it_and_goes_on_with_the_slice() -> None:
    parts = (SlicePart(2, AT_5.offset, ABORT), SlicePart(1, AT_9.offset, COMMIT))
    core = working(BY_TASK)
    run(core, Polled(1, 3, AT_9.offset, parts=parts), TransactionBegun(3))
    assert run(core, Sent()) == [AbortTransaction(insist=True)]
    step = feed(core, Done(), 0)
    assert step.transitions == [transition(EventKind.TRANSACTION_ABORTED, records=2, reason="asked for by the task")]
    assert run(core, TransactionBegun(3)) == [WriteOffsets((AT_5,))]
    run(core, Done())
    assert run(core, Done()) == [NotifyCommitted(AT_5.offset), BeginTransaction()]
    assert run(core, TransactionBegun(3)) == [SendSlice(1, part=1)]
    assert run(core, Sent()) == [WriteOffsets((AT_9,))]


def test_a_boundary_behind_a_record_counts_when_that_record_is_dropped() -> None:
    core = opened(working(BY_TASK))
    parts = (SlicePart(0, {"position": 7}, COMMIT), SlicePart(0, AT_9.offset, COMMIT))
    committed = PartitionOffset(FILE, {"position": 7})
    assert run(core, Polled(2, 0, AT_9.offset, parts=parts)) == [WriteOffsets((committed,))]
    run(core, Done())
    # the second boundary has only dropped records before it: there is nothing to commit
    assert run(core, Done()) == [NotifyCommitted({"position": 7}), Poll(AT_9.offset)]
    other = PartitionOffset({"filename": "/other.txt"}, {"position": 1})
    run(core, Polled(3, 1, other.offset, partition=other.partition, boundary=COMMIT), TransactionBegun(3))
    assert run(core, Sent()) == [WriteOffsets((other, AT_9))]


def test_commit_and_abort_behind_the_same_record_fail_the_task() -> None:
    core = working(BY_TASK)
    parts = (SlicePart(1, AT_5.offset, BOTH), SlicePart(1, AT_9.offset))
    run(core, Polled(1, 2, AT_9.offset, parts=parts), TransactionBegun(3))
    assert run(core, Sent()) == [AbortTransaction()]
    step = feed(core, Done(), 0)
    assert step.transitions[0].data == {"records": 2, "reason": "fatal"}
    assert step.effects[-1] == ReportFailed(BOTH_ASKED)


def test_a_stop_commits_only_what_the_task_asked_for_and_aborts_the_rest_at_once() -> None:
    asked = opened(working(BY_TASK))
    run(asked, ORDERS.stop)
    assert run(asked, PolledNothing(COMMIT)) == [WriteOffsets((AT_5,))]
    run(asked, Done())
    assert run(asked, Done()) == [NotifyCommitted(AT_5.offset), *END]
    not_asked = opened(working(BY_TASK))
    run(not_asked, ORDERS.stop)
    assert run(not_asked, PolledNothing()) == [AbortTransaction()]
    step = feed(not_asked, Done(), 0)
    reason = "stopped before the task asked for a commit"
    assert step.transitions == [transition(EventKind.TRANSACTION_ABORTED, records=2, reason=reason)]
    assert step.effects == END


def test_a_pause_commits_first_whatever_the_task_asked_for() -> None:
    core = opened(working(BY_TASK))
    run(core, ORDERS.pause)
    assert run(core, PolledNothing()) == [WriteOffsets((AT_5,))]
    run(core, Done())
    assert run(core, Done())[1:] == [ORDERS.paused]


def test_an_abort_that_the_task_asked_for_and_that_fails_fails_the_task() -> None:
    core = opened(working(BY_TASK))
    run(core, PolledNothing(ABORT))
    step = feed(core, EffectFailed("fenced", FailureKind.FENCED), 0)
    assert [t.kind for t in step.transitions] == [EventKind.PRODUCER_FENCED, EventKind.TRANSACTION_ABORTED]
    assert step.effects[-1] == ReportFailed("fenced", FailureKind.FENCED)


def test_a_failure_while_offsets_of_aborted_records_are_written_aborts_again() -> None:
    core = opened(working(BY_TASK))
    run(core, PolledNothing(ABORT), Done(), TransactionBegun(3))
    assert run(core, EffectFailed("no room")) == [AbortTransaction()]
    assert run(core, Done())[-1] == ReportFailed("no room")


def test_connector_boundary_without_exactly_once_is_the_flush_interval() -> None:
    core = working(dataclasses.replace(AT_LEAST_ONCE, boundary=TransactionBoundary.CONNECTOR))
    run(core, Polled(1, 2, AT_5.offset), Sent(), PolledNothing())
    assert run(core, PolledNothing(), now_ms=1000) == [FlushAndCommitOffsets((AT_5,), timeout_ms=500)]


@pytest.mark.rule("618.6.2")
def test_interval_boundary_counts_from_the_last_commit() -> None:
    core = opened(working(INTERVAL))
    assert run(core, PolledNothing(), now_ms=999) == [Idle(AT_5.offset, until_ms=1000)]
    assert run(core, PolledNothing(), now_ms=1000) == [WriteOffsets((AT_5,))]
    run(core, Done(), Done(), now_ms=1100)
    run(core, Polled(2, 1, AT_9.offset), TransactionBegun(3), Sent(), now_ms=1200)
    assert run(core, PolledNothing(), now_ms=1300) == [Idle(AT_9.offset, until_ms=2100)]


@pytest.mark.rule("618.6.8")
def test_the_offset_of_dropped_records_goes_with_the_next_transaction_that_has_a_record() -> None:
    other = {"filename": "/other.txt"}
    core = working(exactly_once())
    assert run(core, Polled(1, 0, {"position": 3}, partition=other, skipped=2)) == [Poll(None)]
    assert run(core, Polled(2, 1, AT_5.offset), TransactionBegun(3), Sent()) == [
        WriteOffsets((AT_5, PartitionOffset(other, {"position": 3})))
    ]
    run(core, Done(), Done())
    assert run(core, Polled(3, 1, AT_9.offset), TransactionBegun(3), Sent()) == [WriteOffsets((AT_9,))]


def test_dropped_records_behind_sent_ones_go_with_their_open_transaction() -> None:
    core = opened(working(INTERVAL))
    assert run(core, Polled(2, 0, AT_9.offset, skipped=3), now_ms=10) == [Poll(AT_9.offset)]
    assert run(core, PolledNothing(), now_ms=1000) == [WriteOffsets((AT_9,))]
    run(core, Done())
    assert run(core, Done())[0] == NotifyCommitted(AT_9.offset)


@pytest.mark.rule("618.6.8")
def test_a_stop_with_nothing_but_dropped_records_commits_nothing() -> None:
    for settings in (exactly_once(), INTERVAL, BY_TASK, AT_LEAST_ONCE):
        core = working(settings)
        run(core, Polled(1, 0, AT_5.offset, skipped=3), ORDERS.stop)
        assert run(core, PolledNothing(COMMIT), now_ms=5000) == END


def test_dropped_records_are_not_acknowledged_by_a_transaction_that_fails() -> None:
    core = working(exactly_once())
    run(core, Polled(1, 0, AT_5.offset, skipped=1), Polled(2, 1, AT_9.offset), TransactionBegun(3))
    effects = [*run(core, EffectFailed("too large", FailureKind.DELIVERY)), *run(core, Done())]
    assert not [effect for effect in effects if isinstance(effect, NotifyCommitted | WriteOffsets)]


@pytest.mark.rule("618.6.4")
def test_what_was_committed_is_copied_to_the_workers_topic_only_afterwards() -> None:
    core = working(dataclasses.replace(exactly_once(), copies_offsets=True))
    run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent(), Done())
    assert run(core, Done()) == [
        CopyOffsets((AT_5,)),
        NotifyCommitted(AT_5.offset),
        Poll(AT_5.offset),
    ]
    core = working(dataclasses.replace(AT_LEAST_ONCE, copies_offsets=True))
    run(core, Polled(1, 2, AT_5.offset), ORDERS.stop)
    assert run(core, Sent()) == [FlushAndCommitOffsets((AT_5,), timeout_ms=500)]
    assert run(core, Sent()) == [CopyOffsets((AT_5,)), NotifyCommitted(AT_5.offset), *END]
