"""Requests of a worker to its group's coordinator, and the answers: effects and stimuli of `group.membership`.

Each answer brings back the `request_id` of its request. The coordinator's errors are Kafka's names
(`REBALANCE_IN_PROGRESS`), None is success.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectx.model.group import Assignment, MemberMetadata
from connectx.values import Value


class FindCoordinator(Value):
    """Ask the cluster for the group coordinator; answered by CoordinatorFound or GroupRequestFailed."""

    request_id: int


class SendJoinGroup(Value):
    """JoinGroup, protocol type `connect`; `protocols` by preference. Answered by JoinGroupReplied."""

    request_id: int
    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberMetadata, ...]


class SendSyncGroup(Value):
    """SyncGroup; `assignments` is empty unless this member leads. Answered by SyncGroupReplied."""

    request_id: int
    generation: int
    member_id: str
    assignments: Mapping[str, Assignment]


class SendHeartbeat(Value):
    request_id: int
    generation: int
    member_id: str


class SendLeaveGroup(Value):
    """LeaveGroup; its answer changes nothing."""

    request_id: int
    member_id: str


class CoordinatorFound(Value):
    """The coordinator is known and connected."""

    request_id: int


class GroupRequestFailed(Value):
    """No answer to a group request: time-out, lost connection, or no broker to be found."""

    request_id: int
    reason: str


class JoinGroupReplied(Value):
    """Answer to SendJoinGroup. `members` (member id to metadata) is filled for the leader only."""

    request_id: int
    error: str | None
    generation: int
    member_id: str
    leader_id: str
    protocol: str
    members: Mapping[str, MemberMetadata]


class SyncGroupReplied(Value):
    """Answer to SendSyncGroup; `assignment` is None with an error."""

    request_id: int
    error: str | None
    assignment: Assignment | None


class HeartbeatReplied(Value):
    request_id: int
    error: str | None


GroupEffect = FindCoordinator | SendJoinGroup | SendSyncGroup | SendHeartbeat | SendLeaveGroup
GroupStimulus = CoordinatorFound | GroupRequestFailed | JoinGroupReplied | SyncGroupReplied | HeartbeatReplied
