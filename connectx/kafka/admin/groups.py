"""Inspects and changes groups from outside: members, committed offsets, deletion.

librdkafka's admin client does not see groups of type `connect`, cannot delete single offsets, and its way to read
offsets ends the process when the coordinator is moving (seen with 2.16: a null pointer for clients that are no
consumers). This module therefore uses kafka-python's connections. It decides nothing and joins no group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest
from kafka.protocol.consumer.group import (
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kafka.protocol.metadata import CoordinatorType

from connectx.kafka.kafka_errors import typed_reply
from connectx.kafka.net import KafkaNet, error_name
from connectx.model.ids import TopicPartition
from connectx.values import Value

_ID_NOT_FOUND: Final = 69
_UNKNOWN_MEMBER: Final = 25

T = TypeVar("T")


class GroupMember(Value):
    """What a member joined with and what the leader gave it, as bytes; empty while the group is not Stable."""

    member_id: str
    metadata: bytes
    assignment: bytes


class GroupDescription(Value):
    """A group as its coordinator sees it. `members` are member ids; an unknown group is Dead.

    `client_ids` are those of the members, in the same order. `protocol` is the name of the one in force, empty while
    the group is not Stable; `details` has each member's metadata and assignment as of its last join, in the same order.
    """

    group_id: str
    state: str
    protocol_type: str
    members: tuple[str, ...]
    client_ids: tuple[str, ...] = ()
    protocol: str = ""
    details: tuple[GroupMember, ...] = ()


class GroupClient:
    """Calls about one group. They block; each connects, asks and disconnects, unless connections are kept (`keep`).

    Every call may raise KafkaUnreachableError (no answer in time), KafkaPermissionError or KafkaRequestError.
    """

    def __init__(self, config: Mapping[str, Any], group_id: str, timeout_s: float) -> None:
        self._config = config
        self._group_id = group_id
        self._timeout_s = timeout_s
        self._kept: KafkaNet | None = None

    def keep(self) -> None:
        """Keep connections from now on, until `close`: for repeated calls."""
        self._kept = KafkaNet(self._config)
        self._kept.start()

    def close(self) -> None:
        """End what `keep` began."""
        if self._kept is not None:
            self._kept.close()

    def describe(self) -> GroupDescription:
        """State and members of a group of the classic protocol, of any type."""
        request = DescribeGroupsRequest(groups=[self._group_id], include_authorized_operations=False, max_version=5)

        def read(reply: Any) -> GroupDescription:
            group = reply.groups[0]
            _raise_for(group.error_code)
            found = sorted(group.members, key=lambda member: member.member_id)
            return GroupDescription(
                self._group_id,
                group.group_state,
                group.protocol_type,
                tuple(member.member_id for member in found),
                tuple(member.client_id for member in found),
                group.protocol_data,
                tuple(
                    GroupMember(m.member_id, bytes(m.member_metadata or b""), bytes(m.member_assignment or b""))
                    for m in found
                ),
            )

        return self._ask(request, read, f"describe group {self._group_id}")

    def remove(self, members: Sequence[str], reason: str) -> None:
        """Send LeaveGroup for members that are certainly dead; one that the group has removed already is no error.

        The coordinator begins a rebalance. A member that still lives would be fenced, and rejoin.
        """
        request = LeaveGroupRequest(
            group_id=self._group_id,
            members=[LeaveGroupRequest.MemberIdentity(member, None, reason) for member in members],
            min_version=3,  # several members in one request, sent by another client
        )

        def read(reply: Any) -> None:
            for error_code in [reply.error_code, *(member.error_code for member in reply.members)]:
                _raise_for(0 if error_code == _UNKNOWN_MEMBER else error_code)

        self._ask(request, read, f"remove members from group {self._group_id}")

    def offsets(self) -> dict[TopicPartition, int]:
        """Committed offsets, sorted by topic and partition."""
        request = OffsetFetchRequest(group_id=self._group_id, topics=None, min_version=2, max_version=7)

        def read(reply: Any) -> dict[TopicPartition, int]:
            _raise_for(reply.error_code)
            found: dict[TopicPartition, int] = {}
            for where, answer in _partitions(reply.topics):
                _raise_for(answer.error_code)
                if answer.committed_offset >= 0:
                    found[where] = answer.committed_offset
            return dict(sorted(found.items()))

        return self._ask(request, read, f"read the offsets of group {self._group_id}")

    def alter_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set offsets of a group without members."""
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                (topic, [(where.partition, offsets[where], -1, "") for where in partitions])
                for topic, partitions in _by_topic(offsets).items()
            ],
            min_version=6,
            max_version=8,
        )
        self._ask(request, _raise_for_partitions, f"set offsets of group {self._group_id}")

    def delete_offsets(self, partitions: Sequence[TopicPartition]) -> None:
        """Delete committed offsets; members of the group must not use the topics."""
        request = OffsetDeleteRequest(
            group_id=self._group_id,
            topics=[(topic, [(p.partition,) for p in found]) for topic, found in _by_topic(partitions).items()],
        )

        def read(reply: Any) -> None:
            _raise_for(reply.error_code)
            _raise_for_partitions(reply)

        self._ask(request, read, f"delete offsets of group {self._group_id}")

    def delete(self) -> None:
        """Delete a group without members, and its offsets; one that does not exist is fine."""

        def read(reply: Any) -> None:
            for result in reply.results:
                _raise_for(0 if result.error_code == _ID_NOT_FOUND else result.error_code)

        self._ask(DeleteGroupsRequest(groups_names=[self._group_id]), read, f"delete group {self._group_id}")

    def _ask(self, request: Any, read: Callable[[Any], T], what: str) -> T:
        """Send a request to the coordinator, again while that one moves or loads, and read its reply."""
        net = self._kept or KafkaNet(self._config)
        deadline_s = time.monotonic() + self._timeout_s

        async def once() -> T:
            found = await net.find_coordinator(CoordinatorType.GROUP, self._group_id, deadline_s)
            await net.connect(found.node_id, deadline_s)
            return read(await net.send(request, found.node_id, max(1.0, (deadline_s - time.monotonic()) * 1000)))

        if self._kept is None:
            net.start()
        try:
            answer: T = net.run(net.retry, once, deadline_s)
            return answer
        except kafka_errors.KafkaError as error:
            raise typed_reply(error, what, net.bootstrap_servers) from error
        finally:
            if self._kept is None:
                net.close()


def _raise_for(error_code: int) -> None:
    if error_code != 0:
        raise kafka_errors.for_code(error_code)(error_name(error_code))


def _raise_for_partitions(reply: Any) -> None:
    for _, answer in _partitions(reply.topics):
        _raise_for(answer.error_code)


def _partitions(topics: Iterable[Any]) -> list[tuple[TopicPartition, Any]]:
    return [(TopicPartition(t.name, answer.partition_index), answer) for t in topics for answer in t.partitions]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition)
    return found
