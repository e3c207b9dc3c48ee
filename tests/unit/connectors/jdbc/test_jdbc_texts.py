"""JdbcSource's SQL, positions, slices and lists of tables, without a database."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pymysql
import pytest

from connectx.connectors.jdbc.criteria import Criteria, Position, TimestampSql
from connectx.connectors.jdbc.database import numeric_type
from connectx.connectors.jdbc.dialects import dialect_of
from connectx.connectors.jdbc.mysql.session import mysql_error, named
from connectx.connectors.jdbc.pages import Page
from connectx.connectors.jdbc.source import JdbcSource
from connectx.connectors.jdbc.source_config import single_query
from connectx.connectors.jdbc.tables import ColumnMapping, Selection, TableName, groups
from connectx.errors.plugins import ConfigError
from connectx.protocol.offsets_topic import encode_offset_key
from tests.support.jdbc import source_config

STAMP = TimestampSql("ts", "us(ts)", str)
USERS = TableName("public", "users", "shop")


@pytest.mark.parametrize(
    ("criteria", "after", "tail"),
    [
        (Criteria(), Position(), ""),
        (Criteria(None, "id"), Position(), " WHERE id IS NOT NULL ORDER BY id"),
        (Criteria(None, "id"), Position(None, 7), " WHERE id > 7 ORDER BY id"),
        (Criteria(STAMP), Position(5), " WHERE ts > 5 AND ts < 90 ORDER BY ts"),
        (Criteria(STAMP, ties=("k", "l")), Position(5), " WHERE ts > 5 AND ts < 90 ORDER BY ts, k, l"),
        (Criteria(STAMP, "id"), Position(5, 7), " WHERE ts >= 5 AND (ts, id) > (5, 7) AND ts < 90 ORDER BY ts, id"),
        (Criteria(STAMP, "id"), Position(), " WHERE ts IS NOT NULL AND id IS NOT NULL AND ts < 90 ORDER BY ts, id"),
        (Criteria(STAMP, "id"), Position(5), " WHERE ts > 5 AND id IS NOT NULL AND ts < 90 ORDER BY ts, id"),
    ],
)
def test_a_query_starts_after_a_position_and_is_in_its_order(criteria: Criteria, after: Position, tail: str) -> None:
    assert criteria.query("*", "t", after, before_us=90, limit=3) == f"SELECT * FROM t{tail} LIMIT 3"


def test_a_position_is_an_offset_of_confluents_connector() -> None:
    offset = {"incrementing": 12, "timestamp": 1_700_000_000_123, "timestamp_nanos": 123_456_000}
    assert Position.of(offset) == Position(1_700_000_000_123_456, 12)
    assert Position.of(offset).offset == offset
    assert Position.of({"timestamp": 1500}) == Position(1_500_000)
    assert Position.of(None) == Position()


def test_a_source_partition_has_the_bytes_of_confluents_connector() -> None:
    assert encode_offset_key("j", USERS.partition) == b'["j",{"protocol":"1","table":"public.users"}]'
    older = [{"protocol": "1", "table": "shop.public.users"}, {"table": "users"}]
    assert USERS.older_partitions == older
    assert TableName("", "t").older_partitions == [{"table": "t"}]


def page(groups_of: list[int], slice_rows: int, limit: int | None = None, at_once: int = 4) -> Page:
    """A page of rows whose column `g` counts the groups of these sizes."""
    values = [number for number, size in enumerate(groups_of) for _ in range(size)][:limit]
    tables: Iterator[pa.Table] = (
        pa.table({"g": values[first : first + at_once]}) for first in range(0, len(values), at_once)
    )
    return Page(tables, slice_rows, limit, "g")


def sizes(cut: Page) -> list[int]:
    return [rows.num_rows for rows in iter(cut.next, None)]


@pytest.mark.parametrize(
    ("groups_of", "slice_rows", "limit", "expected"),
    [
        ([3, 3, 3], 4, None, [3, 3, 3]),
        ([1, 1, 1, 1, 1], 2, None, [2, 2, 1]),
        ([9], 4, None, [9]),
        ([2, 9, 2], 4, None, [2, 9, 2]),
        ([3, 3, 3], 4, 8, [3, 3]),
        ([3, 3, 3], 100, 8, [6]),
        ([9], 4, 8, []),
        ([], 4, 8, []),
    ],
)
def test_rows_that_share_a_position_stay_in_one_slice(
    groups_of: list[int], slice_rows: int, limit: int | None, expected: list[int]
) -> None:
    cut = page(groups_of, slice_rows, limit)
    assert sizes(cut) == expected
    assert cut.is_stuck == (groups_of == [9] and limit == 8)


def test_tables_are_chosen_by_exact_names_or_by_expressions() -> None:
    def of(**lists: str) -> Selection:
        config = {key.replace("_", "."): text for key, text in lists.items()}
        return Selection.of(JdbcSource.config.parse(source_config("sqlite:x", "bulk") | config))

    assert of().takes(USERS)
    assert of(table_whitelist="users").takes(USERS)
    assert of(table_whitelist="public.users,other").missing([USERS]) == ["other"]
    assert not of(table_whitelist="user").takes(USERS)
    assert not of(table_blacklist="public.users").takes(USERS)
    assert of(table_include_list="shop[.]public[.].*").takes(USERS)
    assert not of(table_include_list="ser").takes(USERS)
    assert not of(table_include_list=".*", table_exclude_list="u.*").takes(USERS)


def test_columns_are_mapped_by_the_first_expression_that_fits() -> None:
    mapping = ColumnMapping.parse("k", ["other:x", ".*users:[a|b]", ".*:z"])
    assert mapping.columns(USERS) == ("a", "b")
    assert mapping.columns(TableName("", "t")) == ("z",)
    with pytest.raises(ConfigError, match="it is not of the form"):
        ColumnMapping.parse("k", ["nothing"])


def test_tables_are_divided_in_nearly_equal_groups() -> None:
    tables = [TableName("", str(number)) for number in range(5)]
    assert [len(group) for group in groups(tables, 3)] == [2, 2, 1]
    assert [len(group) for group in groups(tables, 9)] == [1] * 5
    assert groups([], 3) == []


@pytest.mark.parametrize(
    ("more", "key", "reason"),
    [
        ({"table.whitelist": "a", "table.blacklist": "b"}, "table.whitelist", "are exclusive"),
        ({"table.whitelist": "a", "table.include.list": "b"}, "table.whitelist", "are exclusive"),
        ({"query": "SELECT 1", "table.whitelist": "a"}, "query", "are exclusive"),
        ({"mode": "timestamp"}, "timestamp.column.name", "needs a column"),
        ({"mode": "incrementing", "query": "SELECT 1"}, "incrementing.column.name", "needs a column"),
        ({"timestamp.column.name": "a", "timestamp.columns.mapping": "x:a"}, "timestamp.column.name", "exclusive"),
        ({"incrementing.column.mapping": "x"}, "incrementing.column.mapping", "not of the form"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(more: dict[str, str], key: str, reason: str) -> None:
    found = JdbcSource.validate(source_config("sqlite:x", "bulk") | more)
    assert list(found) == [key]
    assert re.search(reason, found[key][0])


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (
            "connection.url",
            "jdbc:oracle:thin:me/secret@db",
            "Invalid value jdbc:oracle for configuration connection.url",
        ),
        ("mode", "cdc", "String must be one of"),
        ("db.timezone", "Mars", "Invalid time zone"),
        ("table.types", "SYNONYM", "SYNONYM is not one of"),
        ("table.include.list", "(", "Invalid regex"),
        ("topic.prefix", "", "non-empty"),
    ],
)
def test_wrong_values_are_refused_in_kafkas_words(key: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        JdbcSource.config.parse(source_config("sqlite:x", "bulk") | {key: value})
    assert "secret" not in str(caught.value)


def test_a_dialect_is_known_by_the_url() -> None:
    urls = ["sqlite:/a", "jdbc:sqlite:a", "postgresql://h/d", "postgres://h/d", "jdbc:postgresql://h/d", "duckdb:/a"]
    urls += ["mysql://h/d", "jdbc:mariadb://h/d"]
    assert [dialect_of(url) for url in urls] == ["sqlite"] * 2 + ["postgresql"] * 3 + ["duckdb"] + ["mysql"] * 2


@pytest.mark.parametrize(
    ("mapping", "precision", "scale", "kind"),
    [
        ("none", 4, 0, "decimal"),
        ("best_fit", 2, 0, "int8"),
        ("best_fit", 4, 0, "int16"),
        ("best_fit", 9, 0, "int32"),
        ("best_fit", 18, 0, "int64"),
        ("best_fit", 19, 0, "decimal"),
        ("best_fit", 10, 2, "double"),
        ("best_fit", 20, 2, "decimal"),
        ("best_fit_eager_double", 20, 2, "double"),
        ("precision_only", 10, 2, "decimal"),
        ("precision_only", 10, 0, "int64"),
    ],
)
def test_numbers_are_mapped_by_precision_and_scale(mapping: str, precision: int, scale: int, kind: str) -> None:
    assert numeric_type(mapping, precision, scale) == kind


def test_exactly_once_needs_positions_or_a_load_as_one_transaction() -> None:
    assert JdbcSource.exactly_once_support({"mode": "incrementing"})
    assert not JdbcSource.exactly_once_support({"mode": "bulk"})
    assert JdbcSource.exactly_once_support({"mode": "bulk", "transaction.boundary": "connector"})
    assert not JdbcSource.can_define_transaction_boundaries({"mode": "incrementing"})


@pytest.mark.parametrize(
    ("partition", "offset", "reason"),
    [
        ({"file": "x"}, None, "the key 'table'"),
        ({"table": "t"}, {"position": 1}, "no key 'position'"),
        ({"table": "t"}, {"incrementing": "1"}, "expected to be a Long"),
    ],
)
def test_offsets_that_no_task_could_go_on_from_are_refused(
    partition: dict[str, str], offset: dict[str, object] | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        JdbcSource.check_offsets({}, [(partition, offset)])
    JdbcSource.check_offsets({}, [({"table": "t"}, {"incrementing": 1}), ({"query": "query"}, None)])


@pytest.mark.parametrize(
    ("code", "sql", "recorded"),
    [
        (1205, "UPDATE `a b`.`t` SET x = 1", "MySQL at h/shop has a row of UPDATE on `a b`.`t` locked: no."),
        (2013, "SELECT x FROM t", "MySQL at h/shop is not available for SELECT on t: no."),
        (1142, "CREATE TABLE IF NOT EXISTS `t` (x INT)", "MySQL at h/shop does not allow CREATE on `t`: no."),
        (1064, "SET x = 1", "MySQL at h/shop refuses SET: no (error 1064)."),
    ],
)
def test_a_failed_statement_of_mysql_is_named_with_its_server(code: int, sql: str, recorded: str) -> None:
    error = mysql_error(pymysql.err.OperationalError(code, "no"), "h/shop", named(sql))
    assert error.message == recorded
    assert error.next_step


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        *(
            (text, "SELECT 1")
            for text in ("SELECT 1", " SELECT 1;", "SELECT 1 ; ;\n", "SELECT 1; -- all", "SELECT 1; # all")
        ),
        *(("SELECT 1; /* of\nthem */ -- all\n", "SELECT 1"), ("SELECT 1 -- all;", "SELECT 1 -- all")),
        *((text, text) for text in ("SELECT ';'", "SELECT ';-- '", "SELECT ';' /* */", "SELECT 1 -- all")),
    ],
)
def test_a_query_ends_before_its_semicolon(given: str, taken: str) -> None:
    assert single_query(given) == taken
