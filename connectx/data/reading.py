"""Records of a batch through converters, column by column, and their parts put together again.

A batch of JSON with schemas may hold several schemas: it is read in rounds, one per schema, nearly always one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.converter import Converter, Decoded
from connectx.data.diagnosis import why_not
from connectx.data.json.converter import JsonConverter, RecordSchema
from connectx.data.json.reader import NOT_JSON
from connectx.errors import ConversionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

SparkGetter: TypeAlias = "Callable[[], SparkSession]"
Task: TypeAlias = "tuple[pa.Array, Converter, DataType | None]"

_DIAGNOSED_ROWS = 100


def read_columns(tasks: Sequence[Task], spark: SparkGetter) -> list[Decoded]:
    """Values of several columns of the same length: (records, converter, wanted type) each; one Spark job in common.

    Raises:
        ConversionError: schemas within a column that no one type can hold.
    """
    results: dict[int, Decoded] = {}
    plans: dict[int, tuple[Task, RecordSchema | None]] = {}
    for index, task in enumerate(tasks):
        records, converter, _ = task
        if converter.reads_arrow():
            results[index] = converter.from_bytes_arrow(records)
        elif records.null_count == len(records):
            results[index] = Decoded.of(pa.nulls(len(records)))
        elif (read := converter.try_from_bytes_arrow(records, task[2])) is not None:
            results[index] = read
        else:
            plans[index] = (task, _first_schema(records, converter))
    if plans:
        rounds = _run(plans, spark())
        for index, outcome in rounds.items():
            results[index] = _further_rounds(plans[index], outcome, spark)
    return [_diagnosed(results[index], task) for index, task in enumerate(tasks)]


def frame_of(table: pa.Table, spark: SparkSession) -> DataFrame:
    """A table as a DataFrame with the same order of rows.

    Timestamps without time zone stay without one, where Spark by itself would put them into the session's.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(table, schema=from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def joined(parts: Sequence[tuple[pa.Array, Decoded]]) -> Decoded:
    """Parts (row numbers, what became of those rows) in the order of rows, in one type.

    Raises:
        ConversionError: no one type holds the values of all parts.
    """
    if len(parts) == 1:
        return parts[0][1]
    good = [where(part.error.is_null(), part.value) for _, part in parts]
    values = [pa.nulls(len(value)) if value.null_count == len(value) else value for value in good]
    tables = [
        pa.table({"row": rows, "value": value, "error": part.error})
        for (rows, part), value in zip(parts, values, strict=True)
    ]
    kinds = {str(value.type) for value in values if not pa.types.is_null(value.type)}
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as cause:
        raise ConversionError(
            f"One batch holds values of types that do not fit together: {' and '.join(sorted(kinds))}.",
            next_step="Lower consumer.override.max.poll.records, or give the sink one type of values.",
        ) from cause
    table = table.sort_by("row").combine_chunks()
    value, error = (_one_chunk(table[name]) for name in ("value", "error"))
    return Decoded(value, error)


def where(good: pa.Array, values: pa.Array) -> pa.Array:
    """Values of good rows, null for others."""
    return values if pc.all(good).as_py() is not False else pc.if_else(good, values, pa.scalar(None, values.type))


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def _first_schema(records: pa.Array, converter: Converter) -> RecordSchema | None:
    """Schema of the first record that has one; None for converters without schemas."""
    if not (isinstance(converter, JsonConverter) and converter.schemas_enabled):
        return None
    for record in records:
        if record.is_valid and (schema := converter.schema_of_record(record.as_py())) is not None:
            return schema
    return RecordSchema("null", None)


def _expression(column: Column, task: Task, schema: RecordSchema | None) -> Column:
    _, converter, target = task
    if schema is not None and isinstance(converter, JsonConverter):
        return converter.from_envelope(column, schema, target)
    return converter.from_bytes(column, target)


def _run(plans: dict[int, tuple[Task, RecordSchema | None]], spark: SparkSession) -> dict[int, pa.Table]:
    """One job for all plans: a table with columns value, error, other for each."""
    from pyspark.sql import functions as f

    frame = frame_of(pa.table({f"c{index}": task[0] for index, (task, _) in plans.items()}), spark)
    read = [_expression(f.col(f"c{index}"), *plan).alias(f"c{index}") for index, plan in plans.items()]
    table = frame.select(*read).toArrow()
    outcomes = {}
    for index in plans:
        array = _one_chunk(table[f"c{index}"])
        fields = [*array.flatten(), pa.nulls(len(array), pa.string())][:3]
        outcomes[index] = pa.table(dict(zip(("value", "error", "other"), fields, strict=True)))
    return outcomes


def _further_rounds(plan: tuple[Task, RecordSchema | None], outcome: pa.Table, spark: SparkGetter) -> Decoded:
    """Reads the records whose schema was another than the first one's, schema by schema."""
    (records, converter, target), _ = plan
    other = _one_chunk(outcome["other"])
    here = Decoded(_one_chunk(outcome["value"]), _one_chunk(outcome["error"]))
    if other.null_count == len(other) or not isinstance(converter, JsonConverter):
        return here
    done = pc.indices_nonzero(other.is_null())
    parts = [(done, Decoded(here.value.take(done), here.error.take(done)))]
    for text in other.unique().drop_null().to_pylist():
        rows = pc.indices_nonzero(pc.equal(other, text))
        task = (records.take(rows), converter, target)
        again = _run({0: (task, converter.record_schema(text))}, spark())[0]
        parts.append((rows, Decoded(_one_chunk(again["value"]), _one_chunk(again["error"]))))
    return joined([part for part in parts if len(part[0])])


def _diagnosed(decoded: Decoded, task: Task) -> Decoded:
    """The parser says only that it refused a record: find out why, for the first ones."""
    records, converter, target = task
    if decoded.error.null_count == len(decoded.error) or not isinstance(converter, JsonConverter):
        return decoded
    from pyspark.sql.types import StringType

    errors = decoded.error.to_pylist()
    refused = [row for row, error in enumerate(errors) if error == NOT_JSON][:_DIAGNOSED_ROWS]
    for row in refused:
        record = records[row].as_py()
        schema = converter.schema_of_record(record) if converter.schemas_enabled else None
        kind = (schema.kind if schema else None) or target or StringType()
        errors[row] = why_not(record, kind, in_envelope=converter.schemas_enabled)
    return Decoded(decoded.value, pa.array(errors, pa.string()))
