"""Keys, columns and topics of captured tables, also of changes that are read after a change of the table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cdc import Capture, Captured, ops, rows_of, tables_of

CODES = "CREATE TABLE t (id int{}, code text NOT NULL, no int NOT NULL)"
INDEX = "CREATE UNIQUE INDEX by_code ON t (no, code)"
CODED = {"no": 1, "code": "a"}


@pytest.mark.parametrize(
    ("statements", "key"),
    [
        ((CODES.format(""), INDEX, "ALTER TABLE t REPLICA IDENTITY USING INDEX by_code"), CODED),
        ((CODES.format(" PRIMARY KEY"), INDEX, "ALTER TABLE t REPLICA IDENTITY USING INDEX by_code"), CODED),
        ((CODES.format(""), INDEX, "ALTER TABLE t REPLICA IDENTITY FULL"), CODED),
        ((CODES.format(""), f"{INDEX} WHERE id > 0", "ALTER TABLE t REPLICA IDENTITY FULL"), None),
        ((CODES.format(""), "CREATE UNIQUE INDEX by_id ON t (id)", "ALTER TABLE t REPLICA IDENTITY FULL"), None),
        ((CODES.format(""), "ALTER TABLE t ADD PRIMARY KEY (no) INCLUDE (code)"), {"no": 1}),
    ],
)
def test_a_key_is_the_one_of_a_unique_index_without_a_primary_key(
    shop: Captured, statements: tuple[str, ...], key: dict[str, Any] | None
) -> None:
    shop.sql(*statements, "INSERT INTO t VALUES (7, 'a', 1)")
    capture = Capture(shop)
    found = capture.records()
    shop.sql("UPDATE t SET id = 8", "DELETE FROM t")
    found += capture.records()
    capture.stop()
    assert ops(found) == ["r", "u", "d", *([None] if key else [])]
    assert [record.get("key") for record in found] == [key] * len(found)


@pytest.mark.parametrize(
    ("identity", "change", "keys"),
    [
        ("DEFAULT", ("ALTER TABLE t RENAME a TO z",), ({"b": 2, "a": 1}, {"b": 3, "z": 2})),
        ("FULL", ("ALTER TABLE t RENAME a TO z",), ({"b": 2, "a": 1}, {"b": 3, "z": 2})),
        (
            "DEFAULT",
            ("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (a)"),
            ({"b": 2, "a": 1}, {"a": 2}),
        ),
        ("DEFAULT", ("ALTER TABLE t ALTER c SET NOT NULL",), ({"b": 2, "a": 1}, {"b": 3, "a": 2})),
        ("DEFAULT", (), ({"a": 1, "b": 2},)),
    ],
)
def test_changes_before_a_change_of_the_table_keep_its_key_and_nulls(
    shop: Captured, identity: str, change: tuple[str, ...], keys: tuple[dict[str, int], ...]
) -> None:
    shop.sql("CREATE TABLE t (a int, b int, c text, PRIMARY KEY (b, a))", f"ALTER TABLE t REPLICA IDENTITY {identity}")
    capture = Capture(shop)
    capture.records()
    shop.sql("INSERT INTO t VALUES (1, 2, NULL)", "DELETE FROM t")
    shop.sql(*change, *(["INSERT INTO t VALUES (2, 3, 'x')"] if change else ["DROP TABLE t"]))
    pieces = capture.slices()
    capture.stop()
    found = [record for piece in pieces for record in rows_of(piece)]
    assert [record["key"] for record in found] == [keys[0]] * 3 + list(keys[1:])
    tables = [table for piece in pieces for table in tables_of(piece)]
    first = tables[0].schema.field("value").type.field("after").type
    assert [first.field(name).nullable for name in "abc"] == [False, False, True]


def test_a_column_that_may_be_null_again_is_optional(shop: Captured) -> None:
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)")
    capture = Capture(shop)
    capture.records()
    required = []
    for statements in (
        ["INSERT INTO t VALUES (1, 1)"],
        ["ALTER TABLE t ALTER n DROP NOT NULL", "INSERT INTO t VALUES (2, 2), (3, NULL)"],
    ):
        shop.sql(*statements)
        ((table,),) = (tables_of(piece) for piece in capture.slices())
        required.append(not table.schema.field("value").type.field("after").type.field("n").nullable)
    capture.stop()
    assert required == [True, False]


def test_names_that_no_topic_can_have_get_underscores(shop: Captured) -> None:
    shop.sql(
        'CREATE SCHEMA "my shop"',
        'CREATE TABLE "my shop"."Order Items" ("Id no" int PRIMARY KEY)',
        'CREATE TABLE "T😀é" (id int PRIMARY KEY)',
    )
    shop.sql('INSERT INTO "my shop"."Order Items" VALUES (1)', 'INSERT INTO "T😀é" VALUES (1)')
    capture = Capture(shop)
    found = capture.records()
    shop.sql('UPDATE "my shop"."Order Items" SET "Id no" = 2')
    found += capture.records()
    capture.stop()
    topics = [record["topic"].removeprefix(f"{shop.name}.") for record in found]
    assert topics == ["my_shop.Order_Items", "public.T___", *["my_shop.Order_Items"] * 3]
    assert found[0]["value"]["source"]["table"] == "Order Items"
