"""Lines between a worker's process and its owner: whole ones arrive in order, the torn last one never."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.model.causes import TakenOver
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.payloads import FencedBy
from connectx.model.states import State
from connectx.runtime.process.wire import (
    Lines,
    News,
    encode,
    metrics_content,
    metrics_of,
    transition_content,
    transition_of,
)
from connectx.spark.remote import with_params
from tests.support.histories import transition


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_lines_are_put_together_from_any_pieces_and_a_torn_one_is_dropped(size: int) -> None:
    sent: list[dict[str, Any]] = [
        {"kind": "view", "view": {"state": "stable", "text": "zwölf\nline ends\r\n"}},
        {"kind": "done", "id": 1},
    ]
    data = b"".join(encode(News(str(line.pop("kind"))), **line) for line in [dict(line) for line in sent])
    torn = encode(News.EVENT, transition={"kind": "task_ended"})[:-1]
    lines, got = Lines(), []
    for start in range(0, len(data + torn), size):
        got += lines.feed((data + torn)[start : start + size])
    assert got == sent


def test_a_transition_survives_the_way() -> None:
    recorded = transition(EventKind.TASK_STATE, "orders", 0, 3, 7, "it began", {"state": "RUNNING", "instance": 2})
    (line,) = Lines().feed(encode(News.EVENT, transition=transition_content(recorded)))
    assert transition_of(line["transition"]) == recorded


def test_a_file_name_that_is_no_utf8_survives_the_way() -> None:
    recorded = transition(EventKind.TASK_STATE, cause=b"/data/caf\xe9.txt".decode(errors="surrogateescape"))
    (line,) = Lines().feed(encode(News.EVENT, transition=transition_content(recorded)))
    assert transition_of(line["transition"]) == recorded


def test_a_cause_arrives_with_its_type() -> None:
    why = TakenOver("127.0.0.1:8083", TaskId("a", 1), 3, 4, State.RUNNING, None)
    recorded = Transition(FencedBy(known=True, by="127.0.0.1:8083"), "a", 1, why=why)
    (line,) = Lines().feed(encode(News.EVENT, transition=transition_content(recorded)))
    assert transition_of(line["transition"]) == recorded


def test_live_numbers_survive_the_way() -> None:
    metrics: dict[TaskId, dict[str, object]] = {TaskId("b-c", 1): {"records": 3}, TaskId("a", 0): {"lag": None}}
    (line,) = Lines().feed(encode(News.TASK_METRICS, metrics=metrics_content(metrics)))
    assert metrics_of(line["metrics"]) == metrics


def test_a_spark_address_keeps_its_own_parameters() -> None:
    assert with_params("sc://h:1", session_id="s") == "sc://h:1/;session_id=s"
    assert with_params("sc://h:1/;token=t", session_id="s") == "sc://h:1/;token=t;session_id=s"
    assert with_params("sc://h:1/;user_id=me", user_id="you") == "sc://h:1/;user_id=me"
