"""The group coordinator of a model broker: the classic group protocol, for workers and for sinks' consumers.

It decides generations, leaders, who is a member, and whose offsets are taken. It keeps no clock: `now_ms` is set by
whoever drives it. Mirrors Kafka's GroupMetadataManager and ClassicGroup.

A request comes with the name of its client, and with the node that the client takes for the coordinator (None: it
knows). What is answered, at once or later to a request that had to wait, comes back as (client, reply) pairs. A request
that comes late, over a connection that was cut, has no client (None) and is not answered.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectx.core.group_messages import (
    GroupStimulus,
    HeartbeatReplied,
    JoinGroupReplied,
    SendHeartbeat,
    SendJoinGroup,
    SendSyncGroup,
    SyncGroupReplied,
)
from connectx.model.group import MemberMetadata
from tests.simulation.broker_logs import Outcome

Partition = tuple[str, int]
Answers = list[tuple[str, GroupStimulus]]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer of a sink joins with, where a worker has its MemberMetadata."""

    topics: tuple[str, ...] = ()
    assignor: str = "range"


def protocol_name(metadata: MemberMetadata | Subscription) -> str:
    return metadata.assignor if isinstance(metadata, Subscription) else metadata.version.wire_name


Waiting = tuple[str | None, int]
"""Client and id of a request."""


@dataclass(slots=True)
class Member:
    """One member as the coordinator sees it; `join` and `sync` are its requests that wait for the others.

    A request takes the place of an earlier one, which is never answered.
    """

    member_id: str
    client: str
    protocols: tuple[Any, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    last_seen_ms: int
    join: Waiting | None = None
    sync: Waiting | None = None


@dataclass(slots=True)
class Stored:
    """What another node finds in the offsets topic when it takes the group over."""

    members: dict[str, Member] = field(default_factory=dict)
    generation: int = 0
    leader: str = ""
    protocol: str = ""
    assignments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Coordinator:
    """The coordinator of one group.

    States: EMPTY has no members; PREPARING waits for all to join; COMPLETING waits for the leader's assignments;
    STABLE has them.
    """

    members: dict[str, Member] = field(default_factory=dict)
    promised: dict[str, int] = field(default_factory=dict)  # member ids that were given out, and until when
    generation: int = 0
    state: str = "EMPTY"
    leader: str = ""
    protocol: str = ""
    assignments: Mapping[str, Any] = field(default_factory=dict)
    join_deadline_ms: int = 0
    unsynced: set[str] = field(default_factory=set)  # members that have not asked for their assignment
    sync_deadline_ms: int = 0
    offsets: dict[Partition, int] = field(default_factory=dict)
    stored: Stored = field(default_factory=Stored)
    node: int = 1
    ids: int = 0
    now_ms: int = 0

    def find(self) -> int:
        """FindCoordinator: the node to ask from now on."""
        return self.node

    def join(self, client: str | None, request: SendJoinGroup, node: int | None = None) -> Answers:
        member_id = request.member_id
        if self._is_elsewhere(node):
            return _to(client, _refused_join(request, "NOT_COORDINATOR"))
        names = {protocol_name(metadata) for metadata in request.protocols}
        if self.members and not names & self._common_protocols():
            return _to(client, _refused_join(request, "INCONSISTENT_GROUP_PROTOCOL"))
        if not member_id:
            self.ids += 1
            member_id = f"{client}-m{self.ids}"
            self.promised[member_id] = self.now_ms + request.session_timeout_ms
            return _to(client, _refused_join(request, "MEMBER_ID_REQUIRED", member_id))
        if not self._is_known(member_id):
            return _to(client, _refused_join(request, "UNKNOWN_MEMBER_ID"))
        self.promised.pop(member_id, None)
        timeouts_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        member = self.members.setdefault(member_id, Member(member_id, client or "", (), *timeouts_ms, self.now_ms))
        self.leader = self.leader or member_id
        member.last_seen_ms = self.now_ms
        if member.protocols == request.protocols and self._is_unchanged(member):
            return _to(client, self._joined(request.request_id, member))
        member.protocols = request.protocols
        member.session_timeout_ms, member.rebalance_timeout_ms = timeouts_ms
        member.join = client, request.request_id
        return [*self._prepare(), *self._complete_if_all_joined()]

    def sync(self, client: str | None, request: SendSyncGroup, node: int | None = None) -> Answers:
        error = self._refusal(request.member_id, request.generation, node)
        if error is None and self.state == "PREPARING":
            error = Outcome.REBALANCE_IN_PROGRESS
        if error is not None:
            return _to(client, SyncGroupReplied(request.request_id, error.value, None))
        member = self.members[request.member_id]
        member.last_seen_ms = self.now_ms
        member.sync = client, request.request_id
        self.unsynced.discard(request.member_id)
        if self.state == "COMPLETING" and request.member_id == self.leader:
            self.assignments = request.assignments
            self.state = "STABLE"
            self._store()
        return self._answer_syncs(None) if self.state == "STABLE" else []

    def heartbeat(self, client: str | None, request: SendHeartbeat, node: int | None = None) -> Answers:
        error = self._refusal(request.member_id, request.generation, node)
        if error is None:
            self.members[request.member_id].last_seen_ms = self.now_ms
            error = Outcome.REBALANCE_IN_PROGRESS if self.state == "PREPARING" else None
        return _to(client, HeartbeatReplied(request.request_id, None if error is None else error.value))

    def leave(self, member_id: str, node: int | None = None) -> Answers:
        """LeaveGroup; also of a member id that was only promised. Who asks is not answered: it changes nothing."""
        if self._is_elsewhere(node):
            return []
        if self.promised.pop(member_id, None) is not None:
            return self._complete_if_all_joined()
        return self._remove(member_id) if member_id in self.members else []

    def commit_offsets(
        self, member_id: str, generation: int, offsets: Mapping[Partition, int], node: int | None = None
    ) -> Outcome:
        """OffsetCommit of a member; nobody asks whether it owns the partitions.

        A generation of -1 with no member id is an admin client's, taken while the group has no members.
        """
        if self._is_elsewhere(node):
            return Outcome.NOT_COORDINATOR
        if generation < 0 and not member_id:
            if self.members:
                return Outcome.UNKNOWN_MEMBER
        else:
            if not self.exists:
                return Outcome.ILLEGAL_GENERATION
            if (error := self._refusal(member_id, generation, node)) is not None:
                return error
            self.members[member_id].last_seen_ms = self.now_ms
            if self.state == "COMPLETING":
                return Outcome.REBALANCE_IN_PROGRESS
        self.offsets |= offsets
        return Outcome.OK

    def committed(self, topic: str, partition: int) -> int | None:
        """Offset of the next record to read, None when none was committed."""
        return self.offsets.get((topic, partition))

    def metadata(self, member: Member) -> Any:
        """What a member said for the protocol in force."""
        return next(metadata for metadata in member.protocols if protocol_name(metadata) == self.protocol)

    @property
    def exists(self) -> bool:
        """False until somebody asked to join or committed."""
        return bool(self.generation or self.members or self.promised or self.offsets)

    def expire(self) -> Answers:
        """Drop who was silent for too long, or did not join or sync in time."""
        answers: Answers = []
        for member_id in [member_id for member_id, until_ms in self.promised.items() if self.now_ms > until_ms]:
            answers += self.leave(member_id)
        if self.state == "PREPARING" and self.now_ms > self.join_deadline_ms:
            for member in [member for member in self.members.values() if member.join is None]:
                self._forget(member.member_id)
            answers += self._complete()
        if self.state in {"COMPLETING", "STABLE"} and self.now_ms > self.sync_deadline_ms:
            for member_id in sorted(self.unsynced):
                answers += self._remove(member_id)
        for member in list(self.members.values()):
            silent = self.now_ms - member.last_seen_ms > member.session_timeout_ms
            if silent and member.join is None and member.sync is None:
                answers += self._remove(member.member_id)
        return answers

    def move(self) -> Answers:
        """Another node takes the group over: as it was last stored, with all sessions begun anew.

        Requests that wait are answered NOT_COORDINATOR; a rebalance that was under way has never been.
        """
        answers: Answers = []
        for member in self.members.values():
            if member.join is not None:
                client, request_id = member.join
                refused = JoinGroupReplied(request_id, "NOT_COORDINATOR", -1, member.member_id, "", "", {})
                answers += _to(client, refused)
            if member.sync is not None:
                client, request_id = member.sync
                answers += _to(client, SyncGroupReplied(request_id, "NOT_COORDINATOR", None))
        stored = copy.deepcopy(self.stored)
        self.members, self.promised = stored.members, {}
        self.generation, self.leader, self.protocol = stored.generation, stored.leader, stored.protocol
        self.assignments, self.unsynced = stored.assignments, set()
        self.state = "STABLE" if self.members else "EMPTY"
        for member in self.members.values():
            member.last_seen_ms = self.now_ms
        self.node += 1
        return answers

    def _is_elsewhere(self, node: int | None) -> bool:
        return node is not None and node != self.node

    def _refusal(self, member_id: str, generation: int, node: int | None) -> Outcome | None:
        if self._is_elsewhere(node):
            return Outcome.NOT_COORDINATOR
        if member_id not in self.members:
            return Outcome.UNKNOWN_MEMBER
        return None if generation == self.generation else Outcome.ILLEGAL_GENERATION

    def _is_known(self, member_id: str) -> bool:
        """True for a member, and for an id that was given out."""
        return member_id in self.members or member_id in self.promised

    def _is_unchanged(self, member: Member) -> bool:
        """True for a member whose join would change nothing: it only gets to know the present generation."""
        return self.state == "COMPLETING" or (self.state == "STABLE" and member.member_id != self.leader)

    def _common_protocols(self) -> set[str]:
        """Names that every member offers, as of its last join."""
        offers = [{protocol_name(metadata) for metadata in member.protocols} for member in self.members.values()]
        return set.intersection(*offers)

    def _prepare(self) -> Answers:
        if self.state != "PREPARING":
            self.state = "PREPARING"
            timeouts_ms = [member.rebalance_timeout_ms for member in self.members.values()]
            self.join_deadline_ms = self.now_ms + max(timeouts_ms, default=0)
        return self._answer_syncs(Outcome.REBALANCE_IN_PROGRESS)

    def _remove(self, member_id: str) -> Answers:
        member = self.members[member_id]
        gone: Answers = []
        if member.join is not None:
            client, request_id = member.join
            gone = _to(client, JoinGroupReplied(request_id, "UNKNOWN_MEMBER_ID", -1, member_id, "", "", {}))
        self._forget(member_id)
        return [*gone, *self._prepare(), *self._complete_if_all_joined()]

    def _forget(self, member_id: str) -> None:
        del self.members[member_id]
        self.unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), "")

    def _answer_syncs(self, error: Outcome | None) -> Answers:
        answers: Answers = []
        for member in self.members.values():
            if member.sync is not None:
                client, request_id = member.sync
                member.sync = None
                assignment = None if error is not None else self.assignments.get(member.member_id)
                reply = SyncGroupReplied(request_id, None if error is None else error.value, assignment)
                answers += _to(client, reply)
        return answers

    def _complete_if_all_joined(self) -> Answers:
        """A promised member id is waited for, too, until its session would end."""
        waits = self.promised or any(member.join is None for member in self.members.values())
        return self._complete() if self.state == "PREPARING" and not waits else []

    def _complete(self) -> Answers:
        """The next generation begins; also that of a group which has become empty."""
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.assignments = "EMPTY", "", {}
            self._store()
            return []
        self.state = "COMPLETING"
        self.protocol = self._elect_protocol()
        self.assignments = {}
        self.unsynced = set(self.members)
        self.sync_deadline_ms = self.now_ms + max(member.rebalance_timeout_ms for member in self.members.values())
        answers: Answers = []
        for member in self.members.values():
            member.last_seen_ms = self.now_ms
            if member.join is not None:
                client, request_id = member.join
                member.join = None
                answers += _to(client, self._joined(request_id, member))
        return answers

    def _elect_protocol(self) -> str:
        """Each member votes for the first of its own that all have; a tie goes by the leader's order."""
        common = self._common_protocols()
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(protocol_name(m) for m in member.protocols if protocol_name(m) in common)] += 1
        wanted = [protocol_name(metadata) for metadata in self.members[self.leader].protocols]
        return max((name for name in wanted if name in common), key=lambda name: votes[name])

    def _store(self) -> None:
        members = {
            member.member_id: Member(
                member.member_id,
                member.client,
                member.protocols,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.last_seen_ms,
            )
            for member in self.members.values()
        }
        self.stored = Stored(members, self.generation, self.leader, self.protocol, self.assignments)

    def _joined(self, request_id: int, member: Member) -> JoinGroupReplied:
        members = {}
        if member.member_id == self.leader:
            members = {m.member_id: self.metadata(m) for m in self.members.values()}
        return JoinGroupReplied(
            request_id, None, self.generation, member.member_id, self.leader, self.protocol, members
        )


def _to(client: str | None, reply: GroupStimulus) -> Answers:
    return [] if client is None else [(client, reply)]


def _refused_join(request: SendJoinGroup, error: str, member_id: str | None = None) -> JoinGroupReplied:
    return JoinGroupReplied(request.request_id, error, -1, member_id or request.member_id, "", "", {})
