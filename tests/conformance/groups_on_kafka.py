"""The verbs of groups on a real broker, with the requests that workers send; each member has connections of its own."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import CoordinatorType

from connectx.core.group_messages import (
    GroupStimulus,
    HeartbeatReplied,
    JoinGroupReplied,
    SendHeartbeat,
    SendJoinGroup,
    SyncGroupReplied,
)
from connectx.kafka.group import PROTOCOL_TYPE
from connectx.kafka.net import KafkaNet, error_name
from tests.conformance.groups import Groups, Request
from tests.simulation.broker_coordinator import Subscription
from tests.support.waiting import until

LIMIT_MS = 20_000
_names = itertools.count(1)


class GroupsOnKafka(Groups):
    """One group of a broker.

    Args:
        net: connections to the broker, shared between groups.
        topic: that offsets are committed for.
        restart: makes another node of the broker, so to speak.
    """

    def __init__(self, net: KafkaNet, topic: str, restart: Callable[[], None]) -> None:
        super().__init__()
        self.net = net
        self.topic = topic
        self.restart = restart
        self.group_id = f"conformance-{next(_names)}"
        self.coordinator: Any = None
        self._find()
        self.inboxes: dict[str, queue.SimpleQueue[GroupStimulus | Exception]] = {}

    def send(self, who: str, request: Request, *, is_late: bool = False) -> None:
        if is_late:
            who = f"{who}-late"
        inbox = self.inboxes.setdefault(who, queue.SimpleQueue())
        message, read = self._wire(request)
        node_id = self._node(who, "heartbeat" if isinstance(request, SendHeartbeat) else "join")

        async def carry() -> None:
            try:
                await self.net.connect(node_id, time.monotonic() + LIMIT_MS / 1000)
                inbox.put(read(await self.net.send(message, node_id, LIMIT_MS)))
            except kafka_errors.KafkaError as error:
                inbox.put(error)

        self.net.spawn(carry)
        if isinstance(request, SendJoinGroup):
            until(lambda: not inbox.empty() or self._waits(request.member_id), "the coordinator to have a JoinGroup")
        elif is_late:
            until(lambda: not inbox.empty(), "the coordinator to have a late SyncGroup")

    def receive(self, who: str) -> GroupStimulus:
        found = self.inboxes[who].get(timeout=LIMIT_MS / 1000)
        if isinstance(found, Exception):
            raise found
        return found

    def leaves(self, who: str) -> None:
        member_id = self.clients[who].member_id
        member = LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=None, reason="it leaves")
        self._ask(LeaveGroupRequest(group_id=self.group_id, member_id=member_id, members=[member]))

    def expires(self, who: str) -> None:
        until(lambda: not self._has(self.clients[who].member_id), f"{who} to be dropped")

    def moves(self, who: str) -> None:
        self.restart()
        self._find()
        self.inboxes.clear()

    def commit(self, member_id: str, generation: int, offset: int) -> str:
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=None,
            topics=[(self.topic, [(0, offset, -1, "")])],
            min_version=6,
            max_version=8,
        )
        return error_name(self._ask(request).topics[0].partitions[0].error_code) or "OK"

    def offset(self) -> int | None:
        reply = self._ask(OffsetFetchRequest(group_id=self.group_id, topics=None, min_version=2, max_version=7))
        offsets = [partition.committed_offset for topic in reply.topics for partition in topic.partitions]
        return offsets[0] if offsets else None

    def _find(self) -> None:
        """Find the coordinator, and wait until it has read its groups."""

        def is_there() -> bool:
            deadline_s = time.monotonic() + LIMIT_MS / 1000
            try:
                net, kind = self.net, CoordinatorType.GROUP
                self.coordinator = net.run(net.find_coordinator, kind, self.group_id, deadline_s)
                return bool(self._described().error_code == 0)
            except kafka_errors.KafkaError:
                return False

        until(is_there, "the group coordinator")

    def _node(self, who: str, purpose: str) -> str:
        node_id = f"{self.group_id}-{who}-{purpose}"
        self.net.add_node(node_id, self.coordinator)
        return node_id

    def _ask(self, request: Any) -> Any:
        """Over a connection that nobody waits on."""
        node_id = self._node("everybody", "asks")

        async def carry() -> Any:
            await self.net.connect(node_id, time.monotonic() + LIMIT_MS / 1000)
            return await self.net.send(request, node_id, LIMIT_MS)

        return self.net.run(carry)

    def _described(self) -> Any:
        request = DescribeGroupsRequest(groups=[self.group_id], include_authorized_operations=False, max_version=5)
        return self._ask(request).groups[0]

    def _has(self, member_id: str) -> bool:
        return any(member.member_id == member_id for member in self._described().members)

    def _waits(self, member_id: str) -> bool:
        return self._described().group_state == "PreparingRebalance" and self._has(member_id)

    def _wire(self, request: Request) -> tuple[Any, Callable[[Any], GroupStimulus]]:
        """A request as its message, and how to read the answer."""
        if isinstance(request, SendJoinGroup):
            return self._join_message(request), lambda reply: _joined(request.request_id, reply)
        if isinstance(request, SendHeartbeat):
            heartbeat = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=request.generation,
                member_id=request.member_id,
                group_instance_id=None,
            )
            return heartbeat, lambda reply: HeartbeatReplied(request.request_id, error_name(reply.error_code))
        sync = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=request.generation,
            member_id=request.member_id,
            group_instance_id=None,
            assignments=[(member_id, str(label).encode()) for member_id, label in request.assignments.items()],
            max_version=4,
        )
        return sync, lambda reply: _synced(request.request_id, reply)

    def _join_message(self, request: SendJoinGroup) -> Any:
        protocols: Any = request.protocols
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            member_id=request.member_id,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocols=[(protocol.assignor, ",".join(protocol.topics).encode()) for protocol in protocols],
            max_version=7,
        )


def _joined(request_id: int, reply: Any) -> JoinGroupReplied:
    members: Any = {
        member.member_id: Subscription(tuple(bytes(member.metadata).decode().split(","))) for member in reply.members
    }
    return JoinGroupReplied(
        request_id,
        error_name(reply.error_code),
        reply.generation_id,
        reply.member_id,
        reply.leader,
        reply.protocol_name or "",
        members,
    )


def _synced(request_id: int, reply: Any) -> SyncGroupReplied:
    assignment: Any = bytes(reply.assignment).decode() or None
    return SyncGroupReplied(request_id, error_name(reply.error_code), assignment)
