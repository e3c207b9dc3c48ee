"""The fetcher's decisions: which node to ask for what, which answers count, and what an error means."""

from __future__ import annotations

import pytest

from connectx.core.clients.messages import Answered, FetchMetadata, Leader, MetadataFetched, Unanswered
from connectx.core.fetcher import messages as msg
from tests.unit.core.fetcher.script import T0, T1, Script, fetching


def test_leaders_are_asked_for_before_partitions_are_fetched_from_them() -> None:
    script = Script()
    script.do(msg.FetchFrom({T0: 10, T1: 20}))
    assert (script.asked_topics(), script.fetches()) == ([("t",)], [])
    script.answer(FetchMetadata, MetadataFetched({T0: Leader(1, 5), T1: Leader(2, 5)}))
    assert script.fetches() == [(1, {T0: 10}), (2, {T1: 20})]


def test_the_next_fetch_leaves_when_the_answer_is_there_and_not_when_its_records_are_taken() -> None:
    script = fetching()
    script.bring(T0, 15)
    assert script.kept == [(T0, 10)]
    assert script.fetches() == [(1, {T0: 15})]


def test_a_fetch_names_the_leaders_epoch_and_that_of_the_last_fetched_record() -> None:
    script = fetching()
    script.bring(T0, 15, epoch=4)
    (sent,) = script.open.values()
    assert isinstance(sent.request, msg.Fetch)
    assert sent.request.partitions == (msg.PartitionFetch(T0, 15, leader_epoch=5, fetched_epoch=4, version=1),)


def test_nothing_is_fetched_while_the_buffer_is_full_and_again_when_records_are_taken() -> None:
    script = fetching(buffer_bytes=150)
    script.bring(T0, 15)
    script.bring(T0, 20)
    assert script.fetches() == []
    script.do(msg.Taken({T0: (15, 100)}))
    assert script.fetches() == [(1, {T0: 20})]


def test_a_node_has_one_fetch_to_answer_at_a_time() -> None:
    script = fetching()
    script.do(msg.FetchFrom({T1: 7}))
    script.lead()
    assert script.fetches() == [(1, {T0: 10})]
    script.bring(T0, 15)
    assert script.fetches() == [(1, {T1: 7, T0: 15})]


def test_partitions_that_brought_records_are_asked_for_last() -> None:
    script = Script()
    script.do(msg.FetchFrom({T0: 0, T1: 0}))
    script.lead()
    script.bring(T0, 5)
    assert [list(offsets) for _, offsets in script.fetches()] == [[T1, T0]]


def test_an_answer_to_a_position_that_was_left_changes_nothing() -> None:
    script = fetching()
    script.do(msg.FetchFrom({T0: 99}))
    script.bring(T0, 15)
    assert script.kept == []
    assert script.fetches() == [(1, {T0: 99})]


def test_a_partition_that_was_forgotten_and_came_back_is_not_fed_by_an_old_answer() -> None:
    script = fetching()
    script.do(msg.Forget((T0,)), msg.FetchFrom({T0: 10}))
    script.bring(T0, 15)
    assert script.kept == []


def test_a_paused_partition_is_fetched_again_from_where_records_were_taken() -> None:
    script = fetching()
    script.bring(T0, 15)
    script.do(msg.Taken({T0: (12, 0)}), msg.Pause((T0,)))
    script.bring(T0, 20)
    assert (script.kept, script.fetches()) == ([(T0, 10)], [])
    script.do(msg.Resume((T0,)))
    assert script.fetches() == [(1, {T0: 12})]


@pytest.mark.parametrize("error", ["NOT_LEADER_FOR_PARTITION", "FENCED_LEADER_EPOCH", "UNKNOWN_TOPIC_OR_PARTITION"])
def test_a_leader_that_is_none_is_looked_for_and_the_fetch_waits(error: str) -> None:
    script = fetching()
    script.refuse(T0, error)
    assert script.asked_topics() == [("t",)]
    script.lead(2)
    assert script.fetches() == []
    script.wait()
    assert script.fetches() == [(2, {T0: 10})]
    script.bring(T0, 15)
    assert script.core.trouble is None


def test_a_lost_answer_makes_the_fetcher_ask_for_the_leader_and_fetch_the_same_again() -> None:
    script = fetching()
    script.lose(msg.Fetch)
    assert script.core.trouble == "t-0: cut"
    script.lead(3)
    script.wait()
    assert script.fetches() == [(3, {T0: 10})]


def test_attempts_wait_longer_and_longer_up_to_the_limit() -> None:
    script = Script(retry_backoff_ms=100, retry_backoff_max_ms=300)
    script.do(msg.FetchFrom({T0: 10}))
    waits = []
    for _ in range(4):
        script.lose(FetchMetadata)
        assert script.wake_at_ms is not None
        waits.append(script.wake_at_ms - script.now_ms)
        script.wait()
    assert waits == [100, 200, 300, 300]


def test_a_topic_without_a_leader_is_asked_for_until_it_has_one() -> None:
    script = Script()
    script.do(msg.FetchFrom({T0: 10}))
    script.answer(FetchMetadata, MetadataFetched({}, {"t": "UNKNOWN_TOPIC_OR_PARTITION"}))
    assert script.core.trouble == "t: UNKNOWN_TOPIC_OR_PARTITION"
    assert script.asked_topics() == []
    script.wait()
    script.lead()
    assert script.fetches() == [(1, {T0: 10})]


def test_a_position_outside_the_log_fails_the_partition_until_it_gets_another() -> None:
    script = fetching()
    script.refuse(T0, "OFFSET_OUT_OF_RANGE")
    assert script.failed == [msg.FetchFailed(T0, 10, "OFFSET_OUT_OF_RANGE")]
    assert script.fetches() == []
    script.do(msg.FetchFrom({T0: 3}))
    assert script.fetches() == [(1, {T0: 3})]


def test_a_leader_that_lacks_fetched_records_fails_the_partition() -> None:
    script = fetching()
    script.bring(T0, 15)
    script.answer(msg.Fetch, msg.Fetched({T0: msg.PartitionResult(diverging_offset=12)}))
    assert script.failed == [
        msg.FetchFailed(T0, 15, "LOG_TRUNCATION", "its leader has those records only up to offset 12")
    ]


def test_a_batch_that_cannot_be_read_fails_the_partition_after_those_before_it_were_kept() -> None:
    script = fetching()
    script.answer(msg.Fetch, msg.Fetched({T0: msg.PartitionResult(None, 100, 15, 5, bad_batch="its CRC is wrong")}))
    assert (script.kept, script.failed) == (
        [(T0, 10)],
        [msg.FetchFailed(T0, 15, "UNREADABLE_BATCH", "its CRC is wrong")],
    )
    assert script.fetches() == []
    script.do(msg.FetchFrom({T0: 16}))
    assert script.fetches() == [(1, {T0: 16})]


def test_a_failure_that_was_dropped_with_a_pause_comes_again_after_it() -> None:
    script = fetching()
    script.refuse(T0, "OFFSET_OUT_OF_RANGE")
    script.do(msg.Pause((T0,)), msg.Resume((T0,)))
    script.refuse(T0, "OFFSET_OUT_OF_RANGE")
    assert len(script.failed) == 2


def test_missing_permission_fails_the_partition_by_either_answer() -> None:
    script = fetching()
    script.refuse(T0, "TOPIC_AUTHORIZATION_FAILED")
    other = Script()
    other.do(msg.FetchFrom({T0: 10}))
    other.answer(FetchMetadata, MetadataFetched({}, {"t": "TOPIC_AUTHORIZATION_FAILED"}))
    assert script.failed == other.failed == [msg.FetchFailed(T0, 10, "TOPIC_AUTHORIZATION_FAILED")]
    assert (script.fetches(), other.asked_topics(), other.wake_at_ms) == ([], [], None)


def test_a_replica_that_the_leader_names_is_read_until_it_is_too_old() -> None:
    script = fetching(replica_max_age_ms=5_000)
    script.answer(msg.Fetch, msg.Fetched({T0: msg.PartitionResult(preferred_replica=3)}))
    assert script.fetches() == [(3, {T0: 10})]
    script.now_ms += 5_000
    script.bring(T0, 15)
    assert script.fetches() == [(1, {T0: 15})]


def test_a_replica_that_is_behind_sends_the_fetcher_back_to_the_leader() -> None:
    script = fetching()
    script.answer(msg.Fetch, msg.Fetched({T0: msg.PartitionResult(preferred_replica=3)}))
    script.refuse(T0, "OFFSET_OUT_OF_RANGE")
    script.wait()
    assert (script.failed, script.fetches()) == ([], [(1, {T0: 10})])


def test_late_answers_to_requests_that_were_settled_change_nothing() -> None:
    script = fetching()
    (request_id,) = script.open
    script.do(Unanswered(request_id, "cut"), Answered(request_id, msg.Fetched({T0: msg.PartitionResult()})))
    assert script.core.trouble == "t-0: cut"
