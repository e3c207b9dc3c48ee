"""The verbs that a worker's core answers, with their arguments and replies. Values only: the herder decides.

Mirrors the methods of Kafka Connect's Herder. A `Request` holds one verb with its arguments. The answer is one of:

- `Done`: an HTTP status (200, 201, 202 or 204, as in Kafka Connect's REST reference, per verb below) and a body in the
  shape that REST shows, None with 204 and with an empty 202.
- `Refused`: an HTTP status of 400 and above, and a message; REST wraps it as `{"error_code", "message"}`.
- `Forwarded`: the URL of the worker that decides, the leader or the owner. A leader or owner that is not known at the
  moment is a refusal with 409.

"where" below: *any* worker answers from its own snapshot; *leader* and *owner* (of the connector or task) forward.
While a rebalance is wanted, verbs of leader and owner answer 409. A worker that is not up yet, or ends, answers 503,
but while it ends it still shows what it knows. A write that was under way at its end is a 500: its outcome is
unknown.

| verb | where | reply |
| --- | --- | --- |
| Worker | any | 200 worker |
| ListConnectors | any | 200 sorted names, or name to {"status", "info"} |
| ConnectorInfo | any | 200 info |
| ConnectorConfig | any | 200 raw config |
| ConnectorStatus | any | 200 status |
| Tasks | any | 200 list of {"id": {"connector", "task"}, "config"} |
| TaskStatus | any | 200 {"id": int, "state", "worker_id", "trace"?} |
| Create | leader | 201 info; 409 exists |
| PutConfig | leader | 201 or 200 info; 409 when not as expected |
| Delete | leader | 204 |
| Pause, Resume | any | 202 |
| Stop | leader | 204 |
| RestartConnector | owner, with a flag leader | 204 when it has started, with a flag 202 status; 500 |
| RestartTask | owner | 204 when its plugins are made; 500 |
| Topics | any | 200 {connector: {"topics": sorted list}}; 403 tracking is off |
| ResetTopics | any | 202; 403 tracking or its reset is off |
| Offsets | any | 200 {"type", "config"} |
| ModifyOffsets | leader | 200 {"type", "config"}; 400 not stopped; 409 |
| PutTaskConfigs | leader, signed | 204 |
| Fence | leader, signed | 204; 400 not a source |
| LoggerLevel | any | 204; every worker of the cluster sets it when it reads the record |

Every verb with a connector answers 404 for one that the snapshot does not hold, except Topics and ResetTopics.

Configurations are mappings of string to string or None, validated before the request was made.
`connectx.core.replies` has the types of the bodies. Each verb names its own as the parameter of `Asks`.

A signed verb (KIP-507) holds the exact bytes of the request and the two headers as they came, or None. The core holds
the key, so it verifies: 400 headers missing, not Base64 or an algorithm that is not allowed, 503 no key yet, 403 wrong.

Offsets are not the core's to read or write (KIP-875). Offsets reports the connector's existence and type; the driver
then reads. ModifyOffsets is the permission to write: the core has read the config topic to its end, the connector is
STOPPED with no tasks, and for a source under exactly-once a fencing round was done and the conditions checked again
after it. The driver writes after the reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from connectx.core import replies
from connectx.core.replies import Config
from connectx.model.states import TargetState
from connectx.values import Value

_Body = TypeVar("_Body")


class Asks(Value, Generic[_Body]):
    """A verb whose `Done` holds a `_Body`."""


class Worker(Asks[replies.WorkerPlace]):
    """Describe the worker and its place in the group."""


class ListConnectors(Asks[replies.Connectors]):
    """List connectors. `expand` holds "status", "info" or both; without it the answer is a list of names."""

    expand: Sequence[str] = ()


class ConnectorInfo(Asks[replies.ConnectorInfo]):
    """Read a connector's configuration, tasks and type."""

    connector: str


class ConnectorConfig(Asks[Config]):
    """Read a connector's raw configuration. With `leader` it is the leader's view."""

    connector: str
    leader: bool = False


class ConnectorStatus(Asks[replies.ConnectorStatus]):
    """Read the states of a connector and its tasks."""

    connector: str


class Tasks(Asks[list[replies.TaskInfo]]):
    """Read a connector's task configurations."""

    connector: str


class TaskStatus(Asks[replies.TaskState]):
    """Read the state of a task."""

    connector: str
    task: int


class Create(Asks[replies.ConnectorInfo]):
    """Create a connector, by default STARTED."""

    connector: str
    config: Config
    initial_state: TargetState | None = None


class PutConfig(Asks[replies.ConnectorInfo]):
    """Create a connector or replace its configuration, with `expected` only if that is the present one."""

    connector: str
    config: Config
    expected: Config | None = None


class Delete(Asks[None]):
    """Delete a connector."""

    connector: str


class Pause(Asks[None]):
    """Pause a connector. Its tasks stay assigned."""

    connector: str


class Resume(Asks[None]):
    """Resume a paused or stopped connector."""

    connector: str


class Stop(Asks[None]):
    """Stop a connector and remove its tasks (KIP-875)."""

    connector: str


class RestartConnector(Asks[replies.ConnectorStatus | None]):
    """Restart a connector. With a flag set, the restart goes through the config topic (KIP-745)."""

    connector: str
    include_tasks: bool = False
    only_failed: bool = False

    @property
    def is_of_leader(self) -> bool:
        """True if the leader writes a restart record; otherwise the connector's owner restarts it."""
        return self.include_tasks or self.only_failed


class RestartTask(Asks[None]):
    """Stop a task and start it again with its present configuration."""

    connector: str
    task: int


class Topics(Asks[dict[str, replies.UsedTopics]]):
    """List the topics that a connector has used (KIP-558)."""

    connector: str


class ResetTopics(Asks[None]):
    """Clear the list of topics that a connector has used."""

    connector: str


class Offsets(Asks[replies.OffsetsPermit]):
    """Request permission to read a connector's offsets."""

    connector: str


class ModifyOffsets(Asks[replies.OffsetsPermit]):
    """Request permission to write a stopped connector's offsets."""

    connector: str


class PutTaskConfigs(Asks[None]):
    """Publish the task configurations that a connector has made. `body` is what was signed (KIP-507)."""

    connector: str
    task_configs: Sequence[Config]
    body: bytes = b""
    signature: str | None = None
    algorithm: str | None = None


class Fence(Asks[None]):
    """Run a fencing round before a task starts (KIP-618). `body` is what was signed (KIP-507)."""

    connector: str
    body: bytes = b""
    signature: str | None = None
    algorithm: str | None = None


class LoggerLevel(Asks[None]):
    """Set a logger's level on all workers."""

    namespace: str
    level: str


Verb = (
    Worker
    | ListConnectors
    | ConnectorInfo
    | ConnectorConfig
    | ConnectorStatus
    | Tasks
    | TaskStatus
    | Create
    | PutConfig
    | Delete
    | Pause
    | Resume
    | Stop
    | RestartConnector
    | RestartTask
    | Topics
    | ResetTopics
    | Offsets
    | ModifyOffsets
    | PutTaskConfigs
    | Fence
    | LoggerLevel
)
