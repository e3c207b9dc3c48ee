"""Tasks of JdbcSink without Kafka, and what every database that they write to must do."""

from __future__ import annotations

import base64
import datetime
import decimal
import itertools
import json
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.jdbc.sink import JdbcSink
from connectx.data.connect_schema import DEFAULT
from connectx.errors.databases import TableMismatchError, TableMissingError
from connectx.errors.plugins import RecordRejectedError
from connectx.model.ids import TaskId, TopicPartition
from connectx.plugins.contexts import SinkTaskContext
from connectx.plugins.errors import CommitRefusedError, NotStageableError
from connectx.plugins.slices import SinkBatch
from tests.support.json_records import json_batch
from tests.support.profiles import dotted

FLIGHT = pa.struct([("id", pa.int64()), ("name", pa.string())])
KEY = pa.struct([("id", pa.int64())])
_numbers = itertools.count(1)

Sql = Callable[[str], list[tuple[Any, ...]]]


class Context:
    """What a runner would offer; keeps what was reported."""

    def __init__(self, group_id: str, tolerate: bool) -> None:
        self.group_id = group_id
        self.task = TaskId(group_id.removeprefix("connect-"), 0)
        self.assignment: Sequence[TopicPartition] = ()
        self.reported: list[str] = []
        self.tolerate = tolerate

    def timeout(self, timeout_ms: int) -> None:
        self.retry_in_ms = timeout_ms

    def spark(self) -> Any:
        raise AssertionError("this sink needs no Spark")

    def report(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        if not self.tolerate:
            raise error
        self.reported.append(f"{partition}@{offset}")


class Place:
    """A database, a separate topic, and tasks that write to the topic's table. `quote` is for one name."""

    def __init__(self, url: str, sql: Sql, connector: type[JdbcSink] = JdbcSink, quote: str = '"') -> None:
        self.url, self.sql, self.quote = url, sql, quote
        self.local_time = "timestamp"
        self._connector = connector
        self.topic = f"t{next(_numbers)}"
        self.group = f"connect-{self.topic}"
        self.partition = TopicPartition(self.topic, 0)
        self.tasks: list[JdbcSink.Task] = []

    @property
    def table(self) -> str:
        return f"{self.quote}{self.topic}{self.quote}"

    def create(self, columns: str = "id bigint PRIMARY KEY, name varchar(50)") -> None:
        self.sql(f"CREATE TABLE {self.table} ({columns})")

    def rows(self) -> list[tuple[Any, ...]]:
        return self.sql(f"SELECT * FROM {self.table} ORDER BY 1")

    def offset(self) -> int | None:
        found = self.sql(f"SELECT next_offset FROM connectx_offsets WHERE group_id = '{self.group}'")
        return found[0][0] if found else None

    def task(
        self, given: Mapping[str, str] | None = None, *, tolerate: bool = False, opened: bool = True, **settings: str
    ) -> JdbcSink.Task:
        task = self._connector.Task()
        config = {"connection.url": self.url, **(given or {}), **dotted(settings)}
        task.start(config, Context(self.group, tolerate))
        self.tasks.append(task)
        if opened:
            task.open([self.partition])
        return task

    def batch(
        self,
        start: int,
        values: Sequence[Mapping[str, Any] | None],
        kind: pa.DataType = FLIGHT,
        keys: pa.Array | None = None,
        end: int | None = None,
    ) -> SinkBatch:
        """Values at the offsets from `start` on."""
        count = len(values)
        rows = pa.table(
            {
                "topic": pa.array([self.topic] * count, pa.string()),
                "partition": pa.array([0] * count, pa.int32()),
                "offset": pa.array(range(start, start + count), pa.int64()),
                "timestamp": pa.array([0] * count, pa.int64()),
                "key": pa.nulls(count) if keys is None else keys,
                "value": pa.array(values, kind),
            }
        )
        return SinkBatch(rows, {self.partition: (start, start + count if end is None else end)})

    def put_json(self, task: JdbcSink.Task, start: int, *records: tuple[bytes | None, bytes | None]) -> list[str]:
        """Put records of JSON without schemas; why some of them cannot be read."""
        batch, problems = json_batch(self._connector, task, task.settings, start, records, self.partition)
        task.put(batch)
        return problems

    def close(self) -> None:
        for task in self.tasks:
            task.stop()


@contextmanager
def postgres_place(uri: str, connector: type[JdbcSink] = JdbcSink) -> Iterator[Place]:
    """PostgreSQL at this URI."""
    from adbc_driver_postgresql import dbapi

    connection = dbapi.connect(uri, autocommit=True)

    def sql(statement: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    made = Place(uri, sql, connector)
    yield made
    made.close()
    connection.close()


class BulkSink(JdbcSink):
    """A JdbcSink whose tasks put each batch as executors and the worker do in bulk, in pieces of two records."""

    class Task(JdbcSink.Task):
        """Falls back to the tail as the loop does."""

        def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
            """As of JdbcSink."""
            super().start(config, context)
            self._in_bulk = JdbcSink.bulk_obstacle(config) is None

        def put(self, batch: SinkBatch) -> None:
            """Stage and commit, or put."""
            token, worker = f"job-{next(_numbers)}", self.context
            assert isinstance(worker, Context)
            try:
                if not self._in_bulk:
                    raise NotStageableError("never")
                plan = pickle.loads(pickle.dumps(self.plan(token, next(iter(batch.ranges)).topic)))
                self.context = executor = Context(worker.group_id, worker.tolerate)
                staged = pickle.loads(pickle.dumps(self.stage(plan, token, iter(pieces(batch)))))
                self.commit(token, batch.ranges, staged)
                worker.reported += executor.reported
            except NotStageableError:
                self.context = worker
                self.discard(token, [])
                super().put(batch)
            except Exception:
                self.discard(token, [])
                raise
            finally:
                self.context = worker


def staging_tables(place: Place) -> list[tuple[str]]:
    """Names of those that tasks of this place have left; their comments name the task."""
    return place.sql(
        "SELECT relname::text FROM pg_class WHERE starts_with(relname, 'connectx_stage_') "
        f"AND starts_with(obj_description(oid), 'Rows of {place.topic}-0 ')"
    )


def pieces(batch: SinkBatch) -> Iterator[SinkBatch]:
    """Batches of two records, as executors read them."""
    ((partition, (first, end)),) = batch.ranges.items()
    for at in range(0, batch.rows.num_rows, 2):
        stop = end if at + 2 >= batch.rows.num_rows else first + at + 2
        yield SinkBatch(batch.rows.slice(at, 2), {partition: (first + at, stop)})


@contextmanager
def mariadb_place(url: str, connector: type[JdbcSink] = JdbcSink) -> Iterator[Place]:
    """MariaDB at this URL."""
    import pymysql

    socket = url.partition("unix_socket=")[2]
    connection = pymysql.connect(unix_socket=socket, user="root", database="shop", autocommit=True)

    def sql(statement: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    made = Place(url, sql, connector, quote="`")
    made.local_time = "datetime(6)"
    yield made
    made.close()
    connection.close()


def reported(task: JdbcSink.Task) -> list[str]:
    """What it reported to its context."""
    assert isinstance(task.context, Context)
    return task.context.reported


def flights(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"flight {number}"} for number in ids]


def keyed(*ids: int) -> pa.Array:
    return pa.array([{"id": number} for number in ids], KEY)


NAME = pa.struct([("name", pa.string())])
UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}


class Contract:
    """Rules that hold for every database. A module with a fixture `place` derives a test class from it."""

    def test_rows_and_the_offset_after_them_are_one_transaction(self, place: Place) -> None:
        place.create()
        task = place.task()
        task.put(place.batch(0, flights(1, 2), end=4))
        assert place.rows() == [(1, "flight 1"), (2, "flight 2")]
        assert place.offset() == 4
        assert place.task(opened=False).open([place.partition]) == {place.partition: 4}

    def test_a_batch_that_starts_elsewhere_is_refused_and_nothing_is_written(self, place: Place) -> None:
        place.create()
        task, zombie = place.task(), place.task()
        task.put(place.batch(0, flights(1, 2)))
        with pytest.raises(CommitRefusedError, match=f"{place.partition} is at 2, the batch starts at 0") as refused:
            zombie.put(place.batch(0, flights(7)))
        assert refused.value.committed == {place.partition: 2}
        assert place.rows() == [(1, "flight 1"), (2, "flight 2")]
        task.put(place.batch(2, flights(3)))
        assert place.offset() == 3

    def test_of_two_first_writers_only_one_writes(self, place: Place) -> None:
        place.create("id bigint, name varchar(50)")
        tasks = [place.task(), place.task()]
        outcomes: list[str] = []

        def write(task: JdbcSink.Task) -> None:
            while True:
                try:
                    task.put(place.batch(0, flights(1, 2, 3)))
                    outcomes.append("written")
                    return
                except CommitRefusedError:
                    outcomes.append("refused")
                    return
                except Exception as error:
                    if not getattr(error, "retriable", False):
                        outcomes.append(repr(error))
                        return

        threads = [threading.Thread(target=write, args=(task,)) for task in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(outcomes) == ["refused", "written"]
        assert len(place.rows()) == 3

    def test_a_batch_without_rows_moves_the_offset(self, place: Place) -> None:
        place.create()
        place.task().put(place.batch(0, [], end=7))
        assert place.offset() == 7

    def test_upsert_replaces_rows_and_of_several_in_a_batch_the_last_wins(self, place: Place) -> None:
        place.create()
        task = place.task(insert_mode="upsert", pk_mode="record_value", pk_fields="id")
        task.put(place.batch(0, flights(1, 2)))
        task.put(place.batch(2, [{"id": 2, "name": "old"}, {"id": 3, "name": "new"}, {"id": 2, "name": "newest"}]))
        assert place.rows() == [(1, "flight 1"), (2, "newest"), (3, "new")]

    def test_upsert_where_no_index_has_the_key_fails_with_a_next_step(self, place: Place) -> None:
        place.create("id bigint, name varchar(50)")
        task = place.task(insert_mode="upsert", pk_mode="record_value", pk_fields="id")
        with pytest.raises(TableMismatchError, match="restart the task"):
            task.put(place.batch(0, flights(1)))
        assert place.rows() == []

    def test_update_changes_rows_that_exist_and_adds_none(self, place: Place) -> None:
        place.create()
        place.sql(f"INSERT INTO {place.table} VALUES (1, 'a'), (2, 'b')")
        task = place.task(insert_mode="update", pk_mode="record_value", pk_fields="id")
        task.put(place.batch(0, [{"id": 2, "name": "x"}, {"id": 9, "name": "y"}, {"id": 2, "name": "z"}]))
        assert place.rows() == [(1, "a"), (2, "z")]
        assert place.offset() == 3

    def test_a_tombstone_deletes_the_row_of_its_key_and_the_last_record_of_a_key_counts(self, place: Place) -> None:
        place.create()
        task = place.task(UPSERT)
        names = [{"name": "a"}, {"name": "b"}, None, {"name": "c"}, None, None]
        task.put(place.batch(0, names, NAME, keyed(1, 2, 2, 3, 3, 4)))
        assert place.rows() == [(1, "a")]
        task.put(place.batch(6, [None, {"name": "again"}, None], NAME, keyed(1, 3, 7)))
        assert place.rows() == [(3, "again")]
        assert place.offset() == 9

    def test_inserts_and_deletes_of_one_key_happen_in_the_order_of_the_records(self, place: Place) -> None:
        place.create()
        task = place.task(pk_mode="record_key", pk_fields="id", delete_enabled="true")
        names = [{"name": "a"}, {"name": "b"}, None, {"name": "c"}, None]
        task.put(place.batch(0, names, NAME, keyed(1, 2, 1, 1, 2)))
        assert place.rows() == [(1, "c")]

    def test_an_update_does_not_bring_back_what_a_tombstone_of_the_batch_deleted(self, place: Place) -> None:
        place.create()
        place.sql(f"INSERT INTO {place.table} VALUES (1, 'a'), (2, 'b')")
        task = place.task({**UPSERT, "insert.mode": "update"})
        task.put(place.batch(0, [None, {"name": "x"}, {"name": "y"}], NAME, keyed(1, 1, 2)))
        assert place.rows() == [(2, "y")]

    def test_a_tombstone_is_refused_where_deletes_are_off(self, place: Place) -> None:
        place.create()
        with pytest.raises(RecordRejectedError, match=f"offset 1 of {place.partition}.*tombstone.*delete.enabled=true"):
            place.task().put(place.batch(0, [*flights(1), None]))
        tolerant = place.task(tolerate=True)
        tolerant.put(place.batch(0, [*flights(1), None]))
        assert place.rows() == [(1, "flight 1")]
        assert reported(tolerant) == [f"{place.partition}@1"]

    @pytest.mark.parametrize("mode", ["insert", "upsert", "update"])
    def test_a_record_whose_key_is_null_is_refused_alone(self, place: Place, mode: str) -> None:
        place.create()
        place.sql(f"INSERT INTO {place.table} VALUES (1, 'old')" if mode == "update" else "SELECT 1")
        task = place.task(tolerate=True, insert_mode=mode, pk_mode="record_value", pk_fields="id")
        task.put(place.batch(0, [{"id": None, "name": "a"}, *flights(1), {"id": None, "name": "b"}]))
        assert place.rows() == [(1, "flight 1")]
        assert reported(task) == [f"{place.partition}@0", f"{place.partition}@2"]

    @pytest.mark.parametrize("mode", ["record_value", "record_key"])
    def test_a_record_without_a_field_of_the_key_is_refused_alone(self, place: Place, mode: str) -> None:
        place.create()
        settings = {**UPSERT, "delete.enabled": "false", "pk.mode": mode, "auto.evolve": "true"}
        whole, lacking = b'{"id": 1, "name": "a"}', b'{"name": "b"}'
        records: list[tuple[bytes | None, bytes | None]]
        if mode == "record_key":
            settings |= {"delete.enabled": "true"}
            records = [(b'{"id": 1}', whole), (b'{"no": 2}', lacking), (b'{"no": 1}', None), (b'{"id": 3}', lacking)]
        else:
            records = [(None, whole), (None, lacking), (None, b'"text"'), (None, b'{"id": 3, "name": "b"}')]
        with pytest.raises(RecordRejectedError, match=r"pk\.fields"):
            place.put_json(place.task(settings), 0, *records)
        task = place.task(settings, tolerate=True)
        place.put_json(task, 0, *records)
        assert place.rows() == [(1, "a"), (3, "b")]
        assert reported(task) == [f"{place.partition}@1", f"{place.partition}@2"]
        assert place.offset() == 4

    def test_a_row_that_the_table_refuses_fails_the_task_and_names_the_record(self, place: Place) -> None:
        place.create("id bigint PRIMARY KEY CHECK (id < 900), name varchar(50)")
        task = place.task()
        with pytest.raises(RecordRejectedError, match=f"offset 13 of {place.partition}.*errors.tolerance=all"):
            task.put(place.batch(10, flights(1, 2, 3, 950, 4)))
        assert place.rows() == []
        assert place.offset() is None

    def test_tolerated_rows_are_skipped_and_all_others_written_once(self, place: Place) -> None:
        place.create("id bigint PRIMARY KEY CHECK (id <> 57 AND id <> 58 AND id <> 99), name varchar(50)")
        task = place.task(tolerate=True)
        task.put(place.batch(0, flights(*range(100), 5)))
        assert [row[0] for row in place.rows()] == [i for i in range(99) if i not in (57, 58)]
        assert reported(task) == [f"{place.partition}@{offset}" for offset in (57, 58, 99, 100)]
        assert place.offset() == 101

    def test_a_delete_that_the_database_refuses_is_found_like_a_row(self, place: Place) -> None:
        place.create()
        task = place.task(UPSERT, tolerate=True)
        task.put(place.batch(0, [{"name": "x" * 40}, None], NAME, keyed(1, 1)))
        task.put(place.batch(2, [{"name": "ok"}, None], NAME, pa.array([{"id": 2}, {"id": None}], KEY)))
        assert place.rows() == [(2, "ok")]

    @pytest.mark.parametrize("mode", ["upsert", "update"])
    def test_a_row_that_the_table_refuses_is_refused_also_if_a_later_one_replaces_it(
        self, place: Place, mode: str
    ) -> None:
        place.create("id bigint PRIMARY KEY, name varchar(50) CHECK (name <> 'bad'), s bigint DEFAULT 4")
        place.sql(f"INSERT INTO {place.table} VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
        task = place.task({**UPSERT, "insert.mode": mode}, tolerate=True)
        kind = pa.struct([*NAME, ("s", pa.int64())])
        values = [("bad", 7), ("x", 8), ("it's \\ ;", 9), ("bad", 1), None, ("y", None), ("bad", 5), ("z", 6)]
        rows = [None if value is None else dict(zip(("name", "s"), value, strict=True)) for value in values]
        task.put(place.batch(0, rows, kind, keyed(1, 1, 1, 2, 2, 3, 3, 3)))
        assert place.rows() == [(1, "it's \\ ;", 9), (3, "z", 6)]
        assert reported(task) == [f"{place.partition}@{offset}" for offset in (0, 3, 6)]

    def test_a_missing_table_is_an_error_with_a_next_step(self, place: Place) -> None:
        with pytest.raises(TableMissingError, match=f"for topic {place.topic} does not exist.*auto.create=true"):
            place.task().value_type(place.topic)

    def test_auto_create_and_auto_evolve_follow_the_records(self, place: Place) -> None:
        moment = datetime.datetime(2024, 6, 1, 12, 30, 15, 250000)
        row: dict[str, Any] = {
            "id": 1,
            "small": 2,
            "flag": True,
            "share": 0.5,
            "note": 'it\'s \\ "%s"',
            "raw": b"\x00y",
        }
        row |= {"day": moment.date(), "moment": moment, "price": decimal.Decimal("12.50")}
        types = [pa.int64(), pa.int16(), pa.bool_(), pa.float64(), pa.string(), pa.binary()]
        types += [pa.date32(), pa.timestamp("us"), pa.decimal128(10, 2)]
        kind = pa.struct(list(zip(row, types, strict=True)))
        task = place.task(
            auto_create="true", auto_evolve="true", insert_mode="upsert", pk_mode="record_value", pk_fields="id"
        )
        assert task.value_type(place.topic) is None
        task.put(place.batch(0, [row], kind))
        wider = pa.struct([*kind, pa.field("tip", pa.int32())])
        task.put(place.batch(1, [{**row, "tip": 5}, {**row, "id": 2, "tip": None}], wider))
        task.put(place.batch(3, [{"id": 3}], pa.struct([("id", pa.int64())])))
        found = place.sql(f"SELECT id, small, share, note, tip, raw FROM {place.table} WHERE id < 3 ORDER BY 1")
        assert found == [(1, 2, 0.5, row["note"], 5, b"\x00y"), (2, 2, 0.5, row["note"], None, b"\x00y")]
        (text,) = place.sql(
            f"SELECT CAST(day AS char(10)), CAST(moment AS char(22)), price FROM {place.table} WHERE id = 1"
        )
        assert (text[0], str(text[1])[:22]) == ("2024-06-01", "2024-06-01 12:30:15.25")
        assert decimal.Decimal(str(text[2])) == decimal.Decimal("12.5")
        assert place.sql(f"SELECT count(*) FROM {place.table}") == [(3,)]

    def test_new_columns_have_the_defaults_of_the_schema(self, place: Place) -> None:
        moment, data = datetime.datetime(2024, 6, 1, 12, 30, 15, 250000), b"\x00y'"
        spelled = base64.b64encode(data).decode()
        fields: dict[str, tuple[pa.DataType, Any, Any]] = {
            "small": (pa.int16(), -2, -2),
            "flag": (pa.bool_(), True, True),
            "share": (pa.float64(), 0.5, 0.5),
            "note": (pa.string(), 'it\'s \\ "%s"', 'it\'s \\ "%s"'),
            "raw": (pa.binary(), spelled, data),
            "day": (pa.date32(), (moment.date() - datetime.date(1970, 1, 1)).days, moment.date()),
            "price": (pa.decimal128(10, 2), 12.5, decimal.Decimal("12.50")),
            "moment": (pa.timestamp("us", "UTC"), int(moment.replace(tzinfo=datetime.UTC).timestamp() * 1000), moment),
        }
        with_default = [pa.field(name, kind, metadata={DEFAULT: json.dumps(default)})
                        for name, (kind, default, _) in fields.items()]  # fmt: skip
        kind = pa.struct([("id", pa.int64()), *with_default])
        task = place.task(auto_create="true", auto_evolve="true", insert_mode="upsert", pk_mode="record_value",
                          pk_fields="id", db_timezone="Europe/Berlin")  # fmt: skip
        task.put(place.batch(0, [{"id": 1}], kind))
        task.put(place.batch(1, [{"id": 2}], KEY))
        row = {name: value for name, (_, _, value) in fields.items()}
        task.put(place.batch(2, [{"id": 3, **row, "moment": moment.replace(tzinfo=datetime.UTC)}], kind))
        null, default, written = place.rows()
        assert null[1:] == (None,) * len(fields), "null is a value, too"
        assert default[1:] == written[1:]
        assert default[1:6] == tuple(row.values())[:5]
        later = pa.struct([("id", pa.int64()), pa.field("late", pa.int32(), metadata={DEFAULT: "7"})])
        task.put(place.batch(3, [{"id": 4, "late": 8}], later))
        assert place.sql(f"SELECT id, late FROM {place.table} ORDER BY 1") == [(1, None), (2, None), (3, None), (4, 8)]

    def test_a_field_that_is_null_in_all_records_makes_no_column_and_empties_one_that_exists(
        self, place: Place
    ) -> None:
        settings = {"auto.create": "true", "auto.evolve": "true", "insert.mode": "upsert"}
        task = place.task(settings, pk_mode="record_value", pk_fields="id")
        kind = pa.struct([*FLIGHT, pa.field("gone", pa.null())])
        task.put(place.batch(0, [{"id": 1, "name": "a", "gone": None}], kind))
        assert place.rows() == [(1, "a")]
        task.put(place.batch(1, [{"id": 1, "name": None}], pa.struct([("id", pa.int64()), ("name", pa.null())])))
        assert place.rows() == [(1, None)]

    def test_without_auto_evolve_a_new_field_is_an_error_unless_the_whitelist_omits_it(self, place: Place) -> None:
        place.create()
        kind = pa.struct([*FLIGHT, pa.field("tip", pa.int32())])
        values = [{"id": 1, "name": "a", "tip": 5}]
        with pytest.raises(RecordRejectedError, match=r"field tip, .*no column.*auto\.evolve=true.*fields\.whitelist"):
            place.task().put(place.batch(0, values, kind))
        place.task(fields_whitelist="id,name").put(place.batch(0, values, kind))
        assert place.rows() == [(1, "a")]

    @pytest.mark.parametrize("mode", ["record_key", "record_value"])
    def test_without_schemas_a_record_with_a_field_that_the_table_lacks_is_refused_alone(
        self, place: Place, mode: str
    ) -> None:
        place.create()
        settings = {"insert.mode": "upsert", "pk.mode": mode, "pk.fields": "id"}
        values = [b'{"id":1,"name":"a"}', b'{"id":2,"name":"b","tip":5}', b'{"tip":null,"id":3}',
                  b'{"id":4,"name":7,"tip":{"a":1}}', b'{"id":5,"\\u006eame":"e","x":[1],"y":"z"}']  # fmt: skip
        records = [(value[6:7], value) if mode == "record_key" else (None, value) for value in values]
        records[2] = (b"3", records[2][1]) if mode == "record_key" else records[2]
        records[3] = (b"4", b'{"id":4,"name":"d","tip":{"a":1}}')
        with pytest.raises(
            RecordRejectedError, match=r"offset 1 .*field tip,.*no column.*auto\.evolve=true.*whitelist"
        ):
            place.put_json(place.task(settings), 0, *records)
        task = place.task(settings, tolerate=True)
        assert place.put_json(task, 0, *records) == []
        assert place.rows() == [(1, "a"), (3, None)]
        assert reported(task) == [f"{place.partition}@{offset}" for offset in (1, 3, 4)]
        assert place.put_json(place.task(settings, fields_whitelist="name"), 5, *records[1:2]) == []
        assert place.rows() == [(1, "a"), (2, "b"), (3, None)]
        listed = place.task(settings, fields_whitelist="name,y", tolerate=True)
        assert place.put_json(listed, 6, records[1], records[4]) == []
        assert place.put_json(listed, 8, (b"6", b'{"id":6,"name":"f","x, y":1}')) == []
        assert reported(listed) == [f"{place.partition}@7"], "a name may contain a comma"

    def test_a_column_that_was_added_meanwhile_is_found(self, place: Place) -> None:
        place.create()
        task = place.task()
        task.put(place.batch(0, flights(1)))
        place.sql(f"ALTER TABLE {place.table} ADD COLUMN tip bigint")
        kind = pa.struct([*FLIGHT, pa.field("tip", pa.int64())])
        task.put(place.batch(1, [{"id": 2, "name": "b", "tip": 5}], kind))
        assert place.rows() == [(1, "flight 1", None), (2, "b", 5)]

    def test_the_place_in_kafka_can_be_the_primary_key(self, place: Place) -> None:
        task = place.task(auto_create="true", insert_mode="upsert", pk_mode="kafka")
        task.put(place.batch(5, flights(1, 1)))
        found = place.sql(f"SELECT __connect_topic, __connect_partition, __connect_offset, id FROM {place.table}")
        assert sorted(found) == [(place.topic, 0, 5, 1), (place.topic, 0, 6, 1)]

    def test_all_fields_of_the_key_are_the_primary_key_when_none_is_named(self, place: Place) -> None:
        task = place.task(auto_create="true", insert_mode="upsert", pk_mode="record_key")
        task.put(place.batch(0, [{"name": "a"}, {"name": "b"}], NAME, keyed(7, 7)))
        assert place.sql(f"SELECT id, name FROM {place.table}") == [(7, "b")]

    @pytest.mark.parametrize("creates", [False, True])
    def test_a_key_without_schema_is_its_field_or_stands_for_it(self, place: Place, creates: bool) -> None:
        if not creates:
            place.create()
        settings = {"auto.create": str(creates).lower(), "insert.mode": "upsert", "delete.enabled": "true"}
        task = place.task(settings, pk_mode="record_key", pk_fields="id")
        rows = [(b'{"id":7}', b'{"name":"a"}'), (b"8", b'{"name":"b"}'), (b' {"id":8,"x":1}', b'{"name":"c"}')]
        assert place.put_json(task, 0, *rows, (b"9", b'{"name":"d"}')) == []
        selected = f"SELECT id, name FROM {place.table} ORDER BY 1"
        assert place.sql(selected) == [(7, "a"), (8, "c"), (9, "d")]
        assert place.put_json(task, 4, (b'{"id":7}', None), (b"8", None)) == []
        assert place.sql(selected) == [(9, "d")]

    def test_keys_without_schemas_have_the_types_of_their_columns(self, place: Place) -> None:
        place.create("a numeric(20, 0), b date, c varchar(20), PRIMARY KEY (a, b, c)")
        task = place.task(insert_mode="upsert", pk_mode="record_key", pk_fields="a,b,c", delete_enabled="true")
        key = b'{"a":12345678901234567891,"b":"2024-05-06","c":"7"}'
        assert place.put_json(task, 0, (key, b"{}"), (key, b"{}")) == []
        ((a, b, c),) = place.rows()
        assert (str(b), c) == ("2024-05-06", "7")
        assert place.url.startswith("jdbc:sqlite") or str(a) == "12345678901234567891", "SQLite has no such numbers"
        for refused in (b"5", b'{"a":1}', b'{"a":1,"b":null,"c":"x"}', b'{"a":1,"b":"x","c":"x"}'):
            assert len(place.put_json(task, place.offset() or 0, (refused, b"{}"))) == 1

    def test_text_in_place_of_a_number_or_date_is_never_decoded(self, place: Place) -> None:
        place.create("id bigint PRIMARY KEY, a numeric(12, 2), d date")
        task = place.task()
        values = [b'{"id":1,"a":"1250"}', b'{"id":2,"a":1250}', b'{"id":3,"d":"2024-05-06"}']
        assert place.put_json(task, 0, *((None, value) for value in values)) == []
        found = place.sql(f"SELECT id, CAST(a AS char(7)) FROM {place.table} WHERE id < 3 ORDER BY 1")
        assert [float(str(text)) for _, text in found] == [1250.0, 1250.0]

    @pytest.mark.parametrize("mode", ["upsert", "update"])
    @pytest.mark.parametrize("deletes", [False, True])
    def test_a_value_that_the_source_did_not_change_is_kept(self, place: Place, mode: str, deletes: bool) -> None:
        place.create("id bigint PRIMARY KEY, short varchar(50), note varchar(50)")
        kind = pa.struct([("short", pa.string()), ("note", pa.string())])
        full, kept = {"short": "a", "note": "x"}, {"short": "b", "note": "__debezium_unavailable_value"}
        place.task().put(
            place.batch(0, [{"id": key, **full} for key in (1, 2, 3)], pa.struct([("id", pa.int64()), *kind]))
        )
        settings = {"insert.mode": mode, "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}
        task = place.task(settings)
        values = [kept, {"short": "new", "note": "y"}, kept, None if deletes else kept]
        task.put(place.batch(3, values, kind, keyed(1, 2, 2, 3)))
        assert place.rows() == [(1, "b", "x"), (2, "b", "y"), *([] if deletes else [(3, "b", "x")])]
        task.put(place.batch(7, [{"short": None, "note": kept["note"]}], kind, keyed(1)))
        assert place.rows()[0] == (1, None, "x")

    def test_a_value_to_keep_of_a_row_that_does_not_exist_is_refused(self, place: Place) -> None:
        place.create()
        settings = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"}
        values = [{"id": 1, "name": "a"}, {"id": 2, "name": "__debezium_unavailable_value"}]
        with pytest.raises(RecordRejectedError, match="REPLICA IDENTITY FULL"):
            place.task(settings).put(place.batch(0, values))
        task = place.task(settings, tolerate=True)
        task.put(place.batch(0, values))
        assert len(reported(task)) == 1
        assert place.rows() == [(1, "a")]

    def test_names_from_records_cannot_leave_their_quotes(self, place: Place) -> None:
        evil = f"x{place.quote}, y int); DROP TABLE connectx_offsets; -- {{values}} %s"
        kind = pa.struct([("id", pa.int64()), (evil, pa.string())])
        settings = {"auto.create": "true", "pk.mode": "record_value", "pk.fields": "id"}
        for start, mode in ((0, "upsert"), (2, "update")):
            task = place.task(settings, insert_mode=mode)
            task.put(place.batch(start, [{"id": 1, evil: f"{mode}'); --"}, {"id": 1, evil: f"{mode}\\'"}], kind))
        assert [tuple(row) for row in place.rows()] == [(1, "update\\'")]
        assert place.offset() == 4
        with pytest.raises(TableMismatchError, match=r"quote\.sql\.identifiers=always"):
            place.task(auto_evolve="true", quote_sql_identifiers="never").put(
                place.batch(4, [{"id": 2, evil: ""}], kind)
            )

    def test_timestamps_are_written_in_the_configured_time_zone(self, place: Place) -> None:
        kind = pa.struct([("id", pa.int64()), ("moment", pa.timestamp("us", "UTC"))])
        place.create(f"id bigint PRIMARY KEY, moment {place.local_time}")
        moment = datetime.datetime(2024, 6, 1, 12, tzinfo=datetime.UTC)
        place.task(db_timezone="Europe/Berlin").put(place.batch(0, [{"id": 1, "moment": moment}], kind))
        ((text,),) = place.sql(f"SELECT CAST(moment AS char(19)) FROM {place.table}")
        assert str(text)[:19] == "2024-06-01 14:00:00"

    def test_what_the_table_holds_can_be_read_again(self, place: Place) -> None:
        place.create()
        settings = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}
        place.task(settings).put(place.batch(0, [{"name": "a"}, {"name": "b"}], NAME, keyed(1, 2)))
        stored = JdbcSink.stored({"connection.url": place.url, **settings}, place.topic)
        assert stored is not None
        assert (stored.key, stored.key_in_record_key, stored.value_type) == (("id",), True, NAME)
        found = pa.concat_tables(stored.read()).sort_by("id").to_pylist()
        assert found == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
