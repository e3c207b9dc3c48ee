"""A worker's log on stderr, in Kafka Connect's line format, with selected events of its history."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Final

from connectx.model.events import EventKind, Transition
from connectx.model.json_values import record_to_json
from connectx.model.payloads import ConnectorState, TaskState
from connectx.model.states import State
from connectx.views import masked_text, visible


class Level(StrEnum):
    """Levels as Kafka Connect's log4j names them."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


_log = logging.getLogger("connectx.worker")
_QUIET: Final = (
    EventKind.TASK_STEP,
    EventKind.TRANSACTION_COMMITTED,
    EventKind.OFFSETS_COMMITTED,
    EventKind.WORKER_FAILED,  # the process reports it when it ends
)
_LOUD: Final = (
    EventKind.MEMBER_LOST,
    EventKind.LEADERSHIP_FENCED,
    EventKind.FENCING_FAILED,
    EventKind.PRODUCER_FENCED,
    EventKind.TASK_REFUSED,
    EventKind.TASKS_INCONSISTENT,
    EventKind.TRANSACTION_ABORTED,
    EventKind.COMMIT_REFUSED,
    EventKind.PARTITIONS_LOST,
    EventKind.RECORDS_SKIPPED,
    EventKind.LAG_ALARM,
)
_LONGEST: Final = 300


class _ConnectLine(logging.Formatter):
    """`[2026-11-21 20:46:56,123] INFO message (logger:line)`: Kafka Connect's pattern."""

    def __init__(self) -> None:
        super().__init__("[%(asctime)s] %(levelname)s %(message)s (%(name)s:%(lineno)d)")

    def format(self, record: logging.LogRecord) -> str:
        """Format with log4j's level names. Secrets are hidden, and control characters visible."""
        record.levelname = {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(record.levelname, record.levelname)
        return visible(masked_text(super().format(record)))


def to_stderr(level: Level) -> None:
    """Log to stderr: connectx from `level` on, libraries from WARN on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_ConnectLine())
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("connectx").setLevel("WARNING" if level is Level.WARN else level.value)


def log_transition(transition: Transition) -> None:
    """Log what a worker did or what happened to it; data flow only from DEBUG on."""
    payload = transition.payload
    failed = isinstance(payload, TaskState | ConnectorState) and payload.state is State.FAILED
    level = logging.ERROR if failed else logging.WARNING if transition.kind in _LOUD else logging.INFO
    _log.log(logging.DEBUG if transition.kind in _QUIET else level, "%s", line_of(transition))


def line_of(transition: Transition) -> str:
    """One transition as a line: context, what, data, cause; a failure's trace below it."""
    recorded = record_to_json(transition.payload)
    trace = recorded.pop("trace", None)
    shown = {key: value for key, value in recorded.items() if value not in (None, "", [], {})}
    if transition.generation is not None:
        shown["generation"] = transition.generation
    if transition.producer_epoch is not None:
        shown["producer_epoch"] = transition.producer_epoch
    context = ""
    if transition.connector is not None:
        who = "worker" if transition.task is None else f"task-{transition.task}"
        context = f"[{transition.connector}|{who}] "
    what = transition.kind.value.replace("_", " ").capitalize()
    data = ", ".join(f"{key}={_short(value)}" for key, value in shown.items())
    cause = f" ({transition.cause})" if transition.cause else ""
    return f"{context}{what}{f': {data}' if data else ''}{cause}" + (f"\n{trace}" if trace else "")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
