"""Verbs of scripts about groups: members A, B, C and their coordinator. Subclasses carry requests.

`enters` asks for a member id and joins; `joins` and `syncs` do not wait, `hears` waits for the answer; `expires` lets
time pass until the coordinator has dropped a member.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from connectx.core.group_messages import (
    GroupStimulus,
    HeartbeatReplied,
    JoinGroupReplied,
    SendHeartbeat,
    SendJoinGroup,
    SendSyncGroup,
    SyncGroupReplied,
)
from tests.simulation.broker_coordinator import Subscription

Request = SendJoinGroup | SendSyncGroup | SendHeartbeat


@dataclass
class Client:
    """What a member knows of itself."""

    member_id: str = ""
    generation: int = -1
    session_ms: int = 30_000
    rebalance_ms: int = 30_000
    protocols: tuple[Subscription, ...] = (Subscription(),)


class Groups(ABC):
    """The verbs. Member ids are never shown: brokers choose them."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.requests = 0

    @abstractmethod
    def send(self, who: str, request: Request, *, is_late: bool = False) -> None:
        """Send a request; returns when the coordinator has it. The answer to a late one is not read."""

    @abstractmethod
    def receive(self, who: str) -> GroupStimulus:
        """The answer to the oldest request that was not answered yet."""

    @abstractmethod
    def leaves(self, who: str) -> None:
        """LeaveGroup."""

    @abstractmethod
    def expires(self, who: str) -> None:
        """Let time pass until the member is none any more."""

    @abstractmethod
    def moves(self, who: str) -> None:
        """Another node becomes coordinator, and all clients have found it; what they waited for is gone."""

    @abstractmethod
    def commit(self, member_id: str, generation: int, offset: int) -> str:
        """OffsetCommit for one partition."""

    @abstractmethod
    def offset(self) -> int | None:
        """The committed offset of that partition."""

    def uses(self, who: str, *settings: str) -> None:
        """session=2000 rebalance=2000 (ms), protocols=range,roundrobin, topics=a,b (what its metadata says)."""
        client = self._client(who)
        given = dict(setting.split("=") for setting in settings)
        client.session_ms = int(given.get("session", client.session_ms))
        client.rebalance_ms = int(given.get("rebalance", client.rebalance_ms))
        topics = tuple(given["topics"].split(",")) if "topics" in given else client.protocols[0].topics
        names = given["protocols"].split(",") if "protocols" in given else [p.assignor for p in client.protocols]
        client.protocols = tuple(Subscription(topics, name) for name in names)

    def recalls(self, who: str, what: str, value: str) -> None:
        """Takes an old generation, or a member id, for its own."""
        client = self._client(who)
        if what == "generation":
            client.generation = int(value)
        else:
            client.member_id = value

    def asks(self, who: str) -> str:
        """Join without a member id."""
        self._client(who).member_id = ""
        self.joins(who)
        reply = self.receive(who)
        assert isinstance(reply, JoinGroupReplied)
        self._client(who).member_id = reply.member_id
        return str(reply.error)

    def enters(self, who: str) -> None:
        assert self.asks(who) == "MEMBER_ID_REQUIRED"
        self.joins(who)

    def joins(self, who: str) -> None:
        self.send(who, self._join(who))

    def joins_late(self, who: str) -> None:
        """The same over a connection that was cut."""
        self.send(who, self._join(who), is_late=True)

    def syncs(self, who: str, *assignments: str) -> None:
        """`A=x B=y` assigns x to A and y to B."""
        self.send(who, self._sync(who, assignments))

    def syncs_late(self, who: str, *assignments: str) -> None:
        """The same over a connection that was cut."""
        self.send(who, self._sync(who, assignments), is_late=True)

    def heartbeats(self, who: str) -> str:
        client = self._client(who)
        self.send(who, SendHeartbeat(self._next(), client.generation, client.member_id))
        reply = self.receive(who)
        assert isinstance(reply, HeartbeatReplied)
        return reply.error or "OK"

    def hears(self, who: str) -> str:
        reply = self.receive(who)
        if isinstance(reply, JoinGroupReplied):
            return self._joined(who, reply)
        assert isinstance(reply, SyncGroupReplied)
        return reply.error or f"has {reply.assignment or 'nothing'}"

    def commits(self, who: str, offset: str) -> str:
        if who == "admin":
            return self.commit("", -1, int(offset))
        client = self._client(who)
        return self.commit(client.member_id, client.generation, int(offset))

    def has(self, who: str, what: str) -> str:
        """`group has offset`."""
        assert (who, what) == ("group", "offset")
        return str(self.offset())

    def settles(self, who: str) -> None:
        """The group's only member enters and has its assignment."""
        self.enters(who)
        self.hears(who)
        self.syncs(who, f"{who}=all")
        self.hears(who)

    def follows(self, who: str, leader: str) -> None:
        """Enters the group of a settled leader, and both have their assignments."""
        self.enters(who)
        self.joins(leader)
        self.hears(leader)
        self.hears(who)
        self.syncs(leader, f"{leader}=half", f"{who}=half")
        self.syncs(who)
        self.hears(leader)
        self.hears(who)

    def _client(self, who: str) -> Client:
        return self.clients.setdefault(who, Client())

    def _next(self) -> int:
        self.requests += 1
        return self.requests

    def _join(self, who: str) -> SendJoinGroup:
        client = self._client(who)
        timeouts_ms = client.session_ms, client.rebalance_ms
        return SendJoinGroup(self._next(), client.member_id, *timeouts_ms, client.protocols)  # type: ignore[arg-type]

    def _sync(self, who: str, assignments: Sequence[str]) -> SendSyncGroup:
        client = self._client(who)
        given = dict(assignment.split("=") for assignment in assignments)
        work = {self._client(name).member_id: label for name, label in given.items()}
        return SendSyncGroup(self._next(), client.generation, client.member_id, work)  # type: ignore[arg-type]

    def _joined(self, who: str, reply: JoinGroupReplied) -> str:
        if reply.error is not None:
            return reply.error
        self._client(who).generation = reply.generation
        leads = reply.leader_id == reply.member_id
        role = f"leads {len(reply.members)}" if leads else "follows"
        return f"{role} in generation {reply.generation} by {reply.protocol}"
