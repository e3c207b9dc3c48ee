"""The sink loop: state and stimulus in, exact transitions and effects out."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from connectx.core.ignored import NotAwaited, NotOwned, OtherEpoch, TaskIsOver
from connectx.core.lanes import BulkMode, Lane, LaneSettings
from connectx.core.loops.messages import (
    CoresKnown,
    Done,
    EffectFailed,
    NotDone,
    QueryCores,
    ReportFailed,
    StartPlugin,
    StopPlugin,
)
from connectx.core.sink.loop import SinkTaskCore
from connectx.core.sink.messages import (
    BulkFailed,
    BulkStaged,
    ClosePartitions,
    CommitBulk,
    CommitFailed,
    CommitOffsets,
    DiscardBulk,
    EndsKnown,
    Fetched,
    Flush,
    JoinGroup,
    LagKnown,
    LeaveGroup,
    OffsetsCommitted,
    Opened,
    OpenPartitions,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    PausePartitions,
    Poll,
    Put,
    PutDone,
    PutFailed,
    PutNothing,
    PutRefused,
    QueryEnds,
    ResumePartitions,
    RunBulk,
    Seek,
    SinkStep,
    SinkStimulus,
    TargetKnown,
)
from connectx.core.sink.progress import SinkTaskSettings
from connectx.model.events import EventKind
from connectx.model.ids import TaskId, TopicPartition
from tests.support.histories import Recorded
from tests.support.task_loops import Orders, feed

pytestmark = pytest.mark.rule("always.7", "always.8")

TASK = TaskId("out", 1)
ORDERS = Orders(TASK)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
AT_LEAST_ONCE = SinkTaskSettings(TASK, False, offset_flush_interval_ms=1000, offset_flush_timeout_ms=500)
EXACTLY_ONCE = dataclasses.replace(AT_LEAST_ONCE, exactly_once=True)
END: list[Any] = [StopPlugin(), LeaveGroup()]


def run(core: SinkTaskCore, *stimuli: Any, now_ms: int = 0) -> SinkStep:
    """Feed stimuli; the outcome of the last one."""
    step = SinkStep()
    for stimulus in stimuli:
        step = feed(core, stimulus, now_ms)
    return step


def resumes_at(core: SinkTaskCore, *partitions: TopicPartition, epoch: int = 1) -> dict[TopicPartition, int]:
    """Where the next put of each partition begins, wherever the records begin that are fetched."""
    starts: dict[TopicPartition, int] = {}
    for partition in partitions:
        step = run(copy.deepcopy(core), Fetched(epoch, {partition: (10**6, 10**6 + 1)}))
        (put,) = [effect for effect in step.effects if isinstance(effect, Put)]
        starts[partition], _ = put.ranges[partition]
    return starts


def transition(kind: EventKind, **data: Any) -> Any:
    return Recorded(kind, TASK.connector, TASK.task, data=data)


def polling(settings: SinkTaskSettings, positions: Mapping[TopicPartition, int] | None = None) -> SinkTaskCore:
    """A loop that owns partitions (a-0 and a-1 at 10 and 20) and has a poll outstanding; epoch 1."""
    core = SinkTaskCore(settings)
    run(core, ORDERS.begin, Done())
    run(core, PartitionsAssigned(positions or {A0: 10, A1: 20}), Opened(1, {}), Done())
    return core


def with_put(settings: SinkTaskSettings) -> SinkTaskCore:
    """As `polling`, with 5 records of a-0 put (10 to 15) and nothing committed."""
    core = polling(settings)
    run(core, Fetched(1, {A0: (10, 15)}), PutDone(1, 5))
    return core


def test_a_task_starts_its_plugin_then_joins_the_group_then_polls() -> None:
    core = SinkTaskCore(AT_LEAST_ONCE)
    assert run(core, ORDERS.begin).effects == [StartPlugin()]
    assert run(core, Done()).effects == [JoinGroup(), ORDERS.runs, Poll(0, 100)]


def test_without_records_a_task_that_flushes_by_time_puts_nothing_before_each_commit() -> None:
    settings = dataclasses.replace(AT_LEAST_ONCE, puts_nothing=True)
    core = with_put(settings)
    assert run(core, Done(), now_ms=999).effects == [Poll(1, 1)]
    assert run(core, Done(), now_ms=1000).effects == [PutNothing()]
    assert run(core, Done()).effects == [Flush()]
    run(core, Done(), OffsetsCommitted(1))
    assert run(core, Done(), now_ms=1999).effects == [Poll(1, 1)]
    assert run(core, Fetched(1, {A0: (15, 16)}), now_ms=2000).effects == [Put(1, {A0: (15, 16)})]
    assert run(core, PutDone(1, 1), ORDERS.pause, Done()).effects[-1:] == [Flush()]
    run(core, Done(), OffsetsCommitted(2))
    assert run(core, Done(), now_ms=3000).effects == [PutNothing()]
    assert run(core, EffectFailed("no space")).effects[-1:] == [ReportFailed("no space")]
    at_once = polling(AT_LEAST_ONCE)
    assert run(at_once, Done(), now_ms=1000).effects == [Poll(1, 100)]


def test_a_task_that_begins_paused_waits_before_its_plugin_starts() -> None:
    core = SinkTaskCore(AT_LEAST_ONCE)
    assert run(core, ORDERS.pause, ORDERS.begin).effects == [ORDERS.paused]
    assert run(core, ORDERS.pause).effects == []
    assert run(core, ORDERS.resume).effects == [StartPlugin()]


def test_a_pause_pauses_partitions_commits_and_polls_on_as_a_member() -> None:
    core = with_put(AT_LEAST_ONCE)
    assert run(core, ORDERS.pause).effects == []
    paused = run(core, Done())
    assert paused.effects == [PausePartitions((A0, A1)), ORDERS.paused, Flush()]
    assert run(core, Done()).effects == [CommitOffsets(1, {A0: 15}, wait=False), Poll(1, 100)]


def test_a_resume_fetches_again() -> None:
    core = polling(AT_LEAST_ONCE)
    run(core, ORDERS.pause, Done())
    assert run(core, ORDERS.resume, Done()).effects == [
        ResumePartitions((A0, A1)),
        ORDERS.runs,
        Poll(1, 100),
    ]


def test_partitions_assigned_to_a_paused_task_are_paused() -> None:
    core = SinkTaskCore(AT_LEAST_ONCE)
    run(core, ORDERS.begin, Done(), ORDERS.pause, Done())
    assert run(core, PartitionsAssigned({A0: 0})).effects == [PausePartitions((A0,)), OpenPartitions(1, (A0,))]


def test_a_start_that_fails_is_reported_after_stopping_the_plugin() -> None:
    core = SinkTaskCore(AT_LEAST_ONCE)
    assert run(core, ORDERS.begin, EffectFailed("no table")).effects == [*END, ReportFailed("no table")]


@pytest.mark.parametrize("request_", [ORDERS.stop, ORDERS.cancel])
def test_a_task_that_never_began_ends_at_once(request_: Any) -> None:
    core = SinkTaskCore(AT_LEAST_ONCE)
    assert run(core, request_).effects == [ORDERS.stopped]
    assert core.ended


def test_what_was_fetched_is_put_from_the_position_on() -> None:
    core = polling(AT_LEAST_ONCE)
    step = run(core, Fetched(1, {A0: (12, 15)}))
    assert step.effects == [Put(1, {A0: (10, 15)})]


def test_positions_move_only_after_the_put() -> None:
    core = polling(AT_LEAST_ONCE)
    run(core, Fetched(1, {A0: (10, 15), A1: (20, 21)}))
    assert run(core, PutDone(1, 6)) == SinkStep([], [Poll(1, 100)])
    assert resumes_at(core, A0, A1) == {A0: 15, A1: 21}


def test_topics_are_put_one_after_the_other() -> None:
    core = polling(AT_LEAST_ONCE, {A0: 0, B0: 0})
    assert run(core, Fetched(1, {B0: (0, 3), A0: (0, 2)})).effects == [Put(1, {A0: (0, 2)})]
    assert run(core, PutDone(1, 2)).effects == [Put(1, {B0: (0, 3)})]
    assert run(core, PutDone(1, 3)).effects == [Poll(1, 100)]


def test_at_least_once_flushes_then_commits_when_due_and_reports_it_when_the_group_answers() -> None:
    core = with_put(AT_LEAST_ONCE)
    assert run(core, Done(), now_ms=999).effects == [Poll(1, 1)]
    assert run(core, Done(), now_ms=1000).effects == [Flush()]
    commit = run(core, Done(), now_ms=1001)
    assert commit == SinkStep([], [CommitOffsets(1, {A0: 15}, wait=False), Poll(1, 100)])
    assert run(core, OffsetsCommitted(1), now_ms=1010) == SinkStep(
        [transition(EventKind.OFFSETS_COMMITTED, records=5, offsets={"a-0": 15})], []
    )


def test_nothing_new_means_no_flush_and_no_commit() -> None:
    core = polling(AT_LEAST_ONCE)
    assert run(core, Done(), now_ms=5000).effects == [Poll(1, 100)]


def test_exactly_once_reports_the_commit_of_the_target_and_lets_the_group_follow() -> None:
    core = polling(EXACTLY_ONCE)
    run(core, Fetched(1, {A0: (10, 15)}))
    done = run(core, PutDone(1, 5), now_ms=10)
    assert done == SinkStep([transition(EventKind.OFFSETS_COMMITTED, records=5, offsets={"a-0": 15})], [Poll(1, 100)])
    later = run(core, Done(), now_ms=1000)
    assert later.effects == [CommitOffsets(1, {A0: 15}, wait=False), Poll(1, 100)]
    assert run(core, OffsetsCommitted(1), now_ms=1001) == SinkStep()


def test_transaction_markers_move_what_is_committed_but_not_where_the_next_batch_starts() -> None:
    core = polling(EXACTLY_ONCE)
    run(core, Fetched(1, {}, {A0: 12}))
    assert run(core, Done(), now_ms=1000).effects[0] == CommitOffsets(1, {A0: 12}, wait=False)
    assert run(core, Fetched(1, {A0: (12, 13)}), now_ms=1001).effects == [Put(1, {A0: (10, 13)})]


def test_a_commit_without_an_answer_is_dropped_after_its_timeout_and_its_late_answer_changes_nothing() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, Done(), Done(), now_ms=1000)
    run(core, Done(), now_ms=1500)
    late = run(core, OffsetsCommitted(1), now_ms=1501)
    assert late == SinkStep(ignored=NotAwaited("OffsetsCommitted", 1))
    assert run(core, Done(), now_ms=2000).effects == [Flush()]
    assert run(core, Done(), now_ms=2000).effects[0] == CommitOffsets(2, {A0: 15}, wait=False)


def test_what_was_read_is_active_until_the_group_holds_it() -> None:
    core = with_put(AT_LEAST_ONCE)
    assert core.progress.active_records(core.batches) == 5
    run(core, Fetched(1, {A1: (20, 23)}))
    assert core.progress.active_records(core.batches) == 8
    run(core, PutDone(1, 3), Done(), Done(), now_ms=1000)
    assert core.progress.active_records(core.batches) == 8
    run(core, OffsetsCommitted(1), now_ms=1001)
    assert core.progress.active_records(core.batches) == 0


def test_a_failed_commit_does_not_fail_the_task_and_is_made_again_with_its_records() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, Done(), Done(), now_ms=1000)
    assert run(core, CommitFailed(1, "COORDINATOR_LOAD_IN_PROGRESS"), now_ms=1001) == SinkStep()
    run(core, Done(), Done(), now_ms=2000)
    step = run(core, OffsetsCommitted(2), now_ms=2001)
    assert step.transitions == [transition(EventKind.OFFSETS_COMMITTED, records=5, offsets={"a-0": 15})]


@pytest.mark.rule("618.8.1")
def test_a_commit_of_a_former_member_is_recorded_as_refused() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, Done(), Done(), now_ms=1000)
    step = run(core, CommitFailed(1, "UNKNOWN_MEMBER_ID", not_owner=True), now_ms=1001)
    assert step == SinkStep([transition(EventKind.COMMIT_REFUSED, reason="UNKNOWN_MEMBER_ID", partitions=["a-0"])], [])


def test_a_failed_flush_commits_nothing_and_puts_everything_again_since_the_last_commit() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, Done(), now_ms=1000)
    assert run(core, NotDone("disk full"), now_ms=1001) == SinkStep(
        [transition(EventKind.COMMIT_REFUSED, reason="flush failed: disk full", partitions=["a-0"])],
        [Seek({A0: 10, A1: 20}), Poll(1, 100)],
    )
    assert resumes_at(core, A0, A1) == {A0: 10, A1: 20}


def test_positions_advance_past_filtered_records() -> None:
    core = polling(AT_LEAST_ONCE)
    run(core, Fetched(1, {A0: (10, 15)}))
    assert run(core, PutDone(1, 0, filtered=5)) == SinkStep(
        [transition(EventKind.RECORDS_FILTERED, records=5)], [Poll(1, 100)]
    )
    assert resumes_at(core, A0) == {A0: 15}


def test_skipped_records_are_told_and_count_as_put() -> None:
    core = polling(AT_LEAST_ONCE)
    run(core, Fetched(1, {A0: (10, 15)}))
    assert run(core, PutDone(1, 4, 1, "not JSON")) == SinkStep(
        [transition(EventKind.RECORDS_SKIPPED, records=1, reason="not JSON")], [Poll(1, 100)]
    )
    assert resumes_at(core, A0) == {A0: 15}


def test_a_retriable_put_pauses_keeps_the_batch_polls_on_and_puts_again_with_growing_waits() -> None:
    core = polling(AT_LEAST_ONCE)
    run(core, Fetched(1, {A0: (10, 15)}))
    failed = PutFailed(1, True, "server restarts")
    assert run(core, failed).effects == [PausePartitions((A0, A1)), Poll(1, 100)]
    assert run(core, Done(), now_ms=99).effects == [Poll(1, 1)]
    assert run(core, Done(), now_ms=100).effects == [Put(1, {A0: (10, 15)})]
    assert run(core, failed, now_ms=100).effects == [Poll(1, 100)]
    assert run(core, Done(), now_ms=299).effects == [Poll(1, 1)]
    assert run(core, Done(), now_ms=300).effects == [Put(1, {A0: (10, 15)})]
    assert run(core, PutDone(1, 5), now_ms=301).effects == [ResumePartitions((A0, A1)), Poll(1, 100)]


def test_what_is_fetched_while_a_batch_waits_for_its_next_try_is_fetched_again_and_the_batch_kept() -> None:
    core = polling(AT_LEAST_ONCE)
    assert run(core, Fetched(1, {A0: (10, 15)}, number=4)).effects == [Put(1, {A0: (10, 15)}, number=4)]
    run(core, PutFailed(1, True, "down"))
    late = run(core, Fetched(1, {A1: (20, 21)}, {A0: 16}, number=5), now_ms=1)
    assert late.effects == [Seek({A0: 10, A1: 20}), Poll(1, 99)]
    assert run(core, Done(), now_ms=100).effects == [Put(1, {A0: (10, 15)}, number=4)]


def test_the_wait_between_tries_has_a_limit() -> None:
    core = polling(dataclasses.replace(AT_LEAST_ONCE, offset_flush_interval_ms=10**9))
    run(core, Fetched(1, {A0: (10, 15)}))
    for tries in range(40):
        run(core, PutFailed(1, True, "down"))
        assert Put(1, {A0: (10, 15)}) in run(core, Done(), now_ms=5_000 * (tries + 1)).effects
    run(core, PutFailed(1, True, "down"))
    assert run(core, Done(), now_ms=204_999).effects == [Poll(1, 1)]
    assert run(core, Done(), now_ms=205_000).effects == [Put(1, {A0: (10, 15)})]


def test_a_paused_task_stays_held_when_its_retry_succeeds() -> None:
    core = polling(AT_LEAST_ONCE)
    run(core, Fetched(1, {A0: (10, 15)}), PutFailed(1, True, "down"), ORDERS.pause)
    run(core, Done(), now_ms=50)
    run(core, Done(), now_ms=100)
    assert ResumePartitions((A0, A1)) not in run(core, PutDone(1, 5), now_ms=101).effects
    assert ResumePartitions((A0, A1)) in run(core, ORDERS.resume, Done(), now_ms=102).effects


def test_any_other_put_error_commits_what_was_put_before_and_fails_the_task() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, Fetched(1, {A0: (15, 16)}))
    assert run(core, PutFailed(1, False, "bad row")).effects == [Flush()]
    assert run(core, Done()).effects == [CommitOffsets(1, {A0: 15}, wait=True)]
    assert run(core, OffsetsCommitted(1)) == SinkStep(
        [
            transition(EventKind.OFFSETS_COMMITTED, records=5, offsets={"a-0": 15}),
            transition(EventKind.PARTITIONS_REVOKED, partitions=["a-0", "a-1"]),
        ],
        [ClosePartitions((A0, A1)), *END, ReportFailed("bad row")],
    )


def test_a_refused_put_goes_on_where_the_target_is() -> None:
    core = polling(EXACTLY_ONCE)
    run(core, Fetched(1, {A0: (10, 15), A1: (20, 22)}))
    step = run(core, PutRefused(1, {A0: 13, A1: 20}, "a-0 is at 13"))
    assert step == SinkStep(
        [
            transition(
                EventKind.COMMIT_REFUSED,
                reason="a-0 is at 13",
                partitions=["a-0", "a-1"],
                offsets={"a-0": 13, "a-1": 20},
            )
        ],
        [Seek({A0: 13, A1: 20}), Poll(1, 100)],
    )
    assert resumes_at(core, A0, A1) == {A0: 13, A1: 20}


def test_a_refused_put_goes_back_where_the_target_is_behind() -> None:
    core = polling(EXACTLY_ONCE)
    run(core, Fetched(1, {A0: (10, 15)}))
    assert run(core, PutRefused(1, {A0: 4}, "a-0 is at 4")).effects == [Seek({A0: 4}), Poll(1, 100)]


def test_a_refusal_after_a_lost_answer_counts_as_done_when_the_target_is_at_the_batch_end() -> None:
    core = polling(EXACTLY_ONCE)
    run(core, Fetched(1, {A0: (10, 15)}), PutFailed(1, True, "connection lost in commit"))
    run(core, Done(), now_ms=100)
    step = run(core, PutRefused(1, {A0: 15}, "a-0 is at 15", records=5), now_ms=101)
    assert step == SinkStep(
        [transition(EventKind.OFFSETS_COMMITTED, records=5, offsets={"a-0": 15})],
        [ResumePartitions((A0, A1)), Poll(1, 100)],
    )


def test_a_refused_put_also_rereads_partitions_whose_buffered_rows_the_target_refuses() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, Fetched(1, {A1: (20, 22)}))
    assert run(core, PutRefused(1, {A0: 12, A1: 20}, "a-0 is at 12")).effects == [
        Seek({A0: 12, A1: 20}),
        Poll(1, 100),
    ]
    assert resumes_at(core, A0, A1) == {A0: 12, A1: 20}


def test_a_refusal_after_a_lost_answer_rereads_the_other_partitions_that_it_names() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, Fetched(1, {A1: (20, 22)}), PutFailed(1, True, "connection lost in commit"))
    run(core, Done(), now_ms=100)
    step = run(core, PutRefused(1, {A0: 12, A1: 22}, "a-0 is at 12", records=2), now_ms=101)
    assert Seek({A0: 12}) in step.effects
    assert resumes_at(core, A0, A1) == {A0: 12, A1: 22}


def test_assigned_partitions_are_opened() -> None:
    core = SinkTaskCore(AT_LEAST_ONCE)
    run(core, ORDERS.begin, Done())
    assert run(core, PartitionsAssigned({A1: 7, A0: 3})) == SinkStep(
        [transition(EventKind.PARTITIONS_ASSIGNED, partitions=["a-0", "a-1"])], [OpenPartitions(1, (A0, A1))]
    )
    assert run(core, Opened(1, {})) == SinkStep()


def test_an_exactly_once_target_says_where_reading_starts() -> None:
    core = SinkTaskCore(EXACTLY_ONCE)
    run(core, ORDERS.begin, Done(), PartitionsAssigned({A0: 3, A1: 7}))
    assert run(core, Opened(1, {A0: 9})).effects == [Seek({A0: 9})]
    assert resumes_at(core, A0, A1) == {A0: 9, A1: 7}
    assert run(core, Done(), now_ms=1000).effects[0] == CommitOffsets(1, {A0: 9}, wait=False)


def test_an_answer_of_open_from_an_older_epoch_changes_nothing() -> None:
    core = polling(EXACTLY_ONCE)
    run(core, PartitionsAssigned({B0: 0}))
    assert run(core, Opened(1, {A0: 99})) == SinkStep(ignored=OtherEpoch(1, 2))
    assert resumes_at(core, A0, epoch=2) == {A0: 10}


def test_a_failing_open_fails_the_task_when_the_poll_returns() -> None:
    core = SinkTaskCore(AT_LEAST_ONCE)
    run(core, ORDERS.begin, Done(), PartitionsAssigned({A0: 3}))
    assert run(core, EffectFailed("table missing")) == SinkStep()
    assert run(core, Done()).effects == [ClosePartitions((A0,)), *END, ReportFailed("table missing")]


def test_partitions_are_opened_again_for_a_minute_while_the_target_is_away() -> None:
    core = SinkTaskCore(AT_LEAST_ONCE)
    run(core, ORDERS.begin, Done(), PartitionsAssigned({A0: 3}))
    away = NotDone("no connection")
    for now_ms in (1_000, 60_999):
        assert run(core, away, now_ms=now_ms).effects == [OpenPartitions(1, (A0,), wait_ms=250)]
    assert run(core, away, now_ms=61_000) == SinkStep()
    assert run(core, Done()).effects == [ClosePartitions((A0,)), *END, ReportFailed("no connection")]


def test_each_opening_has_its_own_minute() -> None:
    core = SinkTaskCore(AT_LEAST_ONCE)
    run(core, ORDERS.begin, Done(), PartitionsAssigned({A0: 3}))
    run(core, NotDone("no connection"), Opened(1, {}), Done(), now_ms=1_000)
    run(core, PartitionsAssigned({B0: 0}), now_ms=90_000)
    again = run(core, NotDone("no connection"), now_ms=90_000)
    assert again.effects == [OpenPartitions(2, (B0,), wait_ms=250)]


def test_revoked_partitions_are_flushed_and_committed_while_still_owned_then_closed() -> None:
    core = with_put(AT_LEAST_ONCE)
    assert run(core, PartitionsRevoked((A0,))) == SinkStep([], [Flush()])
    assert run(core, Done()) == SinkStep([], [CommitOffsets(1, {A0: 15}, wait=True)])
    assert run(core, OffsetsCommitted(1)) == SinkStep(
        [
            transition(EventKind.OFFSETS_COMMITTED, records=5, offsets={"a-0": 15}),
            transition(EventKind.PARTITIONS_REVOKED, partitions=["a-0"]),
        ],
        [ClosePartitions((A0,))],
    )
    assert PausePartitions((A1,)) in run(core, ORDERS.pause, Done()).effects
    assert run(core, Done()).effects == [Poll(2, 100)]


def test_a_revocation_with_nothing_to_commit_only_closes() -> None:
    core = polling(AT_LEAST_ONCE)
    assert run(core, PartitionsRevoked((A0, A1))).effects == [ClosePartitions((A0, A1))]


def test_a_revocation_commits_in_place_of_a_commit_that_is_on_its_way() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, Done(), Done(), now_ms=1000)
    assert run(core, PartitionsRevoked((A0, A1)), Done()).effects == [CommitOffsets(2, {A0: 15}, wait=True)]
    assert run(core, OffsetsCommitted(1)) == SinkStep(ignored=NotAwaited("OffsetsCommitted", 1))
    assert run(core, OffsetsCommitted(2)).transitions[0].data["records"] == 5


def test_a_revocation_closes_without_commit_when_the_flush_fails() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, PartitionsRevoked((A0,)))
    assert run(core, NotDone("disk full")) == SinkStep(
        [
            transition(EventKind.COMMIT_REFUSED, reason="flush failed: disk full", partitions=["a-0"]),
            transition(EventKind.PARTITIONS_REVOKED, partitions=["a-0"]),
        ],
        [Seek({A1: 20}), ClosePartitions((A0,))],
    )


def test_what_stays_is_put_again_too_when_the_flush_of_a_revocation_fails() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, Fetched(1, {A1: (20, 25)}), PutDone(1, 5), PartitionsRevoked((A0,)))
    assert Seek({A1: 20}) in run(core, NotDone("disk full")).effects
    assert run(core, Done(), now_ms=1000).effects == [Poll(2, 100)]


def test_a_revocation_drops_what_was_not_put() -> None:
    core = polling(AT_LEAST_ONCE)
    run(core, Fetched(1, {A0: (10, 15), A1: (20, 30)}), PutFailed(1, True, "down"))
    assert run(core, PartitionsRevoked((A0,))).effects == [ClosePartitions((A0,))]
    assert run(core, Done(), now_ms=100).effects == [Put(2, {A1: (20, 30)})]


@pytest.mark.rule("618.8.2")
def test_lost_partitions_are_closed_without_flush_or_commit() -> None:
    core = with_put(AT_LEAST_ONCE)
    assert run(core, PartitionsLost((A0, A1))) == SinkStep(
        [transition(EventKind.PARTITIONS_LOST, partitions=["a-0", "a-1"])], [ClosePartitions((A0, A1))]
    )
    assert run(core, Done(), now_ms=5000).effects == [Poll(2, 100)]


@pytest.mark.rule("618.8.2")
def test_partitions_that_are_not_owned_are_never_given_up_or_committed() -> None:
    core = with_put(AT_LEAST_ONCE)
    assert run(core, PartitionsRevoked((B0,))) == SinkStep(ignored=NotOwned((B0,)))
    assert run(core, Fetched(1, {B0: (0, 9)})).effects == [Poll(1, 100)]
    assert run(core, Done(), Done(), now_ms=1000).effects[0] == CommitOffsets(1, {A0: 15}, wait=False)


def test_records_fetched_under_an_older_assignment_are_fetched_again() -> None:
    core = polling(AT_LEAST_ONCE)
    run(core, PartitionsRevoked((A0, A1)), PartitionsAssigned({A1: 20, B0: 5}), Opened(3, {}))
    assert run(core, Fetched(1, {A0: (10, 15), A1: (20, 30)})).effects == [Seek({A1: 20}), Poll(3, 100)]


@pytest.mark.parametrize("late", [PutDone(1, 5), PutFailed(1, True, "x"), PutRefused(1, {A0: 1}, "x")])
def test_a_late_outcome_of_a_put_changes_nothing(late: SinkStimulus) -> None:
    core = polling(EXACTLY_ONCE)
    run(core, Fetched(1, {A0: (10, 15)}), PartitionsLost((A0, A1)), PartitionsAssigned({A0: 10}), Opened(3, {}))
    assert run(core, late) == SinkStep([], [Poll(3, 100)], OtherEpoch(1, 3))
    assert resumes_at(core, A0, epoch=3) == {A0: 10}


def test_records_below_the_position_are_fetched_again() -> None:
    core = with_put(AT_LEAST_ONCE)
    assert run(core, Fetched(1, {A0: (12, 18)})).effects == [Seek({A0: 15}), Poll(1, 100)]


def test_a_stop_commits_closes_stops_and_leaves() -> None:
    core = with_put(AT_LEAST_ONCE)
    assert run(core, ORDERS.stop) == SinkStep()
    assert run(core, Done()).effects == [Flush()]
    assert run(core, Done()).effects == [CommitOffsets(1, {A0: 15}, wait=True)]
    assert run(core, OffsetsCommitted(1)).effects == [ClosePartitions((A0, A1)), *END, ORDERS.stopped]
    assert run(core, Done(), PartitionsRevoked((A0, A1))) == SinkStep(ignored=TaskIsOver(TASK, 0))


def test_a_stop_drops_a_batch_that_waits_for_its_next_try() -> None:
    core = polling(AT_LEAST_ONCE)
    run(core, Fetched(1, {A0: (10, 15)}), PutFailed(1, True, "down"), ORDERS.stop)
    assert run(core, Done(), now_ms=1).effects == [ClosePartitions((A0, A1)), *END, ORDERS.stopped]


def test_a_cancelled_task_commits_nothing_any_more() -> None:
    core = with_put(AT_LEAST_ONCE)
    assert run(core, ORDERS.cancel) == SinkStep()
    assert run(core, Done()).effects == [ClosePartitions((A0, A1)), *END, ORDERS.stopped]


def test_a_cancelled_task_does_not_commit_when_partitions_are_revoked() -> None:
    core = with_put(AT_LEAST_ONCE)
    run(core, ORDERS.cancel)
    assert run(core, PartitionsRevoked((A0, A1))).effects == [ClosePartitions((A0, A1))]


def test_a_last_flush_that_a_cancellation_cuts_off_gives_the_partitions_up_all_the_same() -> None:
    """The answer to the flush is then OpenFailed, as to any effect within a rebalance."""
    core = with_put(AT_LEAST_ONCE)
    assert run(core, PartitionsRevoked((A0, A1))).effects == [Flush()]
    assert run(core, EffectFailed("the task was cancelled")).effects == [ClosePartitions((A0, A1))]
    assert run(core, ORDERS.cancel, Done()).effects == [*END, ORDERS.stopped]


AUTO = dataclasses.replace(EXACTLY_ONCE, lanes=LaneSettings(BulkMode.AUTO, 1000), bulk_core_bytes=75)
ALWAYS = dataclasses.replace(AUTO, lanes=LaneSettings(BulkMode.ALWAYS))


def lagging(settings: SinkTaskSettings = AUTO) -> SinkTaskCore:
    """A loop that has put 10 records of a-0 (10 bytes each) and asks how many wait; epoch 1."""
    core = polling(settings, {A0: 0, A1: 0})
    step = run(core, Fetched(1, {A0: (0, 10)}, full=True, size_bytes=100), PutDone(1, 10))
    assert step.effects == [QueryEnds(1, (A0, A1))]
    return core


def in_bulk(settings: SinkTaskSettings = AUTO) -> SinkTaskCore:
    """As `lagging`, with job 1 running over 30 records of each partition."""
    core = lagging(settings)
    step = run(core, EndsKnown(1, {A0: 30, A1: 100}), CoresKnown(8))
    assert RunBulk(1, {A0: (10, 30), A1: (0, 30)}) in step.effects
    return core


def test_a_full_batch_asks_for_the_lag_but_not_too_often() -> None:
    core = polling(AUTO, {A0: 0})
    run(core, Fetched(1, {A0: (0, 10)}, full=True, size_bytes=100))
    assert run(core, PutDone(1, 10), now_ms=5).effects == [QueryEnds(1, (A0,))]
    assert run(core, EndsKnown(1, {A0: 109}), now_ms=6).effects == [Poll(1, 100)]
    run(core, Fetched(1, {A0: (10, 20)}, full=True, size_bytes=100), now_ms=7)
    assert run(core, PutDone(1, 10), now_ms=8).effects == [Poll(1, 100)]


def test_a_large_lag_is_given_to_executors_beside_a_loop_that_polls_on_with_its_partitions_paused() -> None:
    core = lagging()
    assert run(core, EndsKnown(1, {A0: 30, A1: 100})).effects == [QueryCores()]
    ranges = {A0: (10, 30), A1: (0, 30)}
    reason = "0.0 MB wait, and Spark has 8 cores"
    assert run(core, CoresKnown(8)) == SinkStep(
        [
            transition(EventKind.LANE_CHANGED, lane="bulk", reason=reason),
            transition(EventKind.BULK_STARTED, token=1, ranges={"a-0": [10, 30], "a-1": [0, 30]}),
        ],
        [PausePartitions((A0, A1)), RunBulk(1, ranges), Poll(1, 100)],
    )
    assert run(core, Done()).effects == [Poll(1, 100)]


def test_what_executors_staged_is_committed_and_the_lag_asked_for_again() -> None:
    core = in_bulk()
    ranges = {A0: (10, 30), A1: (0, 30)}
    staged = run(core, BulkStaged(1, 50, 2))
    assert staged == SinkStep(
        [transition(EventKind.BULK_STAGED, token=1, records=50, refused=2)], [CommitBulk(1, 1, ranges)]
    )
    assert run(core, PutDone(1, 48, 2, "bad")).effects == [QueryEnds(1, (A0, A1))]
    step = run(core, EndsKnown(1, {A0: 30, A1: 100}))
    assert step.effects == [RunBulk(2, {A1: (30, 90)}), Poll(1, 100)]


def test_the_worker_goes_on_behind_the_last_job_when_little_waits() -> None:
    core = in_bulk()
    run(core, BulkStaged(1, 50), PutDone(1, 50))
    assert run(core, EndsKnown(1, {A0: 30, A1: 40})).effects == [
        Seek({A0: 30, A1: 30}),
        ResumePartitions((A0, A1)),
        Poll(1, 100),
    ]
    assert core.bulk.choice.lane is Lane.TAIL


@pytest.mark.parametrize("cores", [None, 3])
def test_too_few_cores_leave_a_large_lag_to_the_worker(cores: int | None) -> None:
    core = lagging()
    run(core, EndsKnown(1, {A0: 30, A1: 100}))
    assert run(core, CoresKnown(cores)).effects == [Poll(1, 100)]
    assert "cores" in str(core.bulk.choice.reason)


def test_a_connector_that_cannot_stage_is_never_asked_to() -> None:
    core = polling(dataclasses.replace(ALWAYS, bulk_obstacle="it writes one file"), {A0: 0})
    assert run(core, Done(), now_ms=5000).effects[-1] == Poll(1, 100)
    assert str(core.bulk.choice.reason) == "it writes one file"


def test_always_leaves_no_record_to_the_worker() -> None:
    core = SinkTaskCore(ALWAYS)
    run(core, ORDERS.begin, Done())
    assert PausePartitions((A0,)) in run(core, PartitionsAssigned({A0: 0})).effects
    run(core, Opened(1, {}))
    assert run(core, Done()).effects == [QueryEnds(1, (A0,))]
    assert run(core, EndsKnown(1, {A0: 0})).effects == [Poll(1, 100)]
    assert run(core, Done(), now_ms=1000).effects == [QueryEnds(1, (A0,))]
    assert run(core, EndsKnown(1, {A0: 1})).effects == [RunBulk(1, {A0: (0, 1)}), Poll(1, 100)]


def test_a_job_takes_one_topic_the_one_that_is_most_behind() -> None:
    core = polling(ALWAYS, {A0: 0, A1: 0, B0: 0})
    step = run(core, EndsKnown(1, {A0: 3, A1: 3, B0: 5}))
    assert RunBulk(1, {A0: (0, 3), A1: (0, 3)}) in step.effects


def test_what_the_worker_put_is_flushed_and_committed_before_a_job_begins() -> None:
    core = lagging(dataclasses.replace(AUTO, exactly_once=False))
    run(core, EndsKnown(1, {A0: 30, A1: 100}))
    assert run(core, CoresKnown(8)).effects == [PausePartitions((A0, A1)), Flush()]
    started = run(core, Done()).effects
    assert started[0] == CommitOffsets(1, {A0: 10}, wait=False)
    assert isinstance(started[1], RunBulk)


def test_a_commit_that_fails_is_tried_again_and_nothing_else_is_asked_of_executors() -> None:
    core = in_bulk()
    run(core, BulkStaged(1, 50))
    assert run(core, PutFailed(1, True, "down"), now_ms=1).effects == [Poll(1, 100)]
    again = run(core, Done(), now_ms=101).effects
    assert again == [CommitBulk(1, 1, {A0: (10, 30), A1: (0, 30)})]


def test_a_refused_commit_discards_what_was_staged_and_goes_on_where_the_target_is() -> None:
    core = in_bulk()
    run(core, BulkStaged(1, 50))
    step = run(core, PutRefused(1, {A0: 20, A1: 0}, "elsewhere", 50))
    assert step.effects[:2] == [DiscardBulk(1), Seek({A0: 20, A1: 0})]


@pytest.mark.parametrize("is_staged", [False, True])
def test_a_job_of_a_revoked_partition_is_discarded_and_its_late_end_changes_nothing(is_staged: bool) -> None:
    core = in_bulk()
    if is_staged:
        run(core, BulkStaged(1, 50), PutFailed(1, True, "down"))
    run(core, PartitionsRevoked((A0,)))
    step = run(core, OffsetsCommitted(1))
    assert step.effects == [DiscardBulk(1), ClosePartitions((A0,))]
    assert run(core, BulkStaged(1, 50)).effects == [QueryEnds(2, (A1,))]
    assert run(core, EndsKnown(2, {A1: 100})).effects[0] == RunBulk(2, {A1: (0, 60)})


def test_a_job_of_a_lost_partition_is_discarded() -> None:
    core = in_bulk()
    assert run(core, PartitionsLost((A1,))).effects == [DiscardBulk(1), ClosePartitions((A1,))]


def test_a_job_goes_on_while_other_partitions_come_and_go() -> None:
    core = in_bulk()
    assert PausePartitions((B0,)) in run(core, PartitionsAssigned({B0: 0})).effects
    run(core, Opened(2, {}), PartitionsRevoked((B0,)))
    assert run(core, BulkStaged(1, 50)).effects == [CommitBulk(3, 1, {A0: (10, 30), A1: (0, 30)})]


def test_a_pause_discards_a_job_and_commits() -> None:
    core = in_bulk()
    run(core, ORDERS.pause)
    assert run(core, Done()).effects == [
        DiscardBulk(1),
        ORDERS.paused,
        CommitOffsets(1, {A0: 10}, wait=False),
        Poll(1, 100),
    ]
    run(core, ORDERS.resume)
    assert run(core, Done()).effects == [ORDERS.runs, QueryEnds(1, (A0, A1))]


def test_a_plugin_says_when_a_put_is_tried_again() -> None:
    core = polling(AT_LEAST_ONCE)
    run(core, Fetched(1, {A0: (10, 15)}), PutFailed(1, True, "down", retry_in_ms=700))
    assert run(core, Done(), now_ms=699).effects == [Poll(1, 1)]
    assert run(core, Done(), now_ms=700).effects == [Put(1, {A0: (10, 15)})]


def test_a_put_fails_the_task_when_its_time_for_retries_is_over_and_not_before() -> None:
    core = polling(dataclasses.replace(AT_LEAST_ONCE, retry_timeout_ms=150))
    run(core, Fetched(1, {A0: (10, 15)}), PutFailed(1, True, "Down."), now_ms=0)
    assert run(core, Done(), now_ms=100).effects == [Put(1, {A0: (10, 15)})]
    assert run(core, PutFailed(1, True, "Down."), now_ms=110).effects == [Poll(1, 40)]
    assert run(core, Done(), now_ms=150).effects == [Put(1, {A0: (10, 15)})]
    reason = "Down. It was tried 3 times in 151 ms; errors.retry.timeout is 150 ms."
    failed = run(core, PutFailed(1, True, "Down."), now_ms=151).effects
    assert failed == [ClosePartitions((A0, A1)), *END, ReportFailed(reason)]


@pytest.mark.parametrize(
    ("settings", "size_bytes"),
    [
        (dataclasses.replace(AT_LEAST_ONCE, offset_flush_interval_ms=10**9, max_rows_per_s=10.0), 0),
        (dataclasses.replace(AT_LEAST_ONCE, offset_flush_interval_ms=10**9, max_bytes_per_s=200.0), 100),
    ],
)
def test_the_next_put_waits_as_long_as_the_last_one_takes_at_the_highest_rate(
    settings: SinkTaskSettings, size_bytes: int
) -> None:
    core = polling(settings)
    assert run(core, Fetched(1, {A0: (10, 15)})).effects == [Put(1, {A0: (10, 15)})]
    assert run(core, PutDone(1, 5, size_bytes=size_bytes), now_ms=20).effects == [Poll(1, 100)]
    waiting = run(core, Fetched(1, {A0: (15, 20)}), now_ms=30)
    assert waiting.effects == [PausePartitions((A0, A1)), Poll(1, 100)]
    assert run(core, Done(), now_ms=519).effects == [Poll(1, 1)]
    assert run(core, Done(), now_ms=520).effects == [ResumePartitions((A0, A1)), Put(1, {A0: (15, 20)})]


def test_a_lag_is_an_alarm_once_when_it_lasts_and_an_event_when_it_is_over() -> None:
    core = polling(dataclasses.replace(AT_LEAST_ONCE, lag_alarm_records=10, lag_alarm_ms=100))
    assert run(core, LagKnown(11), now_ms=5) == SinkStep()
    assert run(core, LagKnown(10), now_ms=50) == SinkStep()
    assert run(core, LagKnown(20), now_ms=60) == SinkStep()
    assert run(core, LagKnown(30), now_ms=159) == SinkStep()
    assert run(core, LagKnown(40), now_ms=160).transitions == [transition(EventKind.LAG_ALARM, lag=40, since_ms=60)]
    assert run(core, LagKnown(50), now_ms=300) == SinkStep()
    over = transition(EventKind.LAG_ALARM_OVER, lag=3, lasted_ms=340)
    assert run(core, LagKnown(3), now_ms=400).transitions == [over]
    assert run(core, LagKnown(3), now_ms=401) == SinkStep()


@pytest.mark.parametrize("request_", [ORDERS.stop, ORDERS.cancel])
def test_a_stop_discards_a_job(request_: Any) -> None:
    core = in_bulk()
    run(core, request_)
    step = run(core, Done())
    assert step.effects[0] == DiscardBulk(1)


def test_a_job_that_failed_leaves_its_records_to_the_worker() -> None:
    core = in_bulk()
    step = run(core, BulkFailed(1, "executor lost", {}))
    assert step == SinkStep(
        [
            transition(EventKind.BULK_FAILED, token=1, error="executor lost", offsets={"a-0": 30, "a-1": 30}),
            transition(EventKind.LANE_CHANGED, lane="tail", reason="executor lost"),
        ],
        [Seek({A0: 10, A1: 0}), ResumePartitions((A0, A1)), Poll(1, 100)],
    )
    run(core, Fetched(1, {A0: (10, 30)}, full=True, size_bytes=200))
    assert run(core, PutDone(1, 20), now_ms=500).effects == [Poll(1, 100)]  # a-1 is not past it
    run(core, Fetched(1, {A1: (0, 30)}, full=True, size_bytes=300), now_ms=500)
    assert run(core, PutDone(1, 30), now_ms=501).effects == [QueryEnds(1, (A0, A1))]


def test_staged_records_of_which_the_target_refuses_one_are_discarded_and_put_by_the_worker() -> None:
    core = in_bulk()
    run(core, BulkStaged(1, 50))
    step = run(core, BulkFailed(1, "a key exists", {}))
    assert step == SinkStep(
        [
            transition(EventKind.BULK_FAILED, token=1, error="a key exists", offsets={"a-0": 30, "a-1": 30}),
            transition(EventKind.LANE_CHANGED, lane="tail", reason="a key exists"),
        ],
        [DiscardBulk(1), Seek({A0: 10, A1: 0}), ResumePartitions((A0, A1)), Poll(1, 100)],
    )


def test_records_that_only_the_worker_can_put_do_not_keep_a_job_from_the_others() -> None:
    core = in_bulk()
    run(core, BulkFailed(1, "a new column", {A0: 12}))
    run(core, Fetched(1, {A0: (10, 15)}, full=True, size_bytes=50))
    assert run(core, PutDone(1, 5)).effects == [QueryEnds(1, (A0, A1))]


def test_records_that_come_while_executors_read_are_fetched_again() -> None:
    core = in_bulk()
    assert run(core, Fetched(1, {A0: (10, 15)})).effects == [Seek({A0: 10}), Poll(1, 100)]


def test_a_failed_flush_discards_a_job() -> None:
    core = lagging(dataclasses.replace(AUTO, exactly_once=False))
    run(core, EndsKnown(1, {A0: 30, A1: 100}), CoresKnown(8), Done(), CommitFailed(1, "down"))
    assert run(core, Done(), now_ms=1000).effects == [Flush()]
    assert DiscardBulk(1) in run(core, NotDone("disk"), now_ms=1001).effects


def test_the_outcome_of_a_commit_after_a_failed_flush_is_late_and_nothing_goes_back_behind_it() -> None:
    core = with_put(AT_LEAST_ONCE)
    commit = run(core, Done(), Done(), now_ms=1000).effects[0]
    assert commit == CommitOffsets(1, {A0: 15}, wait=False)
    run(core, Fetched(1, {A0: (15, 18)}), PutDone(1, 3), now_ms=1100)
    assert run(core, PartitionsRevoked((A0,)), now_ms=1400).effects == [Flush()]
    assert Seek({A0: 10}) not in run(core, NotDone("away"), now_ms=1400).effects, "it is given up"
    assert run(core, OffsetsCommitted(1), now_ms=1400).ignored == NotAwaited("OffsetsCommitted", 1)
    core = with_put(AT_LEAST_ONCE)
    run(core, Done(), Done(), now_ms=1000)
    run(core, Fetched(1, {A0: (15, 18)}), PutDone(1, 3), now_ms=1100)
    assert run(core, Done(), now_ms=2000).effects == [Flush()], "the commit before has taken too long"
    assert Seek({A0: 10, A1: 20}) in run(core, NotDone("away"), now_ms=2000).effects
    assert run(core, OffsetsCommitted(1), now_ms=2000).ignored == NotAwaited("OffsetsCommitted", 1)
    assert resumes_at(core, A0) == {A0: 10}


def test_what_the_target_held_at_the_start_is_in_the_history() -> None:
    core = polling(AT_LEAST_ONCE)
    assert run(core, TargetKnown(120), now_ms=5).transitions == [transition(EventKind.TARGET_HELD, mark=120)]
