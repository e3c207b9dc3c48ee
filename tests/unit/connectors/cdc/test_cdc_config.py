"""Debezium's configuration is taken as far as it is supported; the rest is refused by name."""

from __future__ import annotations

import pytest

from connectx.connectors.cdc.catalog import TableFilter
from connectx.connectors.cdc.columns import ColumnFilter
from connectx.connectors.cdc.config import CONFIG, uri
from connectx.connectors.cdc.source import PostgresCdcSource
from connectx.errors.plugins import ConfigError
from connectx.plugins.registry import Plugins

GIVEN = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("signal.data.collection", "public.signals"),
        ("provide.transaction.metadata", "true"),
        ("extended.headers.enabled", "true"),
        ("slot.drop.on.stop", "true"),
        ("snapshot.max.threads.multiplier", "4"),
        ("database.query.timeout.ms", "5"),
        ("topic.naming.strategy", "x"),
    ],
)
def test_a_key_of_debezium_that_is_not_supported_is_refused(key: str, value: str) -> None:
    problems = PostgresCdcSource.validate({**GIVEN, key: value})
    assert list(problems) == [key]
    assert f"Invalid value {value} for configuration {key}" in problems[key][0]
    assert problems[key][0].endswith("this key") or " supports only " in problems[key][0]


def test_a_misspelled_key_is_refused_with_the_key_that_was_meant() -> None:
    key = "table.incldue.list"
    (problem,) = PostgresCdcSource.validate({**GIVEN, key: "public.t"})[key]
    assert problem.endswith("PostgresCdcSource does not support this key; did you mean table.include.list?")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("plugin.name", "pgoutput"),
        ("provide.transaction.metadata", "false"),
        ("status.update.interval.ms", "1"),
        ("slot.drop.on.stop", "false"),
        ("topic.creation.default.partitions", "3"),
        ("tasks.max", "1"),
        ("snapshot.max.threads", "4"),
        ("transforms", "x"),
        ("table.include.list", "public.t"),
        ("column.exclude.list", "public.t.secret"),
        ("message.key.columns", "t:id"),
    ],
)
def test_other_keys_are_taken(key: str, value: str) -> None:
    assert PostgresCdcSource.validate({**GIVEN, key: value}) == {}


@pytest.mark.parametrize("kind", ["schema", "table", "column"])
def test_a_list_and_its_opposite_exclude_each_other(kind: str) -> None:
    given = {f"{kind}.include.list": "a", f"{kind}.exclude.list": "b"}
    assert list(PostgresCdcSource.validate({**GIVEN, **given})) == [f"{kind}.exclude.list"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("plugin.name", "decoderbufs"),
        ("snapshot.mode", "configuration_based"),
        ("offset.mismatch.strategy", "newest"),
        ("column.exclude.list", "("),
        ("message.key.columns", "public.t"),
        ("message.key.columns", "public.t:id;public.u:("),
        ("slot.name", "Upper"),
        ("snapshot.max.threads", "0"),
        ("topic.prefix", "a b"),
        ("table.include.list", "("),
        ("skipped.operations", "x"),
    ],
)
def test_values_that_are_not_supported_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        CONFIG.parse({**GIVEN, key: value})


def test_the_uri_has_all_that_libpq_needs_and_no_more() -> None:
    values = CONFIG.parse(
        {**GIVEN, "database.hostname": "/run/pg", "database.password": "a&b", "database.dbname": "d b"}
    )
    assert uri(values) == "postgresql:///d%20b?host=/run/pg&port=5432&user=u&password=a%26b&connect_timeout=10"


def test_tables_come_in_the_order_of_the_list_that_chooses_them() -> None:
    takes = TableFilter(tables=(r"public\.b", r"public\..*"))
    assert [takes.place("public", name) for name in ("a", "b", "c")] == [1, 0, 1]
    assert TableFilter().place("public", "a") == 0


def test_lists_match_whole_names_in_any_case() -> None:
    takes = TableFilter(("public",), (), (r"public\.a.*",), ()).takes
    assert takes("public", "Abc")
    assert not takes("public", "xabc")
    assert not takes("other", "abc")
    assert not TableFilter().takes("pg_catalog", "pg_class")
    assert not TableFilter(tables_not=(r"public\.t",)).takes("public", "t")
    assert not TableFilter(schemas_not=("secret",)).takes("secret", "t")


def test_columns_are_chosen_by_their_whole_names_in_any_case() -> None:
    takes = ColumnFilter(columns=(r"public\.t\..*", "public.u.Id")).takes
    assert [takes("public.t", "a"), takes("public.u", "id"), takes("public.u", "idx")] == [True, True, False]
    without = ColumnFilter(columns_not=(r".*\.secret",)).takes
    assert [without("public.t", "SECRET"), without("public.t", "secrets")] == [False, True]


def test_columns_of_a_key_are_in_the_order_of_their_expressions() -> None:
    given = {**GIVEN, "message.key.columns": "public.t:b, a,B; (.*).u:x.*"}
    columns = ColumnFilter.of(CONFIG.parse(given))
    assert columns.key("public.t", ["a", "b", "c"]) == (1, 0)
    assert columns.key("other.u", ["a", "xa", "xb"]) == (1, 2)
    assert columns.key("public.v", ["a", "b"]) == ()


def test_a_configuration_of_debezium_names_the_same_connector() -> None:
    assert Plugins().connector_class("io.debezium.connector.postgresql.PostgresConnector") is PostgresCdcSource
