"""A model of what a Kafka cluster is to a group of workers: group coordinator, config and status topic, producers.

Answers come at once; whoever asks adds the latency. Nothing here draws at random or knows of faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from connectx.core.config_log import ConfigLog
from connectx.core.messages import (
    GroupStimulus,
    HeartbeatReplied,
    JoinGroupReplied,
    SendHeartbeat,
    SendJoinGroup,
    SendSyncGroup,
    SyncGroupReplied,
)
from connectx.model.config_records import ConfigRecord
from connectx.model.group import Assignment, MemberMetadata
from connectx.model.status_records import StatusRecord

Answer = Callable[[GroupStimulus], None]


@dataclass
class Member:
    """One member as the coordinator sees it; `joins` and `syncs` are its requests that wait for the others.

    A broker answers only the last of them, and a client repeats after a time-out; answering all is the short form.
    """

    member_id: str
    protocols: tuple[MemberMetadata, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    last_seen_ms: int
    joins: list[tuple[SendJoinGroup, Answer]] = field(default_factory=list)
    syncs: list[tuple[SendSyncGroup, Answer]] = field(default_factory=list)


@dataclass
class Coordinator:
    """The coordinator of one classic group (Kafka: GroupCoordinator, ClassicGroup)."""

    members: dict[str, Member] = field(default_factory=dict)
    promised_ids: set[str] = field(default_factory=set)
    generation: int = 0
    state: str = "EMPTY"  # EMPTY, PREPARING, COMPLETING, STABLE
    leader: str = ""
    protocol: str = ""
    assignments: Mapping[str, Assignment] = field(default_factory=dict)
    join_deadline_ms: int = 0
    now_ms: int = 0

    def join(self, worker: str, request: SendJoinGroup, answer: Answer) -> None:
        member_id = request.member_id
        if not member_id:
            member_id = f"{worker}-m{len(self.members) + len(self.promised_ids)}-{self.now_ms}"
            self.promised_ids.add(member_id)
            answer(_join_reply(request, "MEMBER_ID_REQUIRED", member_id))
            return
        if member_id not in self.members and member_id not in self.promised_ids:
            answer(_join_reply(request, "UNKNOWN_MEMBER_ID", member_id))
            return
        self.promised_ids.discard(member_id)
        timeouts = request.session_timeout_ms, request.rebalance_timeout_ms
        member = self.members.setdefault(member_id, Member(member_id, (), *timeouts, self.now_ms))
        member.last_seen_ms = self.now_ms
        if member.protocols == request.protocols and self._is_unchanged(member):
            answer(self._joined(request, member))
            return
        member.protocols = request.protocols
        member.joins.append((request, answer))
        self._prepare()
        self._complete_join()

    def sync(self, request: SendSyncGroup, answer: Answer) -> None:
        error = self._check(request.member_id, request.generation)
        if error is None and self.state == "PREPARING":
            error = "REBALANCE_IN_PROGRESS"
        if error is not None:
            answer(SyncGroupReplied(request.request_id, error, None))
            return
        self.members[request.member_id].syncs.append((request, answer))
        if self.state == "COMPLETING" and request.member_id == self.leader:
            self.assignments = request.assignments
            self.state = "STABLE"
        if self.state == "STABLE":
            self._answer_syncs(None)

    def heartbeat(self, request: SendHeartbeat, answer: Answer) -> None:
        error = self._check(request.member_id, request.generation)
        if error is None:
            self.members[request.member_id].last_seen_ms = self.now_ms
            error = "REBALANCE_IN_PROGRESS" if self.state == "PREPARING" else None
        answer(HeartbeatReplied(request.request_id, error))

    def leave(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self._prepare()
            self._complete_join()

    def expire(self) -> None:
        """Drop who was silent for too long, or did not join in time."""
        for member in list(self.members.values()):
            silent = self.now_ms - member.last_seen_ms > member.session_timeout_ms
            late = self.state == "PREPARING" and self.now_ms > self.join_deadline_ms
            if not member.joins and (silent or late):
                self.leave(member.member_id)

    def _is_unchanged(self, member: Member) -> bool:
        """True for a member whose join would change nothing: it only gets to know the present generation."""
        return self.state == "COMPLETING" or (self.state == "STABLE" and member.member_id != self.leader)

    def _check(self, member_id: str, generation: int) -> str | None:
        if member_id not in self.members:
            return "UNKNOWN_MEMBER_ID"
        return None if generation == self.generation else "ILLEGAL_GENERATION"

    def _prepare(self) -> None:
        if self.state != "PREPARING":
            self.state = "PREPARING"
            timeouts_ms = [member.rebalance_timeout_ms for member in self.members.values()]
            self.join_deadline_ms = self.now_ms + max(timeouts_ms, default=0)
        self._answer_syncs("REBALANCE_IN_PROGRESS")

    def _answer_syncs(self, error: str | None) -> None:
        for member in self.members.values():
            assignment = None if error is not None else self.assignments.get(member.member_id)
            for request, answer in member.syncs:
                answer(SyncGroupReplied(request.request_id, error, assignment))
            member.syncs = []

    def _complete_join(self) -> None:
        if not self.members:
            self.state = "EMPTY"
            return
        if any(not member.joins for member in self.members.values()):
            return
        self.generation += 1
        self.state = "COMPLETING"
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        names = [{metadata.version.wire_name for metadata in member.protocols} for member in self.members.values()]
        common = set.intersection(*names)
        wanted = self.members[self.leader].protocols
        self.protocol = next(m.version.wire_name for m in wanted if m.version.wire_name in common)
        for member in self.members.values():
            joins, member.joins, member.last_seen_ms = member.joins, [], self.now_ms
            for request, answer in joins:
                answer(self._joined(request, member))

    def _joined(self, request: SendJoinGroup, member: Member) -> JoinGroupReplied:
        members = {}
        if member.member_id == self.leader:
            members = {m.member_id: self.metadata(m) for m in self.members.values()}
        return JoinGroupReplied(
            request.request_id, None, self.generation, member.member_id, self.leader, self.protocol, members
        )

    def metadata(self, member: Member) -> MemberMetadata:
        return next(metadata for metadata in member.protocols if metadata.version.wire_name == self.protocol)


def _join_reply(request: SendJoinGroup, error: str, member_id: str) -> JoinGroupReplied:
    return JoinGroupReplied(request.request_id, error, -1, member_id, "", "", {})


@dataclass
class Broker:
    """Everything that outlives workers.

    `config_log` holds records with their log offsets; a transaction's marker takes an offset, too. `config` is its
    fold: the truth that workers read late. `epochs` are producer epochs by transactional id.
    """

    coordinator: Coordinator = field(default_factory=Coordinator)
    config_log: list[tuple[int, ConfigRecord]] = field(default_factory=list)
    next_offset: int = 0
    config: ConfigLog = field(default_factory=ConfigLog)
    status_log: list[StatusRecord] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)

    def append(self, records: tuple[ConfigRecord, ...], *, transactional: bool) -> None:
        for record in records:
            self.config_log.append((self.next_offset, record))
            self.config.apply(self.next_offset, record)
            self.next_offset += 1
        self.next_offset += transactional

    def init_transactions(self, transactional_id: str) -> int:
        """Fences the producers before; returns the new producer epoch."""
        self.epochs[transactional_id] = self.epochs.get(transactional_id, -1) + 1
        return self.epochs[transactional_id]
