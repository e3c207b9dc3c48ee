"""The assignor gives what Kafka Connect's own gives, round for round over recorded random histories."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.core.group.assignor import AssignorMemory, ClusterAssignment, IncrementalCooperativeAssignor
from connectx.model.group import WorkSet
from connectx.model.ids import TaskId

pytestmark = pytest.mark.rule("always.5")


def _task(text: str) -> TaskId:
    connector, _, number = text.rpartition("-")
    return TaskId(connector, int(number))


def _work(text: str) -> WorkSet:
    connectors, tasks = text.split(";")
    return WorkSet(
        tuple(connectors.split(",")) if connectors else (), tuple(map(_task, filter(None, tasks.split(","))))
    )


def _text(work: WorkSet) -> str:
    return f"{','.join(work.connectors)};{','.join(map(str, work.tasks))}"


def _round(max_delay_ms: int, memory: AssignorMemory, line: str) -> ClusterAssignment:
    now_ms, last_completed_generation, generation, configured, members = line.split("|")
    task_counts = [item.split(":") for item in configured.split(",") if item]
    return IncrementalCooperativeAssignor(max_delay_ms).assign(
        memory,
        WorkSet(tuple(c for c, _ in task_counts), tuple(TaskId(c, t) for c, n in task_counts for t in range(int(n)))),
        {member: _work(claims) for member, claims in (item.split("=") for item in members.split(" "))},
        last_completed_generation=int(last_completed_generation),
        generation=int(generation),
        now_ms=int(now_ms),
    )


def test_every_recorded_round_comes_out_as_in_java() -> None:
    lines = (Path(__file__).parent / "assignor-rounds-of-java-4.3.txt").read_text().splitlines()
    pending = iter(line for line in lines if not line.startswith("#"))
    memory, max_delay_ms, rounds = AssignorMemory(), 0, 0
    for line in pending:
        if line.startswith("new "):
            memory, max_delay_ms = AssignorMemory(), int(line.removeprefix("new "))
            continue
        result = _round(max_delay_ms, memory, line)
        memory = result.memory
        members = [
            f"{member}={_text(result.assigned[member])}/{_text(result.revoked[member])}/{_text(result.owners[member])}"
            for member in result.assigned
        ]
        assert " ".join([str(result.delay_ms), str(result.scheduled_rebalance_ms), *members]) == next(pending), line
        rounds += 1
    assert rounds == 700
