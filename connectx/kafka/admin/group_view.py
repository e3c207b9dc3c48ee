"""Members, assignments and leader of a worker group, from its coordinator's description. Pure.

DescribeGroups has what each member sent when it last joined and what the leader assigned. With cooperative protocols
the answer is an increment, so a member's work is what it claimed, without what was revoked, with what was assigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from connectx.model.decoding import Unreadable
from connectx.model.group import Assignment, MemberMetadata, WorkSet
from connectx.protocol.group import decode_assignment, decode_metadata
from connectx.values import Value

if TYPE_CHECKING:
    from connectx.kafka.admin.groups import GroupMember

STABLE = "Stable"


class Member(Value):
    """A worker as the group knows it.

    Attributes:
        worker_id: host:port of its URL, as statuses name it.
        config_offset: the next config record as of its last join.
        assigned_offset: the next config record that the leader assigned with.
        work: what it has to run.
        delay_ms: how long lost work was to wait when the leader last assigned.
        error: 1 when the leader had no newer configs than its members (CONFIG_MISMATCH), else 0.
    """

    member_id: str
    worker_id: str
    url: str
    config_offset: int
    assigned_offset: int
    work: WorkSet
    delay_ms: int
    error: int


class GroupView(Value):
    """A stable group. `protocol` is its name on the wire: default, compatible or sessioned."""

    group_id: str
    protocol: str
    leader_url: str
    members: tuple[Member, ...]

    @property
    def worker_ids(self) -> tuple[str, ...]:
        """Ids (host:port) of its members, sorted."""
        return tuple(sorted(member.worker_id for member in self.members))

    @property
    def delay_ms(self) -> int:
        """How long lost work waits, as the leader last reported."""
        return max((member.delay_ms for member in self.members), default=0)

    def of(self, worker_id: str) -> Member | None:
        return next((member for member in self.members if member.worker_id == worker_id), None)


def group_view(group_id: str, protocol: str, described: Sequence[GroupMember]) -> GroupView | None:
    """A stable group's assignments; None when the metadata of a member cannot be decoded."""
    members, leader = [], ""
    for one in described:
        joined, given = decode_metadata(one.metadata), decode_assignment(one.assignment)
        if isinstance(joined, Unreadable) or isinstance(given, Unreadable):
            return None
        leader = leader or given.leader_url
        members.append(_member(one.member_id, joined, given))
    return GroupView(group_id, protocol, leader, tuple(sorted(members, key=lambda member: member.worker_id)))


def worker_id_of(url: str) -> str:
    """host:port of a worker's URL."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _member(member_id: str, joined: MemberMetadata, given: Assignment) -> Member:
    work = given.assigned
    if given.version.is_cooperative and joined.allocation is not None:
        work = joined.allocation.assigned.minus(given.revoked).plus(given.assigned)
    return Member(
        member_id,
        worker_id_of(joined.url),
        joined.url,
        joined.config_offset,
        given.config_offset,
        WorkSet().plus(work),
        given.delay_ms,
        given.error,
    )
