"""Group requests against a real coordinator, driven by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from connectx.core.group_messages import (
    CoordinatorFound,
    FindCoordinator,
    GroupRequestFailed,
    HeartbeatReplied,
    JoinGroupReplied,
    SendHeartbeat,
    SendJoinGroup,
    SendLeaveGroup,
    SendSyncGroup,
    SyncGroupReplied,
)
from connectx.kafka.admin.topics import describe_group
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.net import KafkaNet
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from tests.support.waiting import until

SESSION_MS = 20_000
SHORT_SESSION_MS = 1_000
WORK = WorkSet(("c",), (TaskId("c", 0),))


def metadata(url: str) -> tuple[MemberMetadata, ...]:
    claims = Assignment(ProtocolVersion.SESSIONED, 0, "", "", -1, WORK)
    return (
        MemberMetadata(ProtocolVersion.SESSIONED, url, 7, claims),
        MemberMetadata(ProtocolVersion.COMPATIBLE, url, 7, claims),
        MemberMetadata(ProtocolVersion.EAGER, url, 7),
    )


def assignment(leader: str) -> Assignment:
    return Assignment(ProtocolVersion.SESSIONED, 0, leader, "http://leader/", 7, WORK, WorkSet(), 300)


class Member:
    """A member whose every request is sent by hand."""

    def __init__(self, adapters: Any, url: str) -> None:
        self.adapters, self.url = adapters, url
        self.id = ""
        self.generation = -1
        self.session_timeout_ms = SESSION_MS
        adapters.group.start()
        self.find()

    def find(self) -> None:
        """The coordinator's topic may still be being created."""
        until(lambda: isinstance(self.adapters.ask(FindCoordinator, object), CoordinatorFound), "a coordinator")

    def send_join(self, rebalance_timeout_ms: int = 60_000) -> int:
        return int(
            self.adapters.send(
                SendJoinGroup, self.id, self.session_timeout_ms, rebalance_timeout_ms, metadata(self.url)
            )
        )

    def joined(self, request_id: int) -> JoinGroupReplied:
        reply: JoinGroupReplied = self.adapters.inbox.answer(JoinGroupReplied, request_id)
        self.id, self.generation = reply.member_id, reply.generation
        return reply

    def get_id(self) -> None:
        def answer() -> str | None:
            error = self.joined(self.send_join()).error
            if error not in ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"):
                return str(error)
            self.find()
            return None

        assert until(answer, "a coordinator that has loaded its groups") == "MEMBER_ID_REQUIRED"

    def send_sync(self, assignments: dict[str, Assignment]) -> int:
        return int(self.adapters.send(SendSyncGroup, self.generation, self.id, assignments))

    def synced(self, request_id: int) -> SyncGroupReplied:
        reply: SyncGroupReplied = self.adapters.inbox.answer(SyncGroupReplied, request_id)
        return reply

    def heartbeat(self) -> str | None:
        reply: HeartbeatReplied = self.adapters.ask(SendHeartbeat, HeartbeatReplied, self.generation, self.id)
        return reply.error


@pytest.fixture
def leader(adapters: Callable[..., Any]) -> Member:
    """The only member of a stable group."""
    member = Member(adapters("w1"), "http://one/")
    member.get_id()
    reply = member.joined(member.send_join())
    assert reply.error is None
    assert reply.leader_id == reply.member_id
    assert reply.members == {member.id: metadata("http://one/")[0]}
    assert member.synced(member.send_sync({member.id: assignment(member.id)})).assignment == assignment(member.id)
    return member


@pytest.fixture
def follower(adapters: Callable[..., Any], leader: Member) -> Member:
    """A second member, in a stable group of two."""
    member = Member(adapters("w2"), "http://two/")
    rebalance(leader, member)
    return member


def rebalance(leader: Member, newcomer: Member) -> None:
    newcomer.get_id()
    joining = newcomer.send_join()
    await_rebalance(leader)
    reply = leader.joined(leader.send_join())
    assert sorted(reply.members) == sorted([leader.id, newcomer.id])
    reply = newcomer.joined(joining)
    assert (reply.error, reply.leader_id, reply.members) == (None, leader.id, {})
    syncing = newcomer.send_sync({})
    assert newcomer.heartbeat() is None  # SyncGroup is unanswered, on the other connection
    leader.synced(leader.send_sync({leader.id: assignment(leader.id), newcomer.id: assignment(leader.id)}))
    assert newcomer.synced(syncing) == SyncGroupReplied(syncing, None, assignment(leader.id))


def await_rebalance(member: Member) -> None:
    assert until(member.heartbeat, "a rebalance") == "REBALANCE_IN_PROGRESS"


def test_two_members_go_through_a_rebalance(leader: Member, follower: Member, config: Any) -> None:
    assert (leader.heartbeat(), follower.heartbeat()) == (None, None)
    counted = leader.adapters.group.requests
    assert (counted.joins.count, counted.syncs.count) == (2, 2)
    assert counted.heartbeats.count >= 2
    assert counted.joins.largest > 0
    group = describe_group(leader.adapters.clients, config.group_id)
    assert (group.state, group.protocol_type) == ("Stable", "connect")
    assert group.members == tuple(sorted([leader.id, follower.id]))


def test_heartbeats_are_answered_while_a_join_is_pending(leader: Member, follower: Member) -> None:
    joining = leader.send_join()
    await_rebalance(follower)
    assert leader.heartbeat() == "REBALANCE_IN_PROGRESS"
    follower.send_join()
    assert leader.joined(joining).error is None


def test_a_newer_join_does_not_wait_behind_one_that_was_given_up(leader: Member, follower: Member) -> None:
    old = leader.send_join()
    await_rebalance(follower)
    new = leader.send_join()
    failed, before = leader.adapters.inbox.until(GroupRequestFailed)
    assert (failed.request_id, before) == (old, [])
    follower.send_join()
    assert leader.joined(new).error is None


def test_a_killed_member_says_nothing_and_is_dropped_when_its_session_ends(
    adapters: Callable[..., Any], leader: Member
) -> None:
    follower = Member(adapters("w2"), "http://two/")
    follower.session_timeout_ms = SHORT_SESSION_MS
    rebalance(leader, follower)
    follower.adapters.group.abandon()
    follower.adapters.group.execute(FindCoordinator(99))
    clients, group_id = leader.adapters.clients, leader.adapters.config.group_id
    assert len(describe_group(clients, group_id).members) == 2
    await_rebalance(leader)
    leader.joined(leader.send_join())
    assert describe_group(clients, group_id).members == (leader.id,)
    assert follower.adapters.inbox.empty()


def test_a_member_that_leaves_is_gone_when_close_returns(leader: Member, follower: Member) -> None:
    follower.adapters.send(SendLeaveGroup, follower.id)
    follower.adapters.group.close()
    assert leader.heartbeat() == "REBALANCE_IN_PROGRESS"


def test_an_unknown_member_is_told_so_in_kafkas_words(leader: Member) -> None:
    leader.id, counted = "nobody", leader.adapters.group.requests
    failed_before = counted.failed_rebalances
    assert leader.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert leader.synced(leader.send_sync({})).error == "UNKNOWN_MEMBER_ID"
    assert leader.joined(leader.send_join()).error == "UNKNOWN_MEMBER_ID"
    assert (counted.failed_rebalances - failed_before, counted.joins.count, counted.syncs.count) == (2, 1, 1)


def test_a_member_whose_metadata_cannot_be_read_does_not_hold_the_others_up(leader: Member) -> None:
    stranger = RawMember(leader)
    stranger.join(b"\x00\x02garbage")
    await_rebalance(leader)
    failed_before = leader.adapters.group.requests.failed_rebalances
    assert leader.joined(leader.send_join()).error is None
    assert leader.adapters.group.requests.failed_rebalances == failed_before
    stranger.net.close()


def test_an_assignment_that_cannot_be_read_is_no_assignment(leader: Member, follower: Member) -> None:
    joining = leader.send_join()
    await_rebalance(follower)
    follower.joined(follower.send_join())
    leader.joined(joining)
    syncing = follower.send_sync({})
    RawMember(leader).sync(leader.generation, leader.id, follower.id, b"\x00")
    assert follower.synced(syncing) == SyncGroupReplied(syncing, None, None)


def test_a_lost_connection_fails_the_request_and_the_coordinator_is_found_again(
    adapters: Callable[..., Any], kafka: EmbeddedKafka
) -> None:
    member = Member(adapters("w-cut"), "http://one/")
    member.get_id()
    assert member.joined(member.send_join()).error is None
    gate = kafka.gate
    assert gate is not None
    gate.cut("w-cut")
    heartbeat = member.adapters.send(SendHeartbeat, member.generation, member.id)
    assert member.adapters.inbox.answer(GroupRequestFailed, heartbeat).reason.startswith("SendHeartbeat")
    finding = member.adapters.send(FindCoordinator)
    assert member.adapters.inbox.answer(GroupRequestFailed, finding).reason.startswith("FindCoordinator")
    gate.heal("w-cut")
    member.find()
    assert member.heartbeat() in (None, "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID")


class RawMember:
    """Sends to the leader's coordinator what no worker would send."""

    def __init__(self, leader: Member) -> None:
        self.group_id = leader.adapters.config.group_id
        self.net = KafkaNet(leader.adapters.clients.kafka_python("raw"))
        self.net.start()

    def join(self, data: bytes) -> None:
        from kafka.protocol.consumer.group import JoinGroupRequest

        async def join() -> None:
            node = await self.net.any_node(time.monotonic() + 10)
            member_id = ""
            for _ in range(2):
                request = JoinGroupRequest(
                    group_id=self.group_id,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    member_id=member_id,
                    protocol_type="connect",
                    protocols=[("sessioned", data)],
                    max_version=7,
                )
                member_id = (await self.net.send(request, node, 20_000)).member_id

        self.net.spawn(join)

    def sync(self, generation: int, leader_id: str, member_id: str, data: bytes) -> None:
        from kafka.protocol.consumer.group import SyncGroupRequest

        async def sync() -> None:
            node = await self.net.any_node(time.monotonic() + 10)
            request = SyncGroupRequest(
                group_id=self.group_id,
                generation_id=generation,
                member_id=leader_id,
                assignments=[(leader_id, b""), (member_id, data)],
                max_version=4,
            )
            await self.net.send(request, node, 20_000)

        self.net.run(sync)
        self.net.close()
