"""Names of schemas in the metadata of Spark's fields, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from connectx.connectors.shared.keyed import keyed_table
from connectx.connectors.spark.tables import common_schema
from connectx.data.connect_schema import DEFAULT, SchemaName, name_of
from connectx.data.frames import ELEMENT, as_spark_takes, in_arrow, in_schema, named_rows, spark_schema
from tests.support.named_schemas import COLUMNS, LEVEL, rows


def test_names_are_metadata_of_sparks_fields_and_come_back() -> None:
    columns = spark_schema(COLUMNS)
    value = columns["value"].dataType
    assert isinstance(value, StructType)
    assert columns["key"].metadata == {"connect.name": "com.acme.Key", "connect.version": "1"}
    assert value["levels"].metadata[ELEMENT]["connect.name"] == LEVEL.name
    assert value["times"].metadata == {ELEMENT: {"connect.name": "com.acme.Nanos"}}
    columns = StructType.fromJson(json.loads(columns.json()))  # as the JVM and Spark Connect get it
    plain = to_arrow_schema(columns).remove_metadata()
    found = named_rows(plain.empty_table(), columns).schema
    assert found.equals(as_spark_takes(COLUMNS), check_metadata=True)
    inner = found.field("value").type
    assert SchemaName.of(inner.field("levels").type.value_field) == LEVEL
    assert SchemaName.of(inner.field("times").type.item_field) == SchemaName("com.acme.Nanos")
    assert inner.field("inner").type.field("level").metadata[DEFAULT.encode()] == b'"low"'


def test_all_types_of_both_lanes_keep_their_names() -> None:
    large = pa.large_list(SchemaName("a").on(pa.field("element", pa.int32())))
    fields = [pa.field("d", pa.dictionary(pa.int32(), pa.string())), pa.field("l", pa.list_(pa.list_(large)))]
    given = pa.schema([*(SchemaName("n").on(field) for field in fields), pa.field("plain", pa.string())])
    found = as_spark_takes(given)
    assert [name_of(field).name for field in found] == ["n", "n", ""]
    assert found.field("l").type.value_type.value_type.value_field.metadata == {b"connect.name": b"a"}
    taken = pa.schema([pa.field("l", pa.list_(pa.list_(pa.large_list(pa.int32()))))]).empty_table()
    (named,) = named_rows(taken, StructType([spark_schema(given)["l"]])).schema
    assert named.type.value_type.value_type.value_field.metadata == {b"connect.name": b"a"}
    assert pa.types.is_large_list(named.type.value_type.value_type)


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"connect.name": "com.acme.Id", "connect.version": 2}, SchemaName("com.acme.Id", 2)),
        ({"connect.parameters": {"unit": "s"}}, SchemaName(parameters=(("unit", "s"),))),
        ({"comment": "of another tool"}, SchemaName()),
    ],
)
def test_a_user_gives_names_as_metadata_of_a_column(metadata: dict[str, Any], name: SchemaName) -> None:
    columns = StructType([StructField("id", IntegerType(), metadata=metadata)])
    found = named_rows(pa.table({"id": pa.array([1], pa.int32())}), columns)
    assert SchemaName.of(found.schema.field("id")) == name
    assert found.to_pylist() == [{"id": 1}]


def test_the_copy_that_spark_4_2_makes_of_its_metadata_is_dropped_at_every_depth() -> None:
    def copied(name: str, kind: pa.DataType) -> pa.Field:
        metadata = {b"SPARK::metadata::json": b'{"comment": "c"}', b"other": b"stays"}
        return pa.field(name, kind, metadata=metadata)

    inner = pa.struct([copied("n", pa.int32())])
    kinds = {"s": inner, "l": pa.list_(inner), "m": pa.map_(inner, pa.list_(inner)), "large": pa.large_list(inner)}
    table = pa.schema([copied(name, kind) for name, kind in kinds.items()]).empty_table()
    plain = table.schema.remove_metadata().empty_table().select(list(kinds))
    found = named_rows(table, spark_schema(plain.schema)).schema
    assert "SPARK::metadata" not in found.to_string(truncate_metadata=False)
    deepest = found.field("m").type.item_type.value_type.field("n")
    assert [each.metadata for each in (found.field("s"), deepest)] == [{b"other": b"stays"}] * 2
    assert found.types == table.schema.types


def test_rows_without_names_are_not_copied() -> None:
    table = pa.table({"a": pa.array([[1]], pa.list_(pa.int64())), "b": pa.array([{"c": 1}])})
    assert named_rows(table, spark_schema(table.schema)) is table
    assert in_arrow(table) is table


def test_a_null_struct_with_a_required_field_gets_names() -> None:
    kind = pa.struct([pa.field("id", pa.int32(), nullable=False), pa.field("l", pa.list_(pa.int32()))])
    table = pa.table({"value": pa.array([None, {"id": 1, "l": [2, None]}, None], kind)})
    wanted = as_spark_takes(pa.schema([SchemaName("a").on(pa.field("value", kind))]))
    for given in (table, table.slice(1), pa.concat_tables([table, table]), table.slice(0, 0)):
        found = in_schema(given, wanted)
        assert found.to_pylist() == given.to_pylist()
        assert found.schema.equals(wanted, check_metadata=True)
        assert found["value"].type.field("l").type.value_field.name == "element"


def test_other_types_are_converted() -> None:
    found = in_schema(pa.table({"n": pa.array([1], pa.int8())}), pa.schema([("n", pa.int64())]))
    assert found.schema.types == [pa.int64()]


def test_a_key_of_one_field_has_the_name_of_the_field() -> None:
    table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows(3)["key"].combine_chunks())])
    found = keyed_table(table, ["id"]).schema
    assert SchemaName.of(found.field("key")) == SchemaName("com.acme.Id", 1)
    assert SchemaName.of(found.field("value").type.field("id")) == SchemaName("com.acme.Id", 1)


def test_tables_in_files_have_the_names_of_their_columns_in_both_lanes() -> None:
    found = common_schema(COLUMNS)
    assert found.equals(common_schema(found), check_metadata=True)
    assert SchemaName.of(found.field("key")) == SchemaName("com.acme.Key", 1)
    assert all(field.nullable for field in found)
