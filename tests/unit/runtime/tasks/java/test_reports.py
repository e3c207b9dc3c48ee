"""What the JVM reports becomes a stimulus of the core, or is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectx.core import messages
from connectx.model.decoding import Unreadable
from connectx.model.ids import TaskId
from connectx.model.payloads import UNKNOWN, SourceRange
from connectx.model.states import TargetState
from connectx.runtime.tasks.java.reports import Answer, Committed, PartitionsAssigned, Ready, report_of

TASK = TaskId("a-b", 7)
OF_TASK = {"task": "a-b-7", "instance": 3}
OF_CONNECTOR = {"connector": "a-b", "instance": 3}
REPORTS: list[tuple[dict[str, Any], object]] = [
    ({"report": "Ready"}, Ready()),
    ({"report": "Answer", "id": 1, "value": {"a": [1]}}, Answer(1, {"a": [1]})),
    ({"report": "Answer", "id": 1, "error": "no", "status": 400}, Answer(1, None, "no", 400)),
    (
        {"report": "ConnectorStarted", "state": "PAUSED", "version": None, **OF_CONNECTOR},
        messages.ConnectorStarted("a-b", 3, TargetState.PAUSED),
    ),
    (
        {"report": "TaskConfigsGenerated", "task_configs": [{"a": "b", "c": None}], **OF_CONNECTOR},
        messages.TaskConfigsGenerated("a-b", 3, ({"a": "b", "c": None},)),
    ),
    ({"report": "TaskPrepared", "version": "1", **OF_TASK}, messages.TaskPrepared(TASK, 3, "1")),
    (
        {"report": "TaskFailed", "trace": "x", "fenced": True, **OF_TASK},
        messages.TaskFailed(TASK, 3, "x", fenced=True),
    ),
    ({"report": "TopicUsed", "task": "a-b-7", "topic": "t"}, messages.TopicUsed(TASK, "t")),
    (
        {
            "report": "Committed",
            "records": 2,
            "transaction": True,
            "offsets": [
                {"partition": {"f": "x"}, "offset": {"p": 1}},
                {"partition": {"f": "y"}, "from": None, "offset": {"p": 2}},
            ],
            **OF_TASK,
        },
        Committed(
            TASK,
            3,
            2,
            transaction=True,
            offsets=(SourceRange({"f": "x"}, {"p": 1}, UNKNOWN), SourceRange({"f": "y"}, {"p": 2}, None)),
        ),
    ),
    (
        {"report": "Committed", "records": 2, "transaction": False, "ends": {"t-0": 5}, **OF_TASK},
        Committed(TASK, 3, 2, transaction=False, ends={"t-0": 5}),
    ),
    ({"report": "PartitionsAssigned", "partitions": ["t-0"], **OF_TASK}, PartitionsAssigned(TASK, 3, ("t-0",))),
]


@pytest.mark.parametrize(("line", "report"), REPORTS, ids=lambda value: type(value).__name__)
def test_a_report_is_a_stimulus(line: dict[str, Any], report: object) -> None:
    assert report_of(json.dumps(line).encode()) == report


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff",
        b"{}",
        b'{"report": 1}',
        b'{"report": ["Ready"]}',
        b'{"report": "PrepareTask", "task": "a-0", "instance": 1}',
        b'{"report": "TaskStopped", "task": "a", "instance": 1}',
        b'{"report": "TaskStopped", "task": "a-0"}',
        b'{"report": "TaskStopped", "task": "a-0", "instance": true}',
        b'{"report": "ConnectorStarted", "connector": "a", "instance": 1, "state": "GONE"}',
        b'{"report": "Committed", "task": "a-0", "instance": 1, "records": 1e99, "transaction": true}',
        b"[" * 100_000,
    ],
)
def test_any_other_line_is_refused(line: bytes) -> None:
    assert isinstance(report_of(line), Unreadable)
