"""Bodies of the core's replies to verbs, in the shapes of Kafka Connect's REST API. Values only.

They are what JSON shows: dictionaries with known keys and types, None where the response has no body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

from connectx.model.states import ConnectorType, State

Config = Mapping[str, str | None]

StateName = Annotated[str, Meta(extra_json_schema={"enum": [state for state in State if state is not State.DESTROYED]})]
"""A state that REST shows."""

TypeName = Annotated[str, Meta(extra_json_schema={"enum": [*ConnectorType]})]
"""Direction of a connector."""


class TaskRef(TypedDict):
    """Id of a task (Kafka Connect: ConnectorTaskId)."""

    connector: str
    task: int


class ConnectorInfo(TypedDict):
    """Configuration, tasks and type of a connector (Kafka Connect: ConnectorInfo)."""

    name: str
    config: Config | None
    tasks: list[TaskRef]
    type: TypeName


class ConnectorState(TypedDict):
    """State of a connector; `trace` is left out when empty (Kafka Connect: ConnectorStateInfo.AbstractState)."""

    state: StateName
    worker_id: str
    version: str | None
    trace: NotRequired[str]


class TaskState(ConnectorState):
    """State of a task; `id` is its number."""

    id: int


class ConnectorStatus(TypedDict):
    """States of a connector and its tasks, sorted by number (Kafka Connect: ConnectorStateInfo)."""

    name: str
    connector: ConnectorState
    tasks: list[TaskState]
    type: TypeName


class TaskInfo(TypedDict):
    """Configuration of a task (Kafka Connect: TaskInfo)."""

    id: TaskRef
    config: Config


class Expanded(TypedDict, total=False):
    """What `expand` asks for, of one connector."""

    status: ConnectorStatus
    info: ConnectorInfo


Connectors = list[str] | dict[str, Expanded]
"""Sorted names, or with `expand` a map by name."""


class UsedTopics(TypedDict):
    """Topics that a connector has used, sorted (KIP-558)."""

    topics: list[str]


class OffsetsPermit(TypedDict):
    """Permission to read or write offsets: what the driver needs to know of the connector (KIP-875)."""

    type: TypeName
    config: Config


class WorkerPlace(TypedDict):
    """A worker's place in its group; what is not known is None.

    `state` is "starting" (internal topics are being read), "joining", "stable", "stopping" or "stopped".
    """

    url: str
    state: str
    member_id: str | None
    generation: int | None
    protocol: str | None
    leader: str | None
    leader_url: str | None
    connectors: list[str]
    tasks: list[TaskRef]
    config_offset: int


Body = (
    Connectors
    | ConnectorInfo
    | Config
    | ConnectorStatus
    | TaskState
    | list[TaskInfo]
    | dict[str, UsedTopics]
    | OffsetsPermit
    | WorkerPlace
    | None
)
"""The body of a reply; `connectx.core.verbs` shows which verb has which."""
