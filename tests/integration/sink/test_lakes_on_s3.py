"""Sinks of tables in files on an S3 server that checks signatures and creates objects exclusively."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyarrow import fs

from connectx.connectors.lake.delta import DeltaSink
from connectx.connectors.lake.iceberg import IcebergSink
from connectx.connectors.lake.parquet import ParquetSink
from connectx.connectors.lake.task import LakeSink
from connectx.connectors.shared.errors import LakeAccessError, LakeError, LakeStorageError, LakeUnavailableError
from connectx.connectors.shared.storage import options
from connectx.connectors.spark.delta import DeltaLog
from connectx.connectors.spark.iceberg import IcebergLog
from connectx.core.replies import TaskState
from connectx.model.events import EventKind
from connectx.rest.client import RestClient
from connectx.spark.sessions import SparkProvider
from tests.support.clusters import MakeCluster, owner_of
from tests.support.lake import Lake, batch, partition, refusal, rows, write
from tests.support.profiles import JSON, QUICK
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, catalog, s3_server, storage
from tests.support.spark_pages import shown_by_spark
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

Make = Callable[..., Any]
SINKS: Mapping[str, type[LakeSink]] = {
    "parquet": ParquetSink,
    "partitioned": ParquetSink,
    "delta": DeltaSink,
    "iceberg": IcebergSink,
}
UPSERT = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "account"}
PARTITIONS, ACCOUNTS = 4, 20


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.files().create_dir("lake")
        yield server


@pytest.fixture
def lakes(s3: S3Server, tmp_path: Path) -> Lakes:
    return Lakes(s3, tmp_path)


class Lakes:
    """A lake of each format in a folder of the bucket that only this test uses."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self.server = server
        self._folder = folder
        self._files = server.files()
        self.secret = SECRET_KEY

    def hide_secret(self) -> None:
        """Let configurations name a file with the secret."""
        (self._folder / "secrets").write_text(f"key={SECRET_KEY}\n")
        self.secret = f"${{file:{self._folder / 'secrets'}:key}}"

    def config(self, name: str, bucket: str = "lake", **changed: str) -> dict[str, str]:
        """Settings of a sink; `changed` has `endpoint` and `secret`."""
        place = f"s3://{bucket}/{self._folder.name}/{name}"
        endpoint, secret = changed.get("endpoint", self.server.endpoint), changed.get("secret", self.secret)
        if name.startswith("iceberg"):
            given = catalog(
                self.server, self._folder / f"{name}.db", place, endpoint=endpoint, secret_access_key=secret
            )
        else:
            given = {"path": place, **storage(self.server, aws_endpoint=endpoint, aws_secret_access_key=secret)}
        if name == "partitioned":
            given["partition.by"] = "name"
        return {"connector.class": SINKS[name.partition("-")[0]].__name__, **given}

    def lake(self, name: str, **changed: str) -> Lake:
        """Tasks of a sink without Kafka."""
        return Lake(SINKS[name].Task, self.config(name, **changed))  # type: ignore[attr-defined]

    def rows(self, name: str, topic: str) -> list[dict[str, Any]]:
        """Rows of a table, as Arrow's S3 client and Parquet reader read the files that belong to it."""
        import pyarrow.parquet as pq

        tables = [pq.read_table(path, filesystem=self._files, partitioning=None) for path in self.files(name, topic)]
        return [row for table in tables for row in table.to_pylist()]

    def files(self, name: str, topic: str) -> list[str]:
        """The data files of a table."""
        folder = f"lake/{self._folder.name}/{name}/{topic}"
        if name.startswith("iceberg"):
            from pyiceberg.catalog import load_catalog
            from pyiceberg.exceptions import NoSuchTableError
            from sqlalchemy.exc import OperationalError

            given = options(
                {**self.config(name), "iceberg.catalog.s3.secret-access-key": SECRET_KEY}, "iceberg.catalog."
            )
            try:
                tasks = load_catalog("iceberg", **given).load_table(f"default.{topic}").scan().plan_files()
            except (NoSuchTableError, OperationalError):  # the sink makes the catalog's tables at the same time
                return []
            return [task.file.file_path.removeprefix("s3://") for task in tasks]
        if not name.startswith("delta"):
            return [path for path in self._listed(folder, ".parquet") if "/_" not in path.removeprefix(folder)]
        found: dict[str, None] = {}
        for log in self._listed(f"{folder}/_delta_log", ".json"):
            for action in map(json.loads, self._files.open_input_file(log).read().decode().splitlines()):
                if "add" in action:
                    found[action["add"]["path"]] = None
                if "remove" in action:
                    found.pop(action["remove"]["path"], None)
        return [f"{folder}/{path}" for path in found]

    def _listed(self, folder: str, suffix: str) -> list[str]:
        selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
        return sorted(info.path for info in self._files.get_file_info(selector) if info.path.endswith(suffix))


@pytest.mark.rule("618.8.3", "always.8")
@pytest.mark.parametrize("name", SINKS)
def test_a_zombies_commit_is_refused_and_its_successor_continues(lakes: Lakes, name: str) -> None:
    lake = lakes.lake(name)
    write(lake.opened(partition()), batch(0, rows(1, 2)))
    zombie, successor = lake.opened(partition()), lake.opened(partition())
    zombie.put(batch(2, rows(3, 4)))
    write(successor, batch(2, rows(3)))
    assert refusal(zombie.flush).committed == {partition(): 3}
    write(successor, batch(3, rows(4)))
    assert lake.task().open([partition()]) == {partition(): 4}
    assert sorted(row["id"] for row in lakes.rows(name, "rows")) == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_files_of_executors_are_added_or_merged(lakes: Lakes, name: str) -> None:
    lake = lakes.lake(name)
    upserts: dict[str, Any] = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"}
    task = lake.opened(partition(), **upserts)
    write(task, batch(0, rows(1, 2)))
    for first, given in ((2, rows(3, 4)), (4, [*rows(5), {"id": 3, "name": "a/b %"}]), (6, rows(6))):
        staged = lake.task(**upserts).stage(
            task.plan(f"job-{first}", "rows"), f"job-{first}", iter([batch(first, given)])
        )
        task.commit(f"job-{first}", {partition(): (first, first + len(given))}, [*staged])
    found = sorted((row["id"], row["name"]) for row in lakes.rows(name, "rows"))
    assert found == [(at, "a/b %" if at == 3 else f"row {at}") for at in range(1, 7)]


@pytest.mark.rule("618.8.3", "always.8")
@pytest.mark.parametrize("name", SINKS)
def test_of_tasks_that_commit_at_the_same_time_one_is_served(lakes: Lakes, name: str) -> None:
    lake = lakes.lake(name)
    write(lake.opened(partition()), batch(0, rows(0)))
    tasks = [lake.opened(partition()) for _ in range(4)]
    for number, task in enumerate(tasks):
        task.put(batch(1, rows(*range(1, 2 + number))))
    with ThreadPoolExecutor(len(tasks)) as pool:
        results = [pool.submit(task.flush) for task in tasks]
    assert [result.exception() is None for result in results].count(True) == 1
    (served,) = [number for number, result in enumerate(results) if result.exception() is None]
    assert sorted(row["id"] for row in lakes.rows(name, "rows")) == [*range(2 + served)]


@pytest.mark.parametrize(
    ("changed", "expected", "sentence"),
    [
        (
            {"secret": "wrong"},
            LakeAccessError,
            r"the storage refused the request \((403 SignatureDoesNotMatch|ACCESS_DENIED)\)\. "
            r"Correct the credentials, .* in `(storage|iceberg\.catalog)\.\*`, and restart the task\.$",
        ),
        (
            {"bucket": "no-such-bucket"},
            LakeStorageError,
            r"the bucket does not exist \((404 NoSuchBucket|NO_SUCH_BUCKET)\)\. Correct `(path|iceberg\.catalog\.\*)`",
        ),
    ],
)
@pytest.mark.parametrize("name", SINKS)
def test_settings_that_the_store_refuses_are_named_and_not_tried_again(
    lakes: Lakes, name: str, changed: Mapping[str, str], expected: type[LakeError], sentence: str
) -> None:
    if name == "iceberg" and "secret" in changed:
        write(lakes.lake(name).opened(partition()), batch(0, rows(1)))  # a catalog elsewhere is asked first
    with pytest.raises(expected, match=sentence) as caught:
        write(lakes.lake(name, **changed).opened(partition()), batch(0, rows(1)))
    assert not {SECRET_KEY, ACCESS_KEY, "wrong"} & set(str(caught.value).split())


def test_an_endpoint_that_does_not_answer_is_tried_again(lakes: Lakes) -> None:
    write(lakes.lake("iceberg").opened(partition()), batch(0, rows(1)))

    def sentence(name: str) -> str:
        with pytest.raises(LakeUnavailableError) as caught:
            lakes.lake(name, endpoint="http://127.0.0.1:1").opened(partition())
        assert caught.value.retriable
        return str(caught.value)

    with ThreadPoolExecutor(3) as pool:
        for name, text in zip(SINKS, pool.map(sentence, ("parquet", "delta", "iceberg")), strict=False):
            assert "cannot be reached: " in text, name
            assert "The task tries again; if this lasts, check the endpoint in `" in text, name


@pytest.mark.rule("618.8.3", "always.8")
@pytest.mark.parametrize("name", ["parquet", "delta", "iceberg"])
def test_executors_write_to_the_store_and_spark_shows_no_secret(
    lakes: Lakes,
    name: str,
    sink_task: Make,
    produce: Make,
    topic: Make,
    spark_provider: SparkProvider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    spark_provider.task_session()  # starts Spark, if no test has
    lakes.hide_secret()
    source = topic(f"stored-{name}")
    config = {**lakes.config(name), "topics": source, "flush.interval.ms": "200", "bulk.mode": "always", **JSON}
    produce(source, [b'{"id":0}'])
    task = sink_task(f"stored-{name}", config).begin()

    def ids() -> list[int]:
        return sorted(row["id"] for row in lakes.rows(name, source))

    until(lambda: ids() == [0], "the first row")
    produce(source, [json.dumps({"id": number}).encode() for number in range(1, 2_001)])
    until(lambda: task.recorded(EventKind.BULK_STAGED), "a job on executors")
    until(lambda: len(ids()) >= 2_001, "the rows of executors")
    assert ids() == [*range(2_001)]
    assert sum(event.data["records"] for event in task.recorded(EventKind.BULK_STAGED)) == 2_000
    shown = shown_by_spark(spark_provider) + caplog.text + str(task.transitions)
    assert SECRET_KEY not in shown


def test_sources_read_tables_of_the_store(lakes: Lakes) -> None:
    for name in ("delta", "iceberg"):
        write(lakes.lake(name).opened(partition()), batch(0, rows(1, 2)))
    table = lakes.config("delta")
    delta = DeltaLog(f"{table['path']}/rows", options(table, "storage."), skip_changes=False)
    given = options(lakes.config("iceberg"), "iceberg.catalog.")
    for log in (delta, IcebergLog("default.rows", "iceberg", given, skip_changes=False)):
        newest = log.newest()
        assert newest is not None
        for commit in (log.contents(newest), log.commit(newest)):
            assert commit.reader is not None
            read = commit.reader.open()
            found = [row["id"] for file in commit.files for part in read(file.entry) for row in part.to_pylist()]
            assert sorted(found) == [1, 2], log.format


@pytest.mark.rule("618.8.3", "always.8")
def test_every_record_is_one_row_when_the_store_restarts_and_a_worker_is_killed(
    lakes: Lakes, make_cluster: MakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    lakes.hide_secret()
    upserts, count = ("delta-upsert", "iceberg-upsert"), 0
    with make_cluster(workers=2, config=QUICK) as cluster:
        topic = create_topic(cluster.bootstrap_servers, "stored", PARTITIONS)
        for name in (*SINKS, *upserts):
            lakes.files(name, topic)  # sets a new catalog up before several clients do
            more = {"topics": topic, "tasks.max": "2", "flush.interval.ms": "500", **JSON}
            cluster.create(name, {**lakes.config(name), **more, **(UPSERT if name in upserts else {})})

        def produce(more: int) -> None:
            nonlocal count
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            for number in range(count, count + more):
                row = json.dumps({"id": number, "account": number % ACCOUNTS, "name": f"n{number % 3}"})
                producer.produce(topic, row.encode(), partition=number % PARTITIONS)
            producer.flush(30)
            count += more

        def ids(name: str) -> list[int]:
            return sorted(row["id"] for row in lakes.rows(name, topic))

        def wanted(name: str) -> list[int]:
            return [*range(count - ACCOUNTS if name in upserts else 0, count)]

        def is_written(name: str) -> bool:
            return ids(name)[-len(wanted(name)) :] == wanted(name)

        def wait_written(what: str) -> None:
            for name in (*SINKS, *upserts):
                until(partial(is_written, name), f"{what} in {name}")

        produce(200)
        wait_written("the first rows")
        lakes.server.stop()
        produce(200)
        lakes.server.start()
        wait_written("the rows that came while the store was away")
        owner_of(cluster, "delta-0").kill()
        produce(200)
        wait_written("the rows after the death of a worker")
        verdict = cluster.check(timeout=WAIT_S)
        assert verdict.answer == "valid", verdict
        assert {checked.connectors: checked.found for checked in verdict.checked} == {
            (name,): len(wanted(name)) for name in (*SINKS, *upserts)
        }
        for name in (*SINKS, *upserts):
            assert ids(name) == wanted(name), name
        for name in ("delta", "iceberg"):
            (done,) = cluster.compact(name)
            assert done.files_after < done.files_before
            assert ids(name) == wanted(name), name
        refused = {**lakes.config("delta", bucket="other"), "topics": topic, **JSON}
        cluster.create("refused", refused)
        client = RestClient([worker.url for worker in cluster.workers if worker.is_healthy])

        def failed() -> list[TaskState]:
            status = client.statuses().get("refused")
            return [task for task in (status["tasks"] if status else ()) if task["state"] == "FAILED"]

        (task,) = until(failed, "the task without a bucket")
        assert "the bucket does not exist (404 NoSuchBucket)" in task["trace"]
        answers = [client.expanded(), client.tasks("iceberg"), client.config("delta"), client.validate(refused)]
        shown = [repr(cluster), cluster._repr_html_(), str(list(cluster.events)), caplog.text, str(verdict)]
        assert SECRET_KEY not in "".join([*map(str, answers), *shown])
        client.close()
