"""The sink consumer against a real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from connectx.errors.kafka import OffsetOutOfRangeError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.fetcher.fetcher import FetchedRecords
from connectx.kafka.sink_consumer import CommitError
from connectx.model.ids import TopicPartition
from tests.support.sink_members import Member
from tests.support.waiting import until


def rows_in(got: list[FetchedRecords]) -> int:
    return sum(fetched.rows.num_rows for fetched in got)


def test_records_come_as_columns_with_the_ranges_they_span(
    member: Callable[..., Member], topic: Callable[..., str], kafka: EmbeddedKafka
) -> None:
    name = topic("cols")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(name, b"one", b"k", timestamp=1_700_000_000_123, headers=[("h", b"1")])
    producer.produce(name, None, None, timestamp=1_700_000_000_124)
    producer.flush(30)
    (fetched,) = member("cols", name).read(lambda got: rows_in(got) == 2)[:1]
    assert fetched.rows.to_pylist() == [
        {
            "topic": name,
            "partition": 0,
            "offset": 0,
            "timestamp": 1_700_000_000_123,
            "key": b"k",
            "value": b"one",
            "headers": [{"key": "h", "value": b"1"}],
        },
        {
            "topic": name,
            "partition": 0,
            "offset": 1,
            "timestamp": 1_700_000_000_124,
            "key": None,
            "value": None,
            "headers": None,
        },
    ]
    assert fetched.ranges == {TopicPartition(name, 0): (0, 2)}


def test_ends_lie_behind_transaction_markers(
    member: Callable[..., Member], topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    name = topic("markers")
    produce(name, [b"a", b"b"], transactional=True)
    got = member("markers", name).read(lambda got: any(fetched.ends for fetched in got))
    ends = {partition: end for fetched in got for partition, end in fetched.ends.items()}
    assert ends == {TopicPartition(name, 0): 3}


def test_records_of_an_open_transaction_are_not_read_and_the_stable_end_lies_before_them(
    member: Callable[..., Member], topic: Callable[..., str], kafka: EmbeddedKafka
) -> None:
    name = topic("open")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"open-{name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"a")
    producer.flush(30)
    reader = member("open", name)
    until(lambda: reader.consumer.poll(0.1, 10) is None and bool(reader.owned))
    assert reader.consumer.stable_ends([TopicPartition(name, 0)]) == {TopicPartition(name, 0): 0}
    producer.commit_transaction(30)
    assert rows_in(reader.read(lambda got: rows_in(got) == 1)) == 1


def test_a_seek_while_partitions_are_assigned_is_where_reading_starts(
    member: Callable[..., Member], topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    name = topic("seek")
    produce(name, [b"0", b"1", b"2"])
    reader = member("seek", name)
    reader.on_assigned = lambda: reader.consumer.seek({TopicPartition(name, 0): 2})
    got = reader.read(lambda got: rows_in(got) > 0)
    assert [row["value"] for fetched in got for row in fetched.rows.to_pylist()] == [b"2"]


def test_partitions_paused_while_they_are_assigned_stay_silent_until_resumed(
    member: Callable[..., Member], topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    name = topic("paused", partitions=2)
    produce(name, [b"0"], partition=0)
    produce(name, [b"1"], partition=1)
    reader = member("paused", name)
    reader.on_assigned = lambda: reader.consumer.pause([TopicPartition(name, 1)])
    first = reader.read(lambda got: rows_in(got) == 1)
    assert [row["partition"] for fetched in first for row in fetched.rows.to_pylist()] == [0]
    assert rows_in([fetched for fetched in [reader.consumer.poll(0.3, 10)] if fetched]) == 0
    reader.consumer.resume([TopicPartition(name, 1)])
    assert rows_in(reader.read(lambda got: rows_in(got) == 1)) == 1


def test_a_second_member_takes_over_from_the_offset_committed_in_the_revocation(
    member: Callable[..., Member], topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    name = topic("move", partitions=2)
    produce(name, [b"0", b"1", b"2"], partition=1)
    first = member("move", name)
    first.read(lambda got: rows_in(got) == 3)
    outcome: list[CommitError | None] = []
    offsets = {TopicPartition(name, 1): 2}
    first.on_revoked = lambda: outcome.append(first.consumer.commit_and_wait(offsets))
    second = member("move", name)

    def both_own() -> bool:
        first.consumer.poll(0.05, 1)
        second.consumer.poll(0.05, 0)
        return len(first.owned) == 1 and len(second.owned) == 1

    until(both_own)
    assert outcome == [None]
    assert {**first.owned, **second.owned}[TopicPartition(name, 1)] == 2


def test_commits_that_do_not_wait_are_answered_in_a_later_poll(
    member: Callable[..., Member], topic: Callable[..., str], committed: Callable[..., dict[str, int]]
) -> None:
    name = topic("async")
    reader = member("async", name)
    until(lambda: reader.consumer.poll(0.1, 1) is None and bool(reader.owned))
    reader.consumer.commit({TopicPartition(name, 0): 0}, sequence=7)
    reader.read(lambda _: ("committed", (7, None)) in reader.heard)
    assert committed("async", name) == {f"{name}-0": 0}


@pytest.mark.rule("618.8.1")
def test_a_member_that_was_kicked_out_cannot_commit(
    member: Callable[..., Member], topic: Callable[..., str], kafka: EmbeddedKafka
) -> None:
    from confluent_kafka.admin import AdminClient
    from kafka.admin import KafkaAdminClient

    name = topic("kicked")
    reader = member("kicked", name)
    until(lambda: reader.consumer.poll(0.1, 1) is None and bool(reader.owned))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (group,) = admin.describe_consumer_groups(["kicked"]).values()
    member_id = group.result(30).members[0].member_id
    kicker = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    try:
        remove(kicker, "kicked", member_id)
    finally:
        kicker.close()
    error = reader.consumer.commit_and_wait({TopicPartition(name, 0): 0})
    assert error is not None
    assert error.not_owner


def remove(admin: Any, group: str, member_id: str) -> None:
    """Remove a member as an administrator does."""
    from kafka.admin import MemberToRemove

    admin.remove_group_members(group, [MemberToRemove(member_id=member_id)])


def test_a_position_that_the_log_does_not_have_is_an_error_and_not_a_jump(
    member: Callable[..., Member], topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    name = topic("range")
    produce(name, [b"0"])
    reader = member("range", name)
    reader.on_assigned = lambda: reader.consumer.seek({TopicPartition(name, 0): 99})
    with pytest.raises(OffsetOutOfRangeError, match=f"{name}-0 has no offset 99"):
        reader.read(lambda got: rows_in(got) > 0)


def test_a_committed_offset_outside_the_log_is_reset_as_the_setting_says(
    member: Callable[..., Member], topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    name = topic("reset")
    produce(name, [b"0"])
    first = member("reset", name)
    until(lambda: first.consumer.poll(0.1, 1) is not None and bool(first.owned))
    assert first.consumer.commit_and_wait({TopicPartition(name, 0): 50}) is None
    first.consumer.close()
    second = member("reset", name, auto_offset_reset="latest")
    until(lambda: second.consumer.poll(0.1, 1) is None and bool(second.owned))
    assert second.owned == {TopicPartition(name, 0): 1}


def test_a_consumer_that_is_abandoned_does_not_leave_the_group(
    member: Callable[..., Member], topic: Callable[..., str]
) -> None:
    name = topic("abandon")
    first = member("abandon", name, session_timeout_ms=1500)
    until(lambda: first.consumer.poll(0.1, 1) is None and bool(first.owned))
    first.consumer.abandon()
    second = member("abandon", name)
    until(lambda: second.consumer.poll(0.1, 1) is None and bool(second.owned))
    assert [what for what, _ in first.heard] == ["assigned"]


def test_a_consumer_that_is_abandoned_after_an_error_in_its_listener_gives_way_to_the_next(
    member: Callable[..., Member], topic: Callable[..., str]
) -> None:
    class GoneError(Exception):
        pass

    def end() -> None:
        raise GoneError

    name = topic("gone")
    first = member("gone", name, session_timeout_ms=1500)
    first.on_assigned = end
    with pytest.raises(GoneError):
        until(lambda: first.consumer.poll(0.1, 1) is not None)
    first.consumer.abandon()
    second = member("gone", name)
    until(lambda: second.consumer.poll(0.1, 1) is None and bool(second.owned))
