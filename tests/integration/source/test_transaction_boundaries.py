"""Transaction boundaries on real Kafka (KIP-618): connector, interval, and records that are dropped on the way."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectx.core.messages import TaskFailed
from connectx.core.source.messages import BOTH_ASKED
from connectx.model.configdef import ConfigDef
from connectx.model.events import EventKind
from connectx.model.source_offsets import SourceOffset
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.slices import Slice
from connectx.plugins.tasks import SourceTask
from tests.support.profiles import dotted
from tests.support.records import read_all
from tests.support.task_harness import Place, Task
from tests.support.waiting import until

pytestmark = pytest.mark.rule("618.6.3")

INTEGERS = "org.apache.kafka.connect.converters.IntegerConverter"
Ask = Callable[[Any], object]


class Scripted(SourceConnector):
    """Polls what the test wrote down: values of each slice, and what to ask of the transaction with it."""

    config = ConfigDef()

    @classmethod
    def can_define_transaction_boundaries(cls, config: Any) -> bool | None:
        return True

    class Task(SourceTask):
        script: list[tuple[list[Any], Ask]] = []  # noqa: RUF012
        topic = ""
        contexts: list[Any] = []  # noqa: RUF012

        def poll(self, spark: Any, offset: SourceOffset | None) -> Slice | None:
            self.contexts.append(self.context.transaction)
            at = int(offset["slice"]) if offset and "slice" in offset else 0
            if at >= len(self.script):
                return None
            values, ask = self.script[at]
            ask(self.context.transaction)
            return Slice(pa.table({"value": values}), {"slice": at + 1}, topic=self.topic)

    task_class = Task


def nothing(transaction: Any) -> None:
    """Asks for nothing."""


@pytest.fixture
def scripted(place: Place) -> Callable[..., Task]:
    """A task over a script, with transaction.boundary=connector unless told otherwise."""
    name = place.plugins.register(Scripted)
    place.create_topic(topic(place))

    def make(script: list[tuple[list[Any], Ask]], instance: int = 1, **more: str) -> Task:
        Scripted.Task.script, Scripted.Task.topic, Scripted.Task.contexts = script, topic(place), []
        config = {"connector.class": name, "transaction.boundary": "connector"}
        return place.task({**config, **dotted(more)}, instance=instance)

    return make


def topic(place: Place) -> str:
    return f"{place.group}-t"


def integers(place: Place) -> list[int]:
    records = read_all(place.bootstrap_servers, topic(place))
    return [struct.unpack(">i", record.value())[0] for record in records]


def test_boundary_connector_commits_and_aborts_behind_slices_and_rows_where_the_task_says(
    place: Place, scripted: Callable[..., Task]
) -> None:
    def behind_rows(transaction: Any) -> None:
        transaction.commit_transaction(0, {"row": 1})
        transaction.abort_transaction(1, {"row": 2})

    script = [
        (["a", "b"], nothing),
        (["c", "d", "e"], behind_rows),
        (["f"], lambda transaction: transaction.commit_transaction()),
        (["g", "h"], lambda transaction: transaction.abort_transaction()),
    ]
    task = scripted(script).begin()

    def has_ended() -> bool:
        assert [said.trace for said in task.stimuli if isinstance(said, TaskFailed)] == []
        return place.committed({}) == {"slice": 4}

    until(has_ended, "the offset behind the last slice")
    assert place.wait_for_values(topic(place), 5) == ["a", "b", "c", "e", "f"]
    until(lambda: len(commits(task)) == 4, "the last commit in the history")
    committed = [(t.data["records"], t.data["offsets"][0]["offset"]) for t in commits(task)]
    assert committed == [(3, {"row": 1}), (0, {"row": 2}), (2, {"slice": 3}), (0, {"slice": 4})]
    aborted = [t.data for t in task.recorded(EventKind.TRANSACTION_ABORTED)]
    assert aborted == [{"records": n, "reason": "asked for by the task"} for n in (1, 2)]
    task.runner.kill()
    again = scripted([*script, (["i"], lambda transaction: transaction.commit_transaction(0))], 2).begin()
    assert place.wait_for_values(topic(place), 6) == ["a", "b", "c", "e", "f", "i"]
    again.stop()


def commits(task: Task) -> list[Any]:
    return task.recorded(EventKind.TRANSACTION_COMMITTED)


def test_boundary_connector_commits_at_a_stop_only_what_the_task_asked_for(
    place: Place, scripted: Callable[..., Task]
) -> None:
    task = scripted([(["a"], nothing)]).begin()
    until(lambda: place.values(topic(place), "read_uncommitted") == ["a"], "the record in its open transaction")
    task.stop()
    (aborted,) = task.recorded(EventKind.TRANSACTION_ABORTED)
    assert aborted.data == {"records": 1, "reason": "stopped before the task asked for a commit"}
    assert (place.values(topic(place)), place.committed({})) == ([], None)
    again = scripted([(["a"], lambda transaction: transaction.commit_transaction())], 2).begin()
    assert place.wait_for_values(topic(place), 1) == ["a"]
    again.stop()


def test_commit_and_abort_of_one_transaction_fail_the_task(place: Place, scripted: Callable[..., Task]) -> None:
    def both(transaction: Any) -> None:
        transaction.commit_transaction(0)
        transaction.abort_transaction(0)

    assert BOTH_ASKED in scripted([(["a"], both)]).begin_and_fail().trace
    assert (place.values(topic(place)), place.committed({})) == ([], None)


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda transaction: transaction.commit_transaction(2, {"row": 3}), "row 2 is named in a slice of 2 rows"),
        (lambda transaction: transaction.commit_transaction(0), "row 0 of 2 is named without the source offset"),
    ],
)
def test_a_boundary_that_the_slice_does_not_have_fails_the_task(
    scripted: Callable[..., Task], ask: Ask, problem: str
) -> None:
    assert problem in scripted([(["a", "b"], ask)]).begin_and_fail().trace


def test_only_a_task_with_boundary_connector_gets_a_transaction_context(
    place: Place, scripted: Callable[..., Task]
) -> None:
    task = scripted([(["a"], nothing)], transaction_boundary="poll").begin()
    assert place.wait_for_values(topic(place), 1) == ["a"]
    task.stop()
    assert set(Scripted.Task.contexts) == {None}


def test_a_boundary_counts_behind_a_record_that_is_dropped_and_skipped_records_are_counted_exactly(
    place: Place, scripted: Callable[..., Task]
) -> None:
    script = [([1, 2**40, 2], lambda transaction: transaction.commit_transaction(1, {"row": 2}))]
    task = scripted(script, value_converter=INTEGERS, errors_tolerance="all").begin()
    until(lambda: integers(place) == [1], "the record before the one that was dropped")
    assert place.committed({}) == {"row": 2}
    (skipped,) = task.recorded(EventKind.RECORDS_SKIPPED)
    assert skipped.data["records"] == 1
    assert "IntegerConverter cannot write some values" in skipped.data["reason"]
    task.stop()


@pytest.mark.rule("618.6.8")
def test_with_tolerance_only_the_rows_that_a_converter_refuses_are_skipped_and_their_offset_goes_with_the_next_record(
    place: Place, scripted: Callable[..., Task]
) -> None:
    script = [([2**40], nothing), ([1, 2**41, None, 2, 2**42], nothing), ([2**43], nothing)]
    task = scripted(script, value_converter=INTEGERS, errors_tolerance="all", transaction_boundary="poll").begin()
    until(lambda: sum(t.data["records"] for t in task.recorded(EventKind.RECORDS_SKIPPED)) == 4, "four skipped rows")
    values = [record.value() for record in read_all(place.bootstrap_servers, topic(place))]
    assert values == [struct.pack(">i", 1), None, struct.pack(">i", 2)]
    assert [t.data["records"] for t in commits(task)] == [3]
    task.stop()
    assert place.committed({}) == {"slice": 2}  # the last slice has nothing but dropped records: no commit of its own


@pytest.mark.rule("618.6.2")
def test_boundary_interval_commits_the_open_transaction_of_a_task_that_has_nothing_to_read(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\n")
    place.create_topic(topic(place))
    interval = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "1500"}
    config = {"connector.class": "FileStreamSource", "file": str(path), "topic": topic(place), **interval}
    task = place.task(config).begin()
    until(lambda: place.values(topic(place), "read_uncommitted") == ["a"], "the record in its open transaction")
    assert place.wait_for_values(topic(place), 1) == ["a"]
    assert place.committed({"filename": str(path)}) == {"position": 2}
    task.stop()
