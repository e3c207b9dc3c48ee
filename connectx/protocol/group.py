"""Bytes that members of the worker group exchange: metadata in JoinGroup, assignments in SyncGroup.

It decides which bytes are which value. It never decides an assignment. Mirrors Kafka Connect's ConnectProtocol
(version 0) and IncrementalCooperativeConnectProtocol (versions 1 and 2, KIP-415 and KIP-507).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from connectx.errors.plugins import MalformedDataError
from connectx.model.decoding import decoder
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId

CONNECTOR_ITSELF = -1  # stands among task numbers for the connector


def encode_metadata(metadata: MemberMetadata) -> bytes:
    """What a member joins with, in the layout of `metadata.version`. The allocation is left out in version 0."""
    out = struct.pack(">h", metadata.version) + _string(metadata.url) + struct.pack(">q", metadata.config_offset)
    if metadata.version is ProtocolVersion.EAGER:
        return out
    if metadata.allocation is None:
        return out + struct.pack(">i", -1)
    allocation = encode_assignment(metadata.allocation)
    return out + struct.pack(">i", len(allocation)) + allocation


@decoder
def decode_metadata(data: bytes) -> MemberMetadata:
    """Inverse of `encode_metadata`; a missing allocation is None."""
    reader = _Reader(data, "group member metadata")
    version = reader.version()
    url, config_offset = reader.string(), reader.number(">q")
    allocation = None
    if version is not ProtocolVersion.EAGER and not reader.at_end:
        length = reader.number(">i")
        allocation = None if length < 0 else _assignment(reader.take(length))
    return MemberMetadata(version, url, config_offset, allocation)


def encode_assignment(assignment: Assignment) -> bytes:
    """The leader's answer to one member, in the layout of `assignment.version`.

    Items are written by connector name, a connector before its tasks, tasks by number.
    """
    out = (
        struct.pack(">hh", assignment.version, assignment.error)
        + _string(assignment.leader)
        + _string(assignment.leader_url)
        + struct.pack(">q", assignment.config_offset)
        + _work(assignment.assigned)
    )
    if assignment.version is ProtocolVersion.EAGER:
        return out
    return out + _work(assignment.revoked) + struct.pack(">i", assignment.delay_ms)


@decoder
def decode_assignment(data: bytes) -> Assignment:
    """Inverse of `encode_assignment`; work comes in the order on the wire.

    In versions 1 and 2 the work sets may be null and trailing fields missing: no work, no delay.
    """
    return _assignment(data)


def _assignment(data: bytes) -> Assignment:
    reader = _Reader(data, "a group assignment")
    version, error = reader.version(), reader.number(">h")
    leader, leader_url, config_offset = reader.string(), reader.string(), reader.number(">q")
    if version is ProtocolVersion.EAGER:
        return Assignment(version, error, leader, leader_url, config_offset, reader.work())
    assigned = WorkSet() if reader.at_end else reader.work()
    revoked = WorkSet() if reader.at_end else reader.work()
    delay_ms = 0 if reader.at_end else reader.number(">i")
    return Assignment(version, error, leader, leader_url, config_offset, assigned, revoked, delay_ms)


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > 0x7FFF:
        raise MalformedDataError("a group message", f"a name of {len(data)} bytes is too long for the protocol")
    return struct.pack(">h", len(data)) + data


def _work(work: WorkSet) -> bytes:
    numbers: dict[str, list[int]] = {connector: [CONNECTOR_ITSELF] for connector in work.connectors}
    for task in work.tasks:
        numbers.setdefault(task.connector, []).append(task.task)
    items = [
        _string(connector) + struct.pack(f">i{len(tasks)}i", len(tasks), *sorted(tasks))
        for connector, tasks in sorted(numbers.items())
    ]
    return struct.pack(">i", len(items)) + b"".join(items)


@dataclass(slots=True)
class _Reader:
    data: bytes
    what: str
    position: int = 0

    @property
    def at_end(self) -> bool:
        return self.position == len(self.data)

    def take(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise MalformedDataError(self.what, f"{length} bytes are missing at position {self.position}")
        taken, self.position = self.data[self.position : end], end
        return taken

    def number(self, layout: str) -> int:
        (number,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(number)

    def version(self) -> ProtocolVersion:
        """Versions above those known are read like the newest, as in Java."""
        version = self.number(">h")
        if version < 0:
            raise MalformedDataError(self.what, f"its version is {version}")
        return ProtocolVersion(min(version, ProtocolVersion.SESSIONED))

    def string(self) -> str:
        try:
            return self.take(self.number(">h")).decode()
        except UnicodeDecodeError:
            raise MalformedDataError(self.what, f"the text before position {self.position} is not UTF-8") from None

    def work(self) -> WorkSet:
        """An array of items; null is the same as empty."""
        connectors: list[str] = []
        tasks: list[TaskId] = []
        for _ in range(self.number(">i")):
            connector = self.string()
            for _ in range(self.number(">i")):
                number = self.number(">i")
                if number == CONNECTOR_ITSELF:
                    connectors.append(connector)
                else:
                    tasks.append(TaskId(connector, number))
        return WorkSet(tuple(connectors), tuple(tasks))
