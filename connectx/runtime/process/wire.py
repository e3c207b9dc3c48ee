"""The protocol between a worker's process and its owner: one JSON object per line, over a socket pair.

The owner sends orders. The process sends their results, the history, the worker's view and its metrics. The module has
no clock and no thread. The last line of a killed process may be incomplete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from connectx.model.causes import cause_from_json, cause_to_json
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.json_values import json_value, record_to_json
from connectx.model.payloads import payload_of

Line = Mapping[str, Any]


class Order(StrEnum):
    """What an owner orders; each has an `id` that its answer brings back."""

    START = "start"  # name, process_token, config, bootstrap_servers
    SPARK = "spark"  # url, or error; no answer
    STALL = "stall"
    THAW = "thaw"
    FREEZE_JVM = "freeze_jvm"  # answered when what it has committed is in the history
    REQUEST_STOP = "request_stop"
    STOP = "stop"  # timeout_s
    CHECK = "check"  # answered by [[rule, found]]
    RECORDING = "recording"  # reason; answered by lines of a recording, none if there is none


class News(StrEnum):
    """Kinds of reports of a process."""

    DONE = "done"  # id, and result or error
    EVENT = "event"  # transition
    VIEW = "view"  # view
    HEARTBEAT = "heartbeat"  # time_ms
    TASK_METRICS = "task_metrics"  # metrics: [[connector, task, numbers]]
    SPARK_SESSION = "spark_session"  # session_id
    SPARK_SESSION_RELEASED = "spark_session_released"  # session_id
    JVM = "jvm"  # pid, None if there is no JVM
    STOPPED = "stopped"  # in_time


def encode(kind: Order | News, **content: Any) -> bytes:
    """One line, in ASCII: a text may hold what UTF-8 cannot, such as half a surrogate pair of a file's name."""
    return json.dumps({"kind": kind, **content}, separators=(",", ":")).encode() + b"\n"


class Lines:
    """Puts lines together from what a socket gives; a last line without its end stays inside."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The lines that are complete with `data`."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in whole if line]


def transition_content(transition: Transition) -> dict[str, Any]:
    """A transition as JSON values."""
    return {
        "kind": transition.kind,
        "connector": transition.connector,
        "task": transition.task,
        "generation": transition.generation,
        "producer_epoch": transition.producer_epoch,
        "why": cause_to_json(transition.why),
        "data": record_to_json(transition.payload),
    }


def transition_of(content: Mapping[str, Any]) -> Transition:
    """Inverse of `transition_content`."""
    rest = {name: value for name, value in content.items() if name not in ("kind", "data", "why")}
    payload = payload_of(EventKind(content["kind"]), content["data"])
    return Transition(payload, why=cause_from_json(content["why"]), **rest)


def metrics_content(metrics: Mapping[TaskId, Mapping[str, object]]) -> list[list[Any]]:
    """Live numbers of tasks as JSON values."""
    return [[task.connector, task.task, json_value(of_task)] for task, of_task in sorted(metrics.items())]


def metrics_of(content: list[list[Any]]) -> dict[TaskId, Mapping[str, object]]:
    """Inverse of `metrics_content`."""
    return {TaskId(connector, task): numbers for connector, task, numbers in content}
