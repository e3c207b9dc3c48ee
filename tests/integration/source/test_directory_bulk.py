"""DirectorySource with executors and with several tasks: the tail's records, exactly once whatever happens."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import connectx as cx
from connectx.model.events import EventKind
from tests.support.clusters import MakeCluster, owner_of
from tests.support.profiles import EOS, JSON
from tests.support.records import read_all
from tests.support.spark_executors import held_while_sending
from tests.support.task_harness import Place
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

ROWS = [{"id": number, "name": f"row {number} ü", "price": None if number % 3 else number / 4} for number in range(900)]


def _csv(folder: Path) -> None:
    plain = "".join(f"{row['id']},{row['name']},{row['price'] or ''}\n" for row in ROWS)
    (folder / "a.csv").write_text(f"id,name,price\n{plain}")
    (folder / "b.csv").write_text('id,name,price\n1,"two\nlines, ""quoted""",2.5\nx,bad,y,more\n')
    (folder / "c.csv.gz").write_bytes(gzip.compress(f"id,name,price\n{plain}".encode()))


def _json(folder: Path) -> None:
    plain = "".join(json.dumps(row) + "\n" for row in ROWS)
    (folder / "a.json").write_text(plain + 'no json\n{"id":"x","new":{"at":1}}\n')
    (folder / "b.json.gz").write_bytes(gzip.compress(plain.encode()))
    (folder / "c.json").write_text("")


def _parquet(folder: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "a.parquet", row_group_size=100)
    pq.write_table(pa.table({"id": ["1", "x"], "name": [["a"], None]}), folder / "b.parquet")


def _avro(folder: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    fields.append({"name": "price", "type": ["null", "double"]})  # type: ignore[dict-item]
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
    for name in "ab":
        with (folder / f"{name}.avro").open("wb") as file:
            fastavro.writer(file, schema, ROWS)


@pytest.mark.parametrize(
    ("kind", "fill", "more"),
    [
        ("csv", _csv, {}),
        ("csv", _csv, {"schema": "id INT, name STRING", "schema.evolution.mode": "rescue"}),
        ("json", _json, {}),
        ("json", _json, {"schema": "id BIGINT, price DOUBLE"}),
        ("parquet", _parquet, {}),
        ("parquet", _parquet, {"schema": "id BIGINT, price DOUBLE", "schema.evolution.mode": "rescue"}),
        ("avro", _avro, {}),
    ],
)
def test_both_lanes_write_the_same_records_in_the_same_order(
    place: Place, tmp_path: Path, kind: str, fill: Callable[[Path], None], more: dict[str, str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    fill(folder)
    files = [path for path in sorted(folder.iterdir()) if path.stat().st_size]
    found: dict[str, Any] = {}
    for mode in ("never", "always"):
        topic = place.create_topic(f"{place.group}-{mode}", partitions=3)
        config = {
            "name": mode, "connector.class": "DirectorySource", "path": str(folder), "topic": topic, "format": kind,
            "key.fields": "id", "bulk.mode": mode, **JSON, "value.converter.schemas.enable": "true",
            "transforms": "head", "transforms.head.type": "InsertHeader", "transforms.head.header": "from",
            "transforms.head.value.literal": "here", "slice.rows": "250", **more,
        }  # fmt: skip
        task = place.task(config).begin()

        def offsets(connector: str = mode) -> list[Any]:
            found = [place.committed({"filename": str(path)}, connector) for path in files]
            return found if all((offset or {}).get("finished") for offset in found) else []

        committed = until(offsets, "the commit of all files")
        task.stop()
        messages = read_all(place.bootstrap_servers, topic)
        keyed = [(m.partition(), m.key(), m.value(), m.headers()) for m in messages if m.key()]
        others = sorted((m.value(), m.headers()) for m in messages if not m.key())  # in any partition
        found[mode] = committed, keyed, others
        assert (task.count("bulk_jobs") > 0) == (mode == "always")
    assert found["always"] == found["never"]
    assert len(found["never"][1]) >= len(ROWS)


def test_a_worker_that_is_killed_during_a_job_loses_and_doubles_no_row_and_moves_no_file_before_its_commit(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    inbox, done = tmp_path / "in", tmp_path / "done"
    inbox.mkdir()
    for file in range(8):
        lines = "".join(f"{file * 500 + row},{'x' * (row % 90)}\n" for row in range(500))
        (inbox / f"{file}.csv").write_text(f"id,pad\n{lines}")
    with make_cluster(workers=2, config=EOS) as cluster:
        topic = create_topic(cluster.bootstrap_servers, "files", 2)
        cluster.create("files", {
            "connector.class": "DirectorySource", "path": str(inbox), "topic": topic, "format": "csv",
            "poll.interval.ms": "50", "cleanup": "move", "cleanup.dir": str(done), "bulk.mode": "always",
            "producer.override.batch.size": "500", **JSON,
        })  # fmt: skip
        with held_while_sending(cluster.bootstrap_servers, topic, 2):
            assert len(list(inbox.iterdir())) == 8
            owner_of(cluster, "files-0").kill()
        read = cx.read_topic(topic, cluster.bootstrap_servers, at_least=4_000, timeout=WAIT_S)
        assert sorted(int(json.loads(value)["id"]) for value in read["value"]) == list(range(4_000))
        until(lambda: len(list(done.iterdir())) == 8, "the files were moved")
        verdict = cluster.check(timeout=WAIT_S)
        assert verdict.answer == "valid", verdict
        assert {checked.place: checked.found for checked in verdict.checked} == {f"topic {topic}": 4_000}


def test_three_tasks_divide_the_files_and_nothing_is_lost_or_doubled_by_a_rebalance_and_by_other_tasks_max(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()

    def arrive(file: int) -> None:
        (tmp_path / f"{file}").write_text("".join(f'{{"id":{file * 200 + row}}}\n' for row in range(200)))
        (tmp_path / f"{file}").rename(inbox / f"{file}.json")

    for file in range(12):
        arrive(file)
    with make_cluster(workers=3, config=EOS) as cluster:
        config = {"connector.class": "DirectorySource", "path": str(inbox), "topic": "files", "format": "json"}
        config |= {"slice.rows": "20", "poll.interval.ms": "50", "tasks.max": "3", **JSON}
        cluster.create("files", config)
        cluster.wait_committed("files", 400, timeout=WAIT_S)
        busy = {event.task for event in cluster.events.find(EventKind.TRANSACTION_COMMITTED, connector="files")}
        assert busy == {0, 1, 2}
        owner_of(cluster, "files-1").kill()
        arrive(12)
        cluster.wait_committed("files", 1_200, timeout=WAIT_S)
        cluster["files"].config.update({"tasks.max": "2"})
        arrive(13)
        cluster.wait_committed("files", 2_000, timeout=WAIT_S)
        cluster["files"].config.update({"tasks.max": "1"})
        arrive(14)
        read = cx.read_topic("files", cluster.bootstrap_servers, at_least=3_000, timeout=WAIT_S)
        assert sorted(int(json.loads(value)["id"]) for value in read["value"]) == list(range(3_000))
        verdict = cluster.check(timeout=WAIT_S)
        assert verdict.answer == "valid", verdict
