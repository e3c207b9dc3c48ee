"""The PostgreSQL sink against a real server: rows and offsets in one transaction, and what it refuses."""

from __future__ import annotations

import datetime
import decimal
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.jdbc.sink import JdbcSink, PostgresSink
from connectx.data.converter import with_others
from connectx.errors.base import ConnectxError
from connectx.errors.databases import (
    DatabaseError,
    DatabasePermissionError,
    DatabaseUnavailableError,
    TableMismatchError,
    TableMissingError,
)
from connectx.errors.plugins import RecordRejectedError
from connectx.model.ids import TopicPartition
from connectx.plugins.errors import CommitRefusedError, NotStageableError
from tests.support.jdbc_sinks import (
    FLIGHT,
    NAME,
    UPSERT,
    BulkSink,
    Context,
    Place,
    flights,
    keyed,
    postgres_place,
    reported,
    staging_tables,
)
from tests.support.waiting import until

pytestmark = pytest.mark.rule("always.8")


@pytest.fixture
def target(postgres: str) -> Iterator[Place]:
    """PostgreSQL, and tasks of PostgresSink; the contract of all databases is in test_jdbc_sink.py."""
    with postgres_place(postgres, PostgresSink) as made:
        yield made


def test_a_frozen_zombie_that_holds_the_row_is_ended_by_its_successor(target: Place) -> None:
    from adbc_driver_postgresql import dbapi

    target.create()
    task = target.task(lock_timeout_ms="200")
    task.open([target.partition])
    frozen = dbapi.connect(target.url)
    with frozen.cursor() as cursor:
        cursor.execute(f"SET application_name = 'connectx {target.group} {target.topic}-0 abc'")
        cursor.execute(f"UPDATE connectx_offsets SET next_offset = 9 WHERE group_id = '{target.group}'")
    with pytest.raises(DatabaseUnavailableError):
        task.put(target.batch(0, flights(1)))
    task.put(target.batch(0, flights(1)))
    assert target.rows() == [(1, "flight 1")]
    with pytest.raises(dbapi.Error):
        frozen.commit()
    frozen.close()


def test_a_session_of_somebody_else_that_holds_the_row_is_left_alone(target: Place) -> None:
    from adbc_driver_postgresql import dbapi

    target.create()
    task = target.task(lock_timeout_ms="200")
    task.open([target.partition])
    other = dbapi.connect(target.url)
    with other.cursor() as cursor:
        cursor.execute(f"UPDATE connectx_offsets SET next_offset = 0 WHERE group_id = '{target.group}'")
    with pytest.raises(DatabaseUnavailableError, match="lock timeout"):
        task.put(target.batch(0, flights(1)))
    other.commit()
    other.close()
    task.put(target.batch(0, flights(1)))
    assert target.rows() == [(1, "flight 1")]


def test_a_blocked_put_ends_when_it_is_cancelled_and_commits_nothing(target: Place) -> None:
    target.create()
    task = target.task(lock_timeout_ms="60000")
    task.open([target.partition])
    from adbc_driver_postgresql import dbapi

    blocker = dbapi.connect(target.url)
    with blocker.cursor() as cursor:
        cursor.execute(f'LOCK TABLE "{target.topic}" IN ACCESS EXCLUSIVE MODE')
    failed: list[Exception] = []

    def put() -> None:
        try:
            task.put(target.batch(0, flights(1)))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    until(lambda: bool(target.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")))
    task.cancel()
    thread.join(30)
    assert not thread.is_alive()
    assert len(failed) == 1
    blocker.rollback()
    blocker.close()
    assert target.rows() == []
    assert target.offset() is None


def test_new_and_known_keys_may_change_from_batch_to_batch(target: Place) -> None:
    target.create()
    task = target.task(insert_mode="upsert", pk_mode="record_value", pk_fields="id")
    task.open([target.partition])
    batches = [(1, 2), (2, 3), (4, 5), (5,), (6,), (7,), (1, 7, 8), (9,), (2, 9)]
    for number, ids in enumerate(batches):
        values = [{"id": identity, "name": f"{identity} of batch {number}"} for identity in ids]
        task.put(target.batch(10 * number, values, end=10 * number + 10))
    latest = {identity: number for number, ids in enumerate(batches) for identity in ids}
    assert target.rows() == [(identity, f"{identity} of batch {latest[identity]}") for identity in sorted(latest)]
    assert target.offset() == 90


def test_upsert_with_the_key_of_the_record(target: Place) -> None:
    target.create()
    task = target.task(insert_mode="upsert", pk_mode="record_key", pk_fields="id")
    task.open([target.partition])
    kind = pa.struct([("name", pa.string())])
    assert task.value_type(target.topic) == with_others(kind, ["id"])
    task.put(target.batch(0, [{"name": "a"}, {"name": "b"}], kind, keys=pa.array([7, 7], pa.int64())))
    assert target.rows() == [(7, "b")]


def test_upsert_where_no_index_has_the_key_fails_with_a_next_step(target: Place) -> None:
    target.create("id bigint, name text")
    task = target.task(insert_mode="upsert", pk_mode="record_value", pk_fields="id")
    task.open([target.partition])
    with pytest.raises(TableMismatchError, match=r"no unique or exclusion constraint.*pk.fields"):
        task.put(target.batch(0, flights(1)))


def test_every_type_arrives_as_it_is(target: Place) -> None:
    target.create(
        "a smallint, b int, c bigint, d real, e double precision, f boolean, g text, h bytea, i date, j timestamp, "
        "k timestamptz, l numeric(12,3), m varchar(5), n jsonb, o uuid, p numeric"
    )
    moment = datetime.datetime(2013, 1, 2, 3, 4, 5, 678000)
    aware = moment.replace(tzinfo=datetime.UTC)
    row: dict[str, Any] = {"a": 1, "b": 2, "c": 3, "d": 1.5, "e": 2.5, "f": True, "g": "x", "h": b"\x00y"}
    row |= {"i": moment.date(), "j": moment, "k": aware, "l": decimal.Decimal("-1.250"), "m": "abcde"}
    row |= {"n": '{"z": 1}', "o": "00000000-0000-0000-0000-000000000001", "p": "12345.678"}
    task = target.task()
    task.open([target.partition])
    types = [pa.int32(), pa.int32(), pa.int64(), pa.float64(), pa.float64(), pa.bool_(), pa.string(), pa.binary()]
    types += [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(10, 2), *[pa.string()] * 4]
    kind = pa.struct(list(zip(row, types, strict=True)))
    task.put(target.batch(0, [row, dict.fromkeys(row)], kind))
    shown = target.sql(
        f"SELECT a, b, c, d, e, f, g, h, i::text, j::text, (k AT TIME ZONE 'UTC')::text, l::text, m, n::text, o::text, "
        f'p::text FROM "{target.topic}" ORDER BY 1 NULLS LAST'
    )
    time, zero = "2013-01-02 03:04:05.678", "00000000-0000-0000-0000-00000000000"
    numbers = (1, 2, 3, 1.5, 2.5, True, "x", b"\x00y")
    assert shown == [
        (*numbers, "2013-01-02", time, time, "-1.250", "abcde", '{"z": 1}', f"{zero}1", "12345.678"),
        (None,) * 16,
    ]


_DOMAINS = (
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE DOMAIN bigger AS positive CHECK (VALUE > 1)",
    "CREATE DOMAIN short AS varchar(3)",
    "CREATE TYPE mood AS ENUM ('good', 'bad')",
)
_TYPES = (
    "a bigger, b short, c money, d int[], e text[], f numeric(6,2)[], g mood[], h positive[], i bytea[], j int[], "
    "k timestamp(3), l numeric(5,2), m date[], n jsonb[], o bit(3)"
)


@pytest.fixture
def domains(target: Place) -> Iterator[Place]:
    for statement in _DOMAINS:
        target.sql(statement)
    yield target
    target.sql("DROP DOMAIN positive, bigger, short CASCADE")
    target.sql("DROP TYPE mood CASCADE")


@pytest.mark.parametrize("connector", [PostgresSink, BulkSink])
@pytest.mark.parametrize("mode", ["insert", "upsert", "update"])
def test_domains_money_and_arrays_take_values_with_a_schema_and_json_without(
    domains: Place, postgres: str, connector: type[JdbcSink], mode: str
) -> None:
    with postgres_place(postgres, connector) as place:
        place.create(f"id bigint PRIMARY KEY, {_TYPES}")
        if mode == "update":
            place.sql(f"INSERT INTO {place.table} (id) VALUES (1), (2), (3)")
        keyed = {} if mode == "insert" else {"pk.mode": "record_value", "pk.fields": "id"}
        task = place.task({"insert.mode": mode, **keyed}, tolerate=True)
        moment, price = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000), decimal.Decimal("12.50")
        row: dict[str, Any] = {
            "id": 1,
            "a": 2,
            "b": "abc",
            "c": price,
            "d": [1, None],
            "e": ["a", None, 'q"\\,{', "NULL", ""],
        }
        row |= {"f": [price], "g": ["good"], "h": [1], "i": [b"\x00\xff"], "j": [[1, 2], [3, 4]], "k": moment, "l": 5}
        row |= {"m": [moment.date()], "n": [{"z": 1}], "o": "101"}
        kind = pa.array([row]).type
        place.task({"insert.mode": mode, **keyed}).put(place.batch(0, [row], kind))
        spelled = {**row, "id": 2, "c": 12.5, "f": [12.5], "i": None, "j": "{{1,2},{3,4}}", "k": str(moment)}
        spelled |= {"m": [str(moment.date())]}
        bad = [
            {"id": 3, "a": 1},
            {"id": 3, "b": "abcd"},
            {"id": 3, "d": [1.5]},
            {"id": 3, "h": [0]},
            {"id": 3, "o": "1010"},
        ]
        place.put_json(task, 1, *[(None, json.dumps(each).encode()) for each in [spelled, *bad]])
        assert reported(task) == [f"{place.partition}@{offset}" for offset in range(2, 7)]
        names = "a::int, b, " + ", ".join(f"{name}::text" for name in "cdefghjklmno")
        both = place.sql(f"SELECT {names} FROM {place.table} WHERE id < 3 ORDER BY id")
        texts = ("{1,NULL}", r'{a,NULL,"q\"\\,{","NULL",""}', "{12.50}", "{good}", "{1}", "{{1,2},{3,4}}")
        later = ("2024-01-02 03:04:05.678", "5.00", "{2024-01-02}", r'{"{\"z\": 1}"}', "101")
        assert both == [(2, "abc", "$12.50", *texts, *later)] * 2
        assert place.sql(f"SELECT i FROM {place.table} WHERE id = 1") == [([b"\x00\xff"],)]


def test_auto_create_makes_arrays(target: Place) -> None:
    target.task(auto_create="true").put(
        target.batch(0, [{"a": [1, 2], "b": [["x"]]}], pa.array([{"a": [1], "b": [["x"]]}]).type)
    )
    assert target.sql(f"SELECT a::text, b::text FROM {target.table}") == [("{1,2}", "{{x}}")]


def test_the_table_says_what_values_are_read_as(target: Place) -> None:
    target.create(
        "id bigint PRIMARY KEY, at timestamp, price numeric(8,2), note text, made int GENERATED ALWAYS AS (1) STORED"
    )
    kind = target.task().value_type(target.topic)
    expected = [("id", pa.int64()), ("at", pa.timestamp("us")), ("price", pa.decimal128(8, 2)), ("note", pa.string())]
    assert kind is not None
    assert list(kind)[:-1] == [pa.field(*column) for column in expected]


def test_a_column_with_a_default_gets_it_when_no_record_has_it(target: Place) -> None:
    target.create("number serial, id bigint, name text DEFAULT 'unnamed'")
    task = target.task()
    task.open([target.partition])
    kind = pa.struct([("number", pa.int32()), ("id", pa.int64()), ("name", pa.string())])
    task.put(target.batch(0, [{"number": None, "id": 5, "name": None}], kind))
    assert target.rows() == [(1, 5, "unnamed")]


def test_auto_create_makes_the_table_from_the_records(target: Place) -> None:
    task = target.task(auto_create="true", insert_mode="upsert", pk_mode="record_value", pk_fields="id")
    task.open([target.partition])
    assert task.value_type(target.topic) is None
    task.put(target.batch(0, flights(1)))
    task.put(target.batch(1, [{"id": 1, "name": "again"}]))
    assert target.rows() == [(1, "again")]


def test_a_table_in_another_schema_is_found_by_its_name(target: Place) -> None:
    target.sql(f'CREATE SCHEMA "s_{target.topic}"')
    target.sql(f'CREATE TABLE "s_{target.topic}"."x_{target.topic}" (id bigint, name text)')
    task = target.task(table_name_format=f"s_{target.topic}.x_${{topic}}")
    task.open([target.partition])
    task.put(target.batch(0, flights(1)))
    assert target.sql(f'SELECT id FROM "s_{target.topic}"."x_{target.topic}"') == [(1,)]


def test_a_missing_table_is_an_error_with_a_next_step(target: Place) -> None:
    with pytest.raises(TableMissingError, match=f'"public"."{target.topic}" for topic {target.topic} does not exist.*'):
        target.task().value_type(target.topic)


@pytest.mark.parametrize(
    ("columns", "bad", "reason"),
    [
        ("id bigint CHECK (id < 5), name text", 7, "violates check constraint"),
        ("id bigint PRIMARY KEY, name text", 1, "duplicate key"),
        ("id smallint, name text", 70_000, "not in range"),
        ("id bigint, name text CHECK (name <> 'flight 7')", 7, "violates check constraint"),
        ("id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, name text", 1, "duplicate key"),
    ],
)
def test_a_row_that_the_table_refuses_fails_the_task_and_names_the_record(
    target: Place, columns: str, bad: int, reason: str
) -> None:
    target.create(columns)
    task = target.task()
    task.open([target.partition])
    with pytest.raises(RecordRejectedError, match=f"offset 13 of {target.partition}.*{reason}.*errors.tolerance=all"):
        task.put(target.batch(10, flights(1, 2, 3, bad, 4)))
    assert target.rows() == []
    assert target.offset() is None


def test_tolerated_rows_are_skipped_with_upsert_too(target: Place) -> None:
    target.create("id bigint PRIMARY KEY CHECK (id <> 3), name text")
    task = target.task(tolerate=True, insert_mode="upsert", pk_mode="record_value", pk_fields="id")
    task.open([target.partition])
    task.put(target.batch(0, flights(1, 2, 3, 4)))
    assert [row[0] for row in target.rows()] == [1, 2, 4]


@pytest.mark.parametrize(
    ("columns", "kind", "reason"),
    [
        ("id bigint", FLIGHT, r"field name, .*no column.*auto\.evolve=true"),
        ("id bigint, name int", FLIGHT, "field name is of type string, and the column .* is of type integer"),
    ],
)
def test_a_record_that_does_not_fit_the_table_is_refused_alone(
    target: Place, columns: str, kind: pa.DataType, reason: str
) -> None:
    target.create(columns)
    task = target.task()
    task.open([target.partition])
    with pytest.raises(RecordRejectedError, match=reason):
        task.put(target.batch(0, flights(1), kind))


def test_a_record_that_has_no_fields_is_refused(target: Place) -> None:
    target.create()
    task = target.task()
    task.open([target.partition])
    with pytest.raises(RecordRejectedError, match=r"has no fields.*JsonConverter"):
        task.put(target.batch(0, ["text"], pa.string()))  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("url", "kind", "reason"),
    [
        ("postgresql://postgres:hidden@127.0.0.1:1/db", DatabaseUnavailableError, "127.0.0.1:1/db cannot be reached"),
        ("jdbc:postgresql://127.0.0.1:1/db", DatabaseUnavailableError, "cannot be reached: Connection refused"),
        ("postgres//user:hidden@host", DatabaseError, "libpq does not understand the URI"),
    ],
)
def test_a_database_that_cannot_be_reached_is_named_without_secrets(
    target: Place, url: str, kind: type[ConnectxError], reason: str
) -> None:
    task = PostgresSink.Task()
    task.start({"connection.url": url, "connection.password": "hidden"}, Context("connect-x", False))
    with pytest.raises(kind, match=reason) as failed:
        task.open([TopicPartition("x", 0)])
    assert "hidden" not in str(failed.value)


def test_a_missing_database_and_a_missing_role_are_final_errors(target: Place) -> None:
    socket = target.url.partition("?")[2]
    for uri, kind, reason in (
        (f"postgresql://postgres@/nodb?{socket}", DatabaseError, 'no such database: database "nodb" does not exist'),
        (f"postgresql://nobody@/postgres?{socket}", DatabasePermissionError, 'role "nobody" does not exist'),
    ):
        task = PostgresSink.Task()
        task.start({"connection.url": uri}, Context("connect-x", False))
        with pytest.raises(kind, match=reason):
            task.open([TopicPartition("x", 0)])


def test_a_role_that_may_not_write_is_an_error_with_a_next_step(target: Place) -> None:
    target.create()
    target.sql(f'CREATE ROLE "r_{target.topic}" LOGIN')
    target.task().open([target.partition])
    task = target.task(opened=False, connection_user=f"r_{target.topic}")
    with pytest.raises(DatabasePermissionError, match=r"permission denied for table connectx_offsets.*Grant"):
        task.open([target.partition])
    task = target.task(opened=False, connection_user=f"r_{target.topic}", offsets_table_name=f"o_{target.topic}")
    with pytest.raises(DatabasePermissionError, match="Let an administrator run: CREATE TABLE"):
        task.open([target.partition])


def test_a_lost_connection_passes_and_the_next_put_goes_on(target: Place) -> None:
    target.create()
    task = target.task()
    task.open([target.partition])
    task.put(target.batch(0, flights(1)))
    target.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE application_name LIKE 'connectx {target.group} %'"
    )
    with pytest.raises(DatabaseUnavailableError):
        task.put(target.batch(1, flights(2)))
    task.put(target.batch(1, flights(2)))
    assert [row[0] for row in target.rows()] == [1, 2]


@pytest.mark.parametrize("settings", [{"insert.mode": "upsert"}, {"insert.mode": "upsert", "pk.mode": "record_key"}])
def test_upsert_without_a_key_is_a_configuration_error(settings: dict[str, str]) -> None:
    assert PostgresSink.validate(settings) != {}


def test_the_configuration_hides_the_password(target: Place) -> None:
    given: Callable[..., Mapping[str, Any]] = PostgresSink.config.parse
    assert "secret" not in repr(given({"connection.url": "postgresql://x/y", "connection.password": "secret"}))


def staged(task: JdbcSink.Task, token: str, target: Place, *ids: int) -> Any:
    """What executors report of records from offset 0 on."""
    plan = task.plan(token, target.topic)
    return task.stage(plan, token, iter([target.batch(0, flights(*ids))]))


def test_staged_rows_are_in_no_table_before_their_commit_which_drops_the_staging_tables(target: Place) -> None:
    target.create()
    task = target.task()
    messages = staged(task, "job-1", target, 1, 2)
    assert (target.rows(), target.offset(), len(staging_tables(target))) == ([], None, 1)
    task.commit("job-1", {target.partition: (0, 2)}, messages)
    assert (target.rows(), target.offset()) == ([(1, "flight 1"), (2, "flight 2")], 2)
    assert staging_tables(target) == []


def test_a_zombie_s_staged_rows_are_refused_by_the_offsets_of_its_successor(target: Place) -> None:
    target.create()
    zombie = target.task()
    messages = staged(zombie, "job-1", target, 7, 8)
    successor = target.task(opened=False)
    successor.open([target.partition])
    successor.put(target.batch(0, flights(1, 2, 3)))
    with pytest.raises(CommitRefusedError, match="is at 3, the batch starts at 0") as refused:
        zombie.commit("job-1", {target.partition: (0, 2)}, messages)
    assert refused.value.committed == {target.partition: 3}
    assert [row[0] for row in target.rows()] == [1, 2, 3]


def test_staging_tables_of_a_dead_instance_are_dropped_when_the_task_opens_and_its_own_stay(target: Place) -> None:
    target.create()
    staged(target.task(), "dead-1", target, 1)
    other = target.task()  # of the same task
    assert staging_tables(target) == []
    messages = staged(other, "alive-1", target, 1)
    other.open([TopicPartition(target.topic, 1)])
    other.commit("alive-1", {target.partition: (0, 1)}, messages)
    assert target.rows() == [(1, "flight 1")]


def test_a_discarded_job_leaves_no_staging_table(target: Place) -> None:
    target.create()
    task = target.task()
    messages = staged(task, "job-1", target, 1)
    task.discard("job-1", messages)
    assert (target.rows(), staging_tables(target)) == ([], [])


@pytest.mark.parametrize("harm", ["TRUNCATE", "DROP TABLE"])
def test_staged_rows_that_are_gone_are_left_to_the_worker(target: Place, harm: str) -> None:
    """A crash of the server empties tables that are not logged."""
    target.create()
    task = target.task()
    messages = staged(task, "job-1", target, 1, 2)
    ((name,),) = staging_tables(target)
    target.sql(f'{harm} "{name}"')
    with pytest.raises(NotStageableError, match="has 0 of 2 rows"):
        task.commit("job-1", {target.partition: (0, 2)}, messages)
    assert target.offset() is None
    task.put(target.batch(0, flights(1, 2)))
    assert target.offset() == 2


def test_rows_that_only_the_table_itself_refuses_are_left_to_the_worker(target: Place) -> None:
    target.create()
    target.sql(f"INSERT INTO {target.table} VALUES (2, 'old')")
    task = target.task()
    messages = staged(task, "job-1", target, 1, 2)
    with pytest.raises(NotStageableError, match="duplicate key"):
        task.commit("job-1", {target.partition: (0, 2)}, messages)
    assert target.rows() == [(2, "old")]


def test_what_columns_demand_is_checked_where_rows_are_staged_and_defaults_are_left_to_the_table(target: Place) -> None:
    target.create("no serial PRIMARY KEY, id bigint NOT NULL CHECK (id < 9), doc jsonb NOT NULL, at date DEFAULT now()")
    task = target.task(tolerate=True)
    kind = pa.struct([("id", pa.int64()), ("doc", pa.string())])
    ids_and_texts = [(1, "{}"), (9, "{}"), (2, "{"), (None, "{}"), (3, "[]")]
    batch = target.batch(0, [{"id": number, "doc": text} for number, text in ids_and_texts], kind)
    messages = task.stage(task.plan("job-1", target.topic), "job-1", iter([batch]))
    assert reported(task) == [f"{target.partition}@{offset}" for offset in (1, 2, 3)]
    task.commit("job-1", {target.partition: (0, 5)}, messages)
    found = target.sql(f"SELECT no, id, doc::text, at = CURRENT_DATE FROM {target.table} ORDER BY no")
    assert [row[1:] for row in found] == [(1, "{}", True), (3, "[]", True)]


def test_the_last_record_of_a_key_wins_over_batches_also_when_it_is_a_tombstone(target: Place) -> None:
    target.create("id bigint PRIMARY KEY, name text, note text DEFAULT 'none'")
    target.sql(f"INSERT INTO {target.table} VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'x')")
    task = target.task(UPSERT)
    steps: list[list[tuple[int, str | None]]] = [
        [(1, "one"), (2, None), (4, "new")],
        [(1, None), (2, "two"), (3, "three"), (4, "newer")],
        [(4, "newest"), (3, None), (5, None)],
    ]
    batches, at = [], 0
    for step in steps:
        names: list[dict[str, Any] | None] = [None if name is None else {"name": name} for _, name in step]
        batches.append(target.batch(at, names, NAME, keyed(*(key for key, _ in step))))
        at += len(step)
    messages = task.stage(task.plan("job-1", target.topic), "job-1", iter(batches))
    task.commit("job-1", {target.partition: (0, at)}, messages)
    assert target.rows() == [(2, "two", "none"), (4, "newest", "none")]


def test_records_that_need_a_new_column_are_left_to_the_worker(target: Place) -> None:
    target.create()
    task = target.task(auto_evolve="true")
    kind = pa.struct([*FLIGHT, pa.field("tip", pa.int32())])
    batch = target.batch(0, [{"id": 1, "name": "a", "tip": 5}], kind)
    with pytest.raises(NotStageableError, match="new table or column"):
        task.stage(task.plan("job-1", target.topic), "job-1", iter([batch]))
    assert staging_tables(target) == []


def test_only_tables_of_postgresql_are_written_by_executors() -> None:
    assert "PostgreSQL" in (JdbcSink.bulk_obstacle({"connection.url": "sqlite:/x"}) or "")
    url = {"connection.url": "postgresql://h/d"}
    assert JdbcSink.bulk_obstacle(url) is None
    assert PostgresSink.bulk_obstacle(url) is None
    assert "delete.enabled" in (PostgresSink.bulk_obstacle({**url, "delete.enabled": "true"}) or "")
