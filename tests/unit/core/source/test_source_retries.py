"""`errors.retry.timeout` and `errors.retry.delay.max.ms`: when a source task tries again, and when it gives up."""

from __future__ import annotations

import dataclasses

from connectx.core.loops.messages import (
    Done,
    FailureKind,
    NotDone,
    ReportFailed,
    StopPlugin,
)
from connectx.core.source.messages import (
    AbortTransaction,
    CloseProducer,
    ConvertAgain,
    Idle,
    Poll,
    Polled,
    PolledNothing,
    PollFailed,
    Sent,
    TransactionBegun,
    Wait,
    WriteOffsets,
)
from connectx.core.source.progress import SourceTaskSettings
from connectx.model.states import TransactionBoundary
from tests.support.source_loop import AT_5, AT_9, END, ORDERS, exactly_once, run, working

BUSY = PollFailed("busy", retriable=True)
DOWN = NotDone("the registry is down")


def retrying(timeout_ms: int, *, tolerate_all: bool = False, delay_max_ms: int = 1000) -> SourceTaskSettings:
    settings = exactly_once(TransactionBoundary.INTERVAL)
    return dataclasses.replace(
        settings, retry_timeout_ms=timeout_ms, retry_delay_max_ms=delay_max_ms, tolerate_all=tolerate_all
    )


def test_a_conversion_is_tried_again_with_doubled_delays_up_to_the_longest_one() -> None:
    core = working(retrying(-1))
    assert run(core, DOWN, now_ms=0) == [Wait(300)]
    assert run(core, Done(), now_ms=200) == [Wait(300)]
    assert run(core, Done(), now_ms=300) == [ConvertAgain()]
    assert run(core, DOWN, now_ms=310) == [Wait(910)]
    run(core, Done(), now_ms=910)
    assert run(core, DOWN, now_ms=1000) == [Wait(2000)]


def test_a_conversion_that_succeeds_again_starts_from_the_first_delay_the_next_time() -> None:
    core = working(retrying(-1))
    run(core, DOWN)
    run(core, Done(), now_ms=300)
    run(core, Polled(1, 1, AT_5.offset), TransactionBegun(3), Sent(), now_ms=310)
    assert run(core, DOWN, now_ms=400) == [Wait(700)]


def test_the_last_delay_ends_at_the_deadline_and_then_the_task_fails() -> None:
    core = working(retrying(400))
    assert run(core, DOWN, now_ms=0) == [Wait(300)]
    run(core, Done(), now_ms=300)
    assert run(core, DOWN, now_ms=310) == [Wait(400)]
    run(core, Done(), now_ms=400)
    assert run(core, DOWN, now_ms=400) == [StopPlugin(), CloseProducer(), ReportFailed(DOWN.error, FailureKind.RECORD)]


def test_without_a_retry_timeout_a_failed_conversion_fails_the_task_at_once() -> None:
    assert run(working(retrying(0)), DOWN)[-1] == ReportFailed(DOWN.error, FailureKind.RECORD)


def test_with_tolerance_the_records_that_still_fail_at_the_deadline_are_left_out() -> None:
    core = working(retrying(0, tolerate_all=True))
    assert run(core, DOWN) == [ConvertAgain(skip_failures=True)]
    assert run(core, Polled(1, 0, AT_5.offset, skipped=2)) == [Poll(AT_5.offset)]


def test_a_failing_poll_counts_as_an_empty_one_without_a_retry_timeout_and_is_never_given_up_with_one() -> None:
    assert run(working(retrying(0)), BUSY) == [Idle(None, None)]
    core = working(retrying(400))
    assert run(core, BUSY, now_ms=0) == [Wait(300)]
    assert run(core, Done(), now_ms=300) == [Poll(None)]
    assert run(core, BUSY, now_ms=10_000) == [Wait(10_600)]
    run(core, Done(), now_ms=10_600)
    assert run(core, PolledNothing(), now_ms=10_600) == [Idle(None, None)]
    assert run(core, BUSY, now_ms=20_000) == [Wait(20_300)]


def test_an_open_transaction_is_committed_at_its_interval_while_a_retry_waits() -> None:
    core = working(retrying(-1, delay_max_ms=60_000))
    run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent(), DOWN, now_ms=900)
    assert run(core, Done(), now_ms=950) == [Wait(1000)]
    assert run(core, Done(), now_ms=1000) == [WriteOffsets((AT_5,))]


def test_a_failure_for_good_aborts_what_is_open() -> None:
    core = working(retrying(0))
    run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent())
    assert run(core, DOWN) == [AbortTransaction()]


def test_a_stop_ends_the_waiting_and_a_pause_polls_the_slice_again() -> None:
    core = working(retrying(-1))
    run(core, DOWN, ORDERS.stop)
    assert run(core, Done(), now_ms=10) == END
    core = working(retrying(-1))
    run(core, DOWN, ORDERS.pause)
    run(core, Done(), now_ms=10)
    assert run(core, ORDERS.resume, now_ms=20)[-1] == Poll(None)
    assert run(core, Polled(1, 0, AT_9.offset, skipped=1), now_ms=30) == [Poll(AT_9.offset)]
