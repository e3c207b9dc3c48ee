"""The verbs that a worker's core answers, with their arguments and replies. Values only: the herder decides.

Mirrors the methods of Kafka Connect's Herder. A `Request` names one verb, mostly a connector, and `args` as listed
below; the answer is a `Reply`:

- `status` is the HTTP status; 200, 201, 202 and 204 as in Kafka Connect's REST reference, per verb below.
- `body` of a success is JSON-like data in the shape that REST shows (None with 204 and with an empty 202).
- `body` of a failure (400 and above) is the message, a string; REST wraps it as `{"error_code", "message"}`.
- `forward_to` is a worker's URL: this worker may not answer (it is not the leader, or not the owner), ask that one.
  Status and body then mean nothing. A leader or owner that is not known at the moment is a 409, not a forward.

"where" below: *any* worker answers from its own snapshot; *leader* and *owner* (of the connector or task) forward.
While a rebalance is wanted, verbs of leader and owner answer 409. A worker that is not up yet, or ends, answers 503,
but while it ends it still shows what it knows. A write that was under way at its end is a 500: nobody knows how it
came out.

| verb | where | args | reply |
| --- | --- | --- | --- |
| WORKER | any | | 200 worker |
| LIST_CONNECTORS | any | `expand`: sequence of "status", "info" | 200 sorted names, or name to {"status", "info"} |
| CONNECTOR_INFO | any | | 200 info |
| CONNECTOR_CONFIG | any | `leader`: bool, True forwards to the leader | 200 raw config |
| CONNECTOR_STATUS | any | | 200 status |
| TASKS | any | | 200 list of {"id": {"connector", "task"}, "config"} |
| TASK_STATUS | any | `task`: int | 200 {"id": int, "state", "worker_id", "trace"?} |
| CREATE | leader | `config`, `initial_state`: TargetState or None | 201 info; 409 exists |
| PUT_CONFIG | leader | `config`, `expected`: config or None | 201 or 200 info; 409 when not as expected |
| DELETE | leader | | 204 |
| PAUSE, RESUME | any | | 202 |
| STOP | leader | | 204 |
| RESTART_CONNECTOR | owner, with a flag leader | `include_tasks`, `only_failed`: bool | 204, with a flag 202 status |
| RESTART_TASK | owner | `task`: int | 204 |
| TOPICS | any | | 200 {connector: {"topics": sorted list}}; 403 tracking is off |
| TOPICS_RESET | any | | 202; 403 tracking or its reset is off |
| OFFSETS | any | | 200 {"type", "config"} |
| MODIFY_OFFSETS | leader | | 200 {"type", "config"}; 400 not stopped; 409 |
| PUT_TASK_CONFIGS | leader, signed | `task_configs`: list of maps, and the three of a signature | 204 |
| FENCE | leader, signed | the three of a signature | 204; 400 not a source |
| LOGGER_LEVEL | any | `namespace`, `level` | 204; every worker of the cluster sets it when it reads the record |

Every verb with a connector answers 404 for one that the snapshot does not hold, except TOPICS and TOPICS_RESET.

Configurations are mappings of string to string or None, validated before the request was made.

*info*: {"name", "config", "tasks": [{"connector", "task"}], "type": "source" | "sink" | "unknown"}.

*status*: {"name", "connector": {"state", "worker_id", "trace"?}, "tasks": [{"id": int, "state", "worker_id",
"trace"?}], "type"}; tasks sorted by id, `trace` left out when empty.

*worker*: {"url", "state", "member_id", "generation", "protocol", "leader", "leader_url", "connectors": [name],
"tasks": [{"connector", "task"}], "config_offset"}. `state` is "starting" (internal topics are being read), "joining",
"stable", "stopping" or "stopped"; what is not known is None.

*signature* (KIP-507): `body` the exact bytes of the request, `signature` and `algorithm` the two headers as they came,
or None. The core holds the key, so it verifies: 400 headers missing, not Base64 or an algorithm that is not allowed,
503 no key yet, 403 wrong.

Offsets are not the core's to read or write (KIP-875). OFFSETS says that the connector exists and what it is; the driver
then reads. MODIFY_OFFSETS is the permission to write: the core has read the config topic to its end, the connector is
STOPPED with no tasks, and for a source under exactly-once a fencing round was done and the conditions checked again
behind it. The driver writes after the reply.
"""

from __future__ import annotations

from enum import StrEnum


class Verb(StrEnum):
    """Every request that a core answers; arguments and replies are in the module's table."""

    WORKER = "worker"
    LIST_CONNECTORS = "list_connectors"
    CONNECTOR_INFO = "connector_info"
    CONNECTOR_CONFIG = "connector_config"
    CONNECTOR_STATUS = "connector_status"
    TASKS = "tasks"
    TASK_STATUS = "task_status"
    CREATE = "create"
    PUT_CONFIG = "put_config"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RESTART_CONNECTOR = "restart_connector"
    RESTART_TASK = "restart_task"
    TOPICS = "topics"
    TOPICS_RESET = "topics_reset"
    OFFSETS = "offsets"
    MODIFY_OFFSETS = "modify_offsets"
    PUT_TASK_CONFIGS = "put_task_configs"
    FENCE = "fence"
    LOGGER_LEVEL = "logger_level"
