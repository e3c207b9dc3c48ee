"""The check on real flows: valid of what is right, invalid of what is broken, unknown where it cannot see."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import connectx as cx
from connectx.errors.checks import CheckError, NotValidError, PeekError
from connectx.errors.kafka import TopicMissingError
from connectx.errors.rest import WaitTimeoutError
from connectx.model.events import EventKind
from connectx.verify.check.verdict import HARMLESS, Anomaly, Verdict
from tests.support.profiles import JSON, QUICK
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(spark_provider: SparkProvider) -> Iterator[cx.Cluster]:
    """Exactly-once, two workers; each test uses one flow and deletes it."""
    with cx.Cluster(workers=2, config={**QUICK, "scheduled.rebalance.max.delay.ms": "0"}) as made:
        yield made


class Flow:
    """A file of lines, through a topic, into a file."""

    def __init__(self, cluster: cx.Cluster, folder: Path, **config: str) -> None:
        number = next(_numbers)
        self.cluster = cluster
        self.name, self.topic = f"in{number}", f"t{number}"
        self.source, self.target = folder / "in.txt", folder / "out.txt"
        self.source.touch()
        self.count = 0
        given = {"connector.class": "FileStreamSource", "file": str(self.source), "topic": self.topic, **config}
        self.append(200)
        cluster.create(self.name, given)
        self.sink = cluster.create(
            f"out{number}", {"connector.class": "FileStreamSink", "file": str(self.target), "topics": self.topic}
        )

    def append(self, count: int) -> None:
        with self.source.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(self.count, self.count + count))
        self.count += count

    @property
    def owner(self) -> str:
        """The worker that runs the source task, once it does."""
        task = f"{self.name}-0"

        def running() -> str | None:
            reported = [e for e in self.cluster.events if e.kind is EventKind.TASK_STATE and e.connector == self.name]
            names = [worker.name for worker in self.cluster.workers if task in worker.tasks]
            runs = reported and reported[-1].data["state"] == "RUNNING" and [reported[-1].worker] == names
            return names[0] if runs else None

        return until(running, f"an owner of {task}", WAIT_S)

    def check(self, **wanted: Any) -> Verdict:
        return self.cluster.check(timeout=WAIT_S, **wanted)


@pytest.fixture
def make_flow(cluster: cx.Cluster, tmp_path: Path) -> Iterator[Callable[..., Flow]]:
    yield lambda **config: Flow(cluster, tmp_path, **config)
    for connector in cluster.connectors:
        connector.delete()


def reported(verdict: Verdict) -> dict[str, int]:
    return {str(f.anomaly): f.count for f in verdict.findings if f.anomaly not in HARMLESS}


def reasons_of(verdict: Verdict) -> str:
    return "; ".join(verdict.reasons)


def test_before_anything_runs_the_verdict_is_unknown(cluster: cx.Cluster) -> None:
    if not any(e.kind is EventKind.TRANSACTION_COMMITTED for e in cluster.events):
        assert "nothing ran" in cluster.check(timeout=0).sentence
    assert cluster.check(timeout=0).answer == "unknown"


def test_a_clean_flow_is_valid_and_what_is_then_taken_away_or_added_is_found(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    verdict = flow.check()
    assert reasons_of(verdict) == "", verdict
    assert reported(verdict) == {}
    assert {checked.place: (checked.found, checked.expected) for checked in verdict.checked} == {
        f"topic {flow.topic}": (200, 200),
        "file out.txt": (200, 200),
    }
    read = cx.read_topic(flow.topic, flow.cluster.bootstrap_servers, at_least=200)
    assert list(read["value"]) == [f"line {number}" for number in range(200)]
    assert list(read["offset"])[:3] == [0, 1, 2]
    assert read["key"].isna().all()
    with pytest.raises(WaitTimeoutError, match="has 200 records and not 201"):
        cx.read_topic(flow.topic, flow.cluster.bootstrap_servers, at_least=201, timeout=0)
    until(lambda: cluster_has_committed(flow), "the sink's commit")
    lines = flow.target.read_text().splitlines(keepends=True)
    flow.target.write_text("".join(lines[:7] + lines[8:]))
    lost = flow.check()
    assert reported(lost) == {"lost": 1}
    example = lost.findings[0].examples[0]
    assert (example.text, example.partition, example.offset) == (f"line {7}", 0, 7)
    assert example.moment is not None
    assert "which is after it" in example.moment.sentence
    with pytest.raises(NotValidError):
        lost.require_valid()
    flow.target.write_text("".join([*lines, lines[3]]))
    assert reported(flow.check()) == {"duplicated": 1}
    flow.target.write_text("".join([lines[1], lines[0], *lines[2:]]))
    assert reported(flow.check()) == {"reordered": 1}


def test_a_flow_that_goes_on_is_valid_up_to_where_it_was_and_a_failed_sink_is_named(
    cluster: cx.Cluster, tmp_path: Path
) -> None:
    source = cluster.create("steady", {"connector.class": "Generator", "topic": "steady", "rate": "2000"})
    given = {"connector.class": "FileStreamSink", "file": str(tmp_path / "steady.txt"), "topics": "steady"}
    sink = cluster.create("steady-out", given)
    try:
        target = tmp_path / "steady.txt"
        until(lambda: target.exists() and target.stat().st_size > 0, "lines in the target", WAIT_S)
        verdict = cluster.check(timeout=WAIT_S)
        assert reasons_of(verdict) == "", verdict
        assert reported(verdict) == {}
        assert verdict.checked[1].found > 0
        sink.config.update({"file": "/nowhere/steady.txt"})
        sink.wait("FAILED", WAIT_S)
        failed = cluster.check(timeout=WAIT_S)
        assert "because steady-out-0 failed" in "; ".join(failed.reasons)
        shown = repr(failed)
        assert "steady-out-0 failed: The file /nowhere/steady.txt" in shown
        assert "and restart the task" in shown
    finally:
        source.delete()
        sink.delete()


def test_records_rows_and_dead_letters_can_be_looked_at_and_the_latter_sent_again(
    cluster: cx.Cluster, make_flow: Callable[..., Flow], tmp_path: Path
) -> None:
    flow = make_flow()
    until(lambda: flow.target.exists() and flow.target.read_text().count("\n") == 200, "all lines", WAIT_S)
    for name in (flow.topic, flow.name):
        records = cluster.peek(name, 3)
        assert [record.value for record in records] == ["line 197", "line 198", "line 199"]
        assert [record.key for record in records] == [None] * 3
    assert [record.value for record in cluster.peek(flow.topic, where=lambda one: one.value.endswith("99"))] == [
        *("line 99", "line 199"),
    ]
    assert [list(row.values()) for row in cluster.peek(flow.sink.name, 2)] == [["line 198"], ["line 199"]]
    with pytest.raises(TopicMissingError, match=r"The topic nowhere does not exist\."):
        cluster.peek("nowhere")
    with pytest.raises(PeekError, match="has no dead letter queue"):
        cluster.dead_letters(flow.sink.name)
    with pytest.raises(PeekError, match="is not a sink"):
        cluster.dead_letters(flow.name)
    queue = {
        **{"errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{flow.topic}-dead"},
        **{"errors.deadletterqueue.context.headers.enable": "true"},
        **{"errors.deadletterqueue.topic.replication.factor": "1", **JSON},
    }
    given = {"connector.class": "FileStreamSink", "file": str(tmp_path / "read.txt"), "topics": flow.topic}
    cluster.create("strict", {**given, **queue})
    until(lambda: len(cluster.dead_letters("strict", 500)) == 200, "letters", WAIT_S)
    letters = cluster.dead_letters("strict", 500)
    assert (letters[0].raw_value, letters[0].headers["__connect.errors.topic"]) == (b"line 0", flow.topic)
    assert "cannot be read" in letters[0].reason
    until(lambda: cluster.status("strict")["connector"].get("dead_letters") == 200, "their count", WAIT_S)
    assert letters.send_again(lambda value: b'"' + (value or b"") + b'"') == 200
    until(lambda: (tmp_path / "read.txt").read_text().split("\n")[:2] == ["line 0", "line 1"], "them", WAIT_S)


@pytest.mark.parametrize("context", ["true", "false"])
def test_a_dead_letter_is_accounted_for_and_deleted_connectors_are_left_out(
    cluster: cx.Cluster, tmp_path: Path, context: str
) -> None:
    name, source = f"orders-{context}", tmp_path / "orders.txt"
    source.write_text("".join(f'{{"id": {number}, "price": {number * 2}}}\n' for number in range(50)))
    given = {"connector.class": "FileStreamSource", "file": str(source), "topic": name}
    text = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
    reading = cluster.create(f"{name}-in", {**given, **text})
    sink = cluster.create(
        f"{name}-out",
        {
            **{"connector.class": "JdbcSink", "connection.url": f"sqlite:{tmp_path / 'orders.db'}", "topics": name},
            **{"auto.create": "true", "table.name.format": "orders", "errors.tolerance": "all", **JSON},
            **{"errors.deadletterqueue.topic.name": f"{name}-dlq"},
            **{"errors.deadletterqueue.context.headers.enable": context},
        },
    )
    cluster.wait_committed(sink.name, records=50, timeout=WAIT_S)
    with source.open("a") as file:
        file.write('{"id": 50, "price": "free"}\n{"id": 51, "price": 9}\n')
    until(lambda: cluster.status(sink.name)["connector"].get("dead_letters") == 1, "the dead letter", WAIT_S)
    verdict = cluster.check(timeout=WAIT_S, connectors=[reading.name, sink.name])
    assert verdict.answer == "valid", verdict
    assert verdict.sentence.endswith(f"each once and in order; 1 in {name}-dlq.")
    assert [(one.found, one.expected) for one in verdict.checked] == [(52, 52), (51, 51)]
    with pytest.raises(CheckError, match="There is no connector missing; there are "):
        cluster.check(timeout=0, connectors="missing")
    reading.delete()
    left = cluster.check(timeout=WAIT_S)
    assert left.answer == "valid", left
    assert any(f"{name}-in" in note and "deleted" in note for note in left.notes)
    sink.delete()


def test_lines_that_a_file_had_before_are_older_than_the_connector(
    make_flow: Callable[..., Flow], tmp_path: Path
) -> None:
    (tmp_path / "out.txt").write_text("".join(f"line {number}\n" for number in range(200)))
    flow = make_flow()
    verdict = flow.check()
    assert verdict.answer == "valid", verdict
    assert {str(f.anomaly): f.count for f in verdict.findings if f.anomaly is Anomaly.OLDER} == {"older": 200}
    assert flow.target.read_text().count("\n") == 400


def cluster_has_committed(flow: Flow) -> bool:
    committed = [e for e in flow.cluster.events if e.kind is EventKind.OFFSETS_COMMITTED]
    return any(e.connector == flow.sink.name and f"{flow.topic}-0" in e.data["offsets"] for e in committed)


def test_what_transformations_make_of_the_rows_is_what_is_compared(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow(
        **{
            "transforms": "hoist",
            "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.hoist.field": "line",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        }
    )
    verdict = flow.check()
    assert reasons_of(verdict) == "", verdict
    assert reported(verdict) == {}


def test_a_kill_is_survived_and_who_was_fenced_is_said(cluster: cx.Cluster, make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    victim = flow.owner
    cluster.kill(victim)
    flow.append(300)
    verdict = flow.check(scenario=["killed", "fenced"])
    cluster.add_worker(WAIT_S)
    assert reported(verdict) == {}
    assert reasons_of(verdict) == "", verdict
    fenced = [f for f in verdict.findings if f.anomaly is Anomaly.FENCED and flow.name in f.connectors]
    assert len(fenced) == 1
    assert f"{victim}'s producer of {flow.name}-0 (epoch 0) is fenced by" in fenced[0].sentence
    assert [checked.found for checked in verdict.checked] == [500, 500]


def test_lag_a_missed_scenario_and_a_history_without_a_topic_are_unknown(
    cluster: cx.Cluster, make_flow: Callable[..., Flow], tmp_path: Path
) -> None:
    flow = make_flow()
    assert reported(flow.check()) == {}
    flow.sink.pause()
    cluster.wait(flow.sink.name, "PAUSED", WAIT_S)
    flow.append(50)
    until(lambda: cluster.check(timeout=0).checked[0].found == 250, "250 records", WAIT_S)
    late = cluster.check(timeout=0, scenario="partitioned")
    assert late.pending == 50
    assert "50 rows of topic" in late.sentence
    assert "the scenario partitioned was not reached" in late.sentence
    saved = cluster.events.to_jsonl(tmp_path / "history.jsonl")
    assert "no topic and no target was read" in cx.check(saved).sentence
    alone = cx.check(saved, topic=flow.topic, target=flow.target)
    assert alone.answer == "unknown"
    assert alone.pending == 50
    flow.sink.resume()


def test_topic_and_target_can_be_checked_without_a_history(cluster: cx.Cluster, make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    flow.check()
    given: dict[str, Any] = {"topic": flow.topic, "bootstrap_servers": cluster.bootstrap_servers}
    rows = [f"line {number}" for number in range(200)]
    assert reported(cx.check(**given, target=rows)) == {}
    assert reported(cx.check(**given, target=rows[:-1])) == {"lost": 1}
    assert reported(cx.check(**given, target=lambda: [*rows, rows[0]])) == {"duplicated": 1}
    with pytest.raises(TopicMissingError):
        cx.check(topic="nowhere", bootstrap_servers=cluster.bootstrap_servers)
    with pytest.raises(CheckError, match="The address of the Kafka with the topics is unknown"):
        cx.check(topic="t")


class Same(cx.SourceConnector):
    """Ten equal records, by a source that cannot be read again."""

    config = cx.ConfigDef().define("topic", str)

    class Task(cx.SourceTask):
        def poll(self, spark: Any, offset: Any) -> cx.Slice | None:
            return None if offset else cx.Slice(pa.table({"value": ["same"] * 10}), {"n": 10}, self.settings["topic"])


def test_equal_records_of_a_source_that_cannot_be_read_again_are_unknown(
    cluster: cx.Cluster, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow()
    topic = f"same{next(_numbers)}"
    cluster.create(topic, {"connector.class": Same, "topic": topic}).wait("RUNNING", WAIT_S)
    until(lambda: topic in cluster[topic].topics(), "the records", WAIT_S)
    until(lambda: any(e.connector == topic and e.kind is EventKind.TRANSACTION_COMMITTED for e in cluster.events), "")
    verdict = flow.check()
    assert reported(verdict) == {}
    assert f"9 rows in topic {topic} equal another" in "; ".join(verdict.reasons)


def test_rows_of_a_table_are_compared_by_their_values(
    cluster: cx.Cluster, make_flow: Callable[..., Flow], postgres: str
) -> None:
    from adbc_driver_postgresql import dbapi

    make_flow()
    name = f"rows{next(_numbers)}"
    made = {"connector.class": "Generator", "topic": name, "rate": "0", "max.rows": "500", "tasks.max": "2", **JSON}
    with dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} (id bigint, name text, amount double precision)")
        cluster.create(name, made)
        sink = {"connector.class": "PostgresSink", "topics": name, "connection.url": postgres, **JSON}
        cluster.create(f"{name}-out", sink)

        def check() -> Verdict:
            return cluster.check(timeout=WAIT_S)

        found = until(
            lambda: [c for c in check().checked if c.place == f"table {name}" and c.found == 1000], "rows", 90
        )
        assert found[0].expected == 1000
        assert reported(check()) == {}
        cursor.execute(f"DELETE FROM {name} WHERE id = 77")
        verdict = check()
        assert reported(verdict) == {"lost": 1}
        lost = next(finding for finding in verdict.findings if finding.anomaly is Anomaly.LOST)
        assert '"id": "77"' in lost.examples[0].text
        cursor.execute(f"INSERT INTO {name} SELECT * FROM {name} WHERE id < 3")
        assert reported(check()) == {"lost": 1, "duplicated": 3}
        assert reported(cluster.check(timeout=0, key="id")) == {"lost": 1, "duplicated": 3}
        cursor.execute(f"DROP TABLE {name}")
        assert f"The table {name} does not exist" in "; ".join(cluster.check(timeout=0).reasons).replace(
            "${topic}", name
        )


def test_without_exactly_once_a_stalled_zombie_duplicates_and_is_named(
    spark_provider: SparkProvider, tmp_path: Path
) -> None:
    config = {**QUICK, "exactly.once.source.support": "disabled", "offset.flush.interval.ms": "300"}
    with cx.Cluster(workers=2, config=config) as cluster:
        flow = Flow(cluster, tmp_path)
        assert flow.check().require_valid()
        zombie = flow.owner
        cluster.stall(zombie)
        until(lambda: _taken_over(flow, zombie), "the take-over", WAIT_S)
        flow.append(40)
        until(
            lambda: len({e.worker for e in _commits(flow) if _position(e) >= flow.source.stat().st_size}) == 2, "both"
        )
        verdict = flow.check(scenario="stalled")
    assert verdict.answer == "invalid"
    assert reported(verdict) == {"duplicated": 40}
    finding = next(f for f in verdict.findings if f.anomaly is Anomaly.DUPLICATED)
    assert finding.place == f"topic {flow.topic}"
    assert [example.text for example in finding.examples] == [f"line {number}" for number in range(200, 205)]
    assert finding.moments[0].worker == zombie
    assert finding.moments[0].sentence.startswith(f"{zombie}, stalled since ")
    assert f"had taken {flow.name}-0 over at" in finding.moments[0].sentence
    assert "40 records" in finding.moments[0].sentence


def _commits(flow: Flow) -> list[Any]:
    kinds = (EventKind.OFFSETS_COMMITTED, EventKind.TRANSACTION_COMMITTED)
    return [event for event in flow.cluster.events if event.kind in kinds and event.connector == flow.name]


def _position(event: Any) -> int:
    return int(event.data["offsets"][0]["offset"]["position"])


def _taken_over(flow: Flow, zombie: str) -> bool:
    states = [e for e in flow.cluster.events if e.kind is EventKind.TASK_STATE and e.connector == flow.name]
    return any(event.worker != zombie and event.data["state"] == "RUNNING" for event in states)
