"""Carries out the core's group effects: one effect is one request, its reply one stimulus.

Decides nothing about membership: `connectx.core.group.membership` owns timers, retries and what an error means.
Mirrors the request side of Kafka's AbstractCoordinator (classic group protocol), with protocol type `connect`.

A broker handles one request of a connection after the other and answers JoinGroup and SyncGroup late, so these two
have a connection, and Heartbeat and LeaveGroup another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

import kafka.errors as kafka_errors
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import CoordinatorType

from connectx.core import group_messages
from connectx.kafka.net import KafkaNet, error_name
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.decoding import Unreadable
from connectx.model.group import Assignment, MemberMetadata
from connectx.model.summary import Summary
from connectx.model.worker_config import WorkerConfig
from connectx.protocol.group import decode_assignment, decode_metadata, encode_assignment, encode_metadata

_log = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "connect"
_JOIN_MARGIN_MS: Final = 5_000
_LEAVE_S: Final = 2.0


@dataclass(slots=True)
class GroupRequests:
    """How the requests of one member went: milliseconds until the answer, as Kafka's AbstractCoordinator counts them.

    Attributes:
        joins, syncs: those that the coordinator took.
        heartbeats: all that were answered.
        failed_rebalances: joins and syncs that failed or were refused. To be given a member id is no refusal.
    """

    joins: Summary = field(default_factory=Summary)
    syncs: Summary = field(default_factory=Summary)
    heartbeats: Summary = field(default_factory=Summary)
    failed_rebalances: int = 0


class GroupConnection:
    """The group requests of one member; `requests` counts them.

    Args:
        config: the worker's settings: group id and time-outs.
        clients: builds the client's settings.
        post: takes each reply; called on the network thread, must not block.
    """

    def __init__(
        self, config: WorkerConfig, clients: ClientConfigs, post: Callable[[group_messages.GroupStimulus], None]
    ) -> None:
        self._group_id = config.group_id
        self._reply_timeout_ms = min(config.request_timeout_ms, config.session_timeout_ms)
        self._sync_timeout_ms = config.request_timeout_ms
        self._clients = clients
        self._post = post
        self._net: KafkaNet | None = None
        self._join_node = self._heartbeat_node = ""
        self._join_in_flight: int | None = None
        self._leaving = threading.Event()
        self._leaving.set()
        self._ended = False
        self.requests = GroupRequests()

    def start(self) -> None:
        """Start the network thread; connects with the first FindCoordinator.

        Raises:
            ClientSettingError: the security settings are not ones that kafka-python can use.
        """
        self._net = KafkaNet(self._clients.kafka_python(f"connect-{self._group_id}"))
        self._net.start()

    def execute(self, effect: group_messages.GroupEffect) -> None:
        """Send the request of an effect, without waiting; its reply, or GroupRequestFailed, is posted."""
        if self._ended or self._net is None:
            return
        if isinstance(effect, group_messages.SendLeaveGroup):
            self._leaving.clear()
        try:
            self._net.spawn(self._carry_out, effect)
        except ConnectionError as error:
            self._failed(effect, str(error))

    def close(self) -> None:
        """Wait a moment for the answer to LeaveGroup if one is on its way, then close. A second call does nothing."""
        self._leaving.wait(_LEAVE_S)
        self._ended = True
        if self._net is not None:
            self._net.close()

    def abandon(self) -> None:
        """A killed worker: drop the sockets without LeaveGroup. The coordinator notices when the session ends."""
        self._ended = True
        if self._net is not None:
            self._net.abandon()

    async def _carry_out(self, effect: group_messages.GroupEffect) -> None:
        try:
            await self._request(effect)
        except kafka_errors.KafkaError as error:
            self._failed(effect, f"{type(effect).__name__}: {error}")
        except Exception as error:  # whatever it is, the core must not wait forever
            _log.exception("a group request failed in an unexpected way")
            self._failed(effect, f"{type(effect).__name__}: {error!r}")
        finally:
            if isinstance(effect, group_messages.SendLeaveGroup):
                self._leaving.set()

    def _request(self, effect: group_messages.GroupEffect) -> Awaitable[None]:
        match effect:
            case group_messages.FindCoordinator():
                return self._find_coordinator(effect)
            case group_messages.SendJoinGroup():
                return self._join(effect)
            case group_messages.SendSyncGroup():
                return self._sync(effect)
            case group_messages.SendHeartbeat():
                return self._heartbeat(effect)
            case group_messages.SendLeaveGroup():
                return self._leave(effect)
            case _:
                assert_never(effect)

    def _failed(self, effect: group_messages.GroupEffect, reason: str) -> None:
        if isinstance(effect, group_messages.SendJoinGroup | group_messages.SendSyncGroup):
            self.requests.failed_rebalances += 1
        self._report(group_messages.GroupRequestFailed(effect.request_id, reason))

    def _report(self, stimulus: group_messages.GroupStimulus) -> None:
        if not self._ended:
            self._post(stimulus)

    async def _find_coordinator(self, effect: group_messages.FindCoordinator) -> None:
        net = self._net
        assert net is not None
        deadline_s = time.monotonic() + self._reply_timeout_ms / 1000
        found = await net.find_coordinator(CoordinatorType.GROUP, self._group_id, deadline_s)
        self._join_node, self._heartbeat_node = f"join-{found.node_id}", f"heartbeat-{found.node_id}"
        for node_id in (self._join_node, self._heartbeat_node):
            net.add_node(node_id, found)
            await net.connect(node_id, deadline_s)
        self._report(group_messages.CoordinatorFound(effect.request_id))

    async def _join(self, effect: group_messages.SendJoinGroup) -> None:
        assert self._net is not None
        if self._join_in_flight is not None:  # abandoned by the core: the new one must not wait for it
            self._net.disconnect(self._join_node, "a newer JoinGroup takes its place")
        self._join_in_flight = effect.request_id
        protocols = [(metadata.version.wire_name, encode_metadata(metadata)) for metadata in effect.protocols]
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=effect.session_timeout_ms,
            rebalance_timeout_ms=effect.rebalance_timeout_ms,
            member_id=effect.member_id,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            max_version=7,  # from 9 on the coordinator may skip the assignment, which Connect forbids
        )
        began_s = time.monotonic()
        try:
            reply = await self._net.send(request, self._join_node, effect.rebalance_timeout_ms + _JOIN_MARGIN_MS)
        finally:
            if self._join_in_flight == effect.request_id:
                self._join_in_flight = None
        error = error_name(reply.error_code)
        if error is None:
            self.requests.joins.add(_ms_since(began_s))
        elif error != "MEMBER_ID_REQUIRED":
            self.requests.failed_rebalances += 1
        leads = error is None and reply.leader == reply.member_id
        members = self._members(reply.members) if leads else {}
        self._report(
            group_messages.JoinGroupReplied(
                effect.request_id,
                error,
                reply.generation_id,
                reply.member_id,
                reply.leader,
                reply.protocol_name or "",
                members,
            )
        )

    async def _sync(self, effect: group_messages.SendSyncGroup) -> None:
        assert self._net is not None
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=effect.generation,
            member_id=effect.member_id,
            group_instance_id=None,
            assignments=[(member, encode_assignment(effect.assignments[member])) for member in effect.assignments],
            max_version=4,  # from 5 on the protocol's name has to be repeated
        )
        began_s = time.monotonic()
        reply = await self._net.send(request, self._join_node, self._sync_timeout_ms)
        error = error_name(reply.error_code)
        if error is None:
            self.requests.syncs.add(_ms_since(began_s))
        else:
            self.requests.failed_rebalances += 1
        assignment = None if error else self._assignment(bytes(reply.assignment))
        self._report(group_messages.SyncGroupReplied(effect.request_id, error, assignment))

    def _members(self, joined: Any) -> dict[str, MemberMetadata]:
        """Members that may be given work: not one whose metadata cannot be read, which then gets none."""
        found = {}
        for member in joined:
            metadata = decode_metadata(bytes(member.metadata))
            if isinstance(metadata, Unreadable):
                _log.warning(
                    "member %s of group %s gets no work: %s", member.member_id, self._group_id, metadata.reason
                )
            else:
                found[member.member_id] = metadata
        return found

    def _assignment(self, data: bytes) -> Assignment | None:
        """What the leader sent; None when it sent nothing, or nothing that can be read."""
        assignment = decode_assignment(data) if data else None
        if isinstance(assignment, Unreadable):
            _log.warning("the leader of group %s sent an unreadable assignment: %s", self._group_id, assignment.reason)
            return None
        return assignment

    async def _heartbeat(self, effect: group_messages.SendHeartbeat) -> None:
        assert self._net is not None
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=effect.generation,
            member_id=effect.member_id,
            group_instance_id=None,
        )
        began_s = time.monotonic()
        try:
            reply = await self._net.send(request, self._heartbeat_node, self._reply_timeout_ms)
        except kafka_errors.RequestTimedOutError:  # the other connection leads to the same silence
            self._net.disconnect(self._join_node, "the coordinator does not answer heartbeats")
            raise
        self.requests.heartbeats.add(_ms_since(began_s))
        self._report(group_messages.HeartbeatReplied(effect.request_id, error_name(reply.error_code)))

    async def _leave(self, effect: group_messages.SendLeaveGroup) -> None:
        assert self._net is not None
        member = LeaveGroupRequest.MemberIdentity(
            member_id=effect.member_id, group_instance_id=None, reason="the worker leaves"
        )
        request = LeaveGroupRequest(group_id=self._group_id, member_id=effect.member_id, members=[member])
        reply = await self._net.send(request, self._heartbeat_node, self._reply_timeout_ms)
        _log.debug("left group %s: %s", self._group_id, error_name(reply.error_code))


def _ms_since(began_s: float) -> float:
    return (time.monotonic() - began_s) * 1000
