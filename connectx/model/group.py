"""Metadata and assignments of the worker group (Kafka Connect: IncrementalCooperativeConnectProtocol)."""

from __future__ import annotations

from enum import IntEnum

from connectx.model.ids import TASK_ORDER, TaskId
from connectx.values import Value


class ProtocolVersion(IntEnum):
    """Subprotocol of the group; the name on the wire is `wire_name`."""

    EAGER = 0
    COMPATIBLE = 1
    SESSIONED = 2

    @property
    def wire_name(self) -> str:
        """Name in JoinGroup: default, compatible or sessioned."""
        return ("default", "compatible", "sessioned")[self]

    @property
    def is_cooperative(self) -> bool:
        """True for incremental cooperative rebalancing (KIP-415)."""
        return self is not ProtocolVersion.EAGER

    @classmethod
    def of_wire_name(cls, name: str) -> ProtocolVersion:
        """Inverse of `wire_name`; ValueError for an unknown name."""
        return cls(("default", "compatible", "sessioned").index(name))


class WorkSet(Value):
    """Connectors and tasks, sorted, as claims, assignments and revocations carry them."""

    connectors: tuple[str, ...] = ()
    tasks: tuple[TaskId, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.connectors or self.tasks)

    def plus(self, other: WorkSet) -> WorkSet:
        """Union, sorted."""
        return WorkSet(
            tuple(sorted({*self.connectors, *other.connectors})),
            tuple(sorted({*self.tasks, *other.tasks}, key=TASK_ORDER)),
        )

    def minus(self, other: WorkSet) -> WorkSet:
        """Difference, order kept."""
        connectors, tasks = set(other.connectors), set(other.tasks)
        return WorkSet(
            tuple(connector for connector in self.connectors if connector not in connectors),
            tuple(task for task in self.tasks if task not in tasks),
        )


class Assignment(Value):
    """The leader's answer to one member.

    `assigned` is the whole assignment with version 0 and only what is new with versions 1 and 2; `revoked` and
    `delay_ms` exist with versions 1 and 2 only. `error` is 0 or 1 (CONFIG_MISMATCH). `config_offset` is the offset of
    the next config record that the leader assigned with. An increment's order is the order on the wire.
    """

    version: ProtocolVersion
    error: int
    leader: str
    leader_url: str
    config_offset: int
    assigned: WorkSet = WorkSet()
    revoked: WorkSet = WorkSet()
    delay_ms: int = 0


class MemberMetadata(Value):
    """Metadata of a member that joins; `allocation` is what it runs now (None: nothing yet, or version 0)."""

    version: ProtocolVersion
    url: str
    config_offset: int
    allocation: Assignment | None = None
