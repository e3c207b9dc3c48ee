"""The transformations of one connector, in order, over tables of records.

Mirrors Kafka Connect's TransformationChain and PredicatedTransformation. A table parts by the shapes of its records and
where a predicate holds for some of them only. Parts are put together again where their columns are alike. Rows are
numbered, so that the order and result of each stays known. It decides nothing about errors: it finds the rows at fault
and leaves them out.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import one_chunk
from connectx.data.converter import Converter
from connectx.data.shapes import divided, united
from connectx.data.transforms.api import Predicate, Transform
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import TransformError

ROW = "connectx_row"
"""Column with the number of the row in the table that came in."""

_SIDES = ("key", "value")


@dataclass(frozen=True, slots=True)
class Step:
    """One transformation with its alias, and the predicate (with its own) that selects records (None: all)."""

    alias: str
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False
    predicate_alias: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that a transformation could not take."""

    row: int
    alias: str
    transform: type
    error: Exception

    @property
    def message(self) -> str:
        """The cause, with the transformation's alias and class."""
        cause = self.error.message if isinstance(self.error, ConnectxError) else repr(self.error)
        return f"Transformation {self.alias} ({self.transform.__qualname__}) failed: {cause}"


@dataclass(frozen=True, slots=True)
class Transformed:
    """The result for a table: parts with different columns, the number of dropped rows, and failures."""

    parts: tuple[pa.Table, ...]
    filtered: int
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Transformations in order; none at all is an empty chain."""

    steps: tuple[Step, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def classes(self) -> tuple[type, ...]:
        """Classes of transformations and predicates."""
        parts = (part for step in self.steps for part in (step.transform, step.predicate))
        return tuple(type(part) for part in parts if part is not None)

    def reads(self, column: str) -> bool:
        """True when a step reads or changes that column: key, value, topic or headers."""
        return any(
            column in step.transform.reads or (step.predicate is not None and column in step.predicate.reads)
            for step in self.steps
        )

    @property
    def reads_time(self) -> bool:
        """True when a step reads the timestamps of records."""
        return any(step.transform.reads_time for step in self.steps)

    def reading(self, key: Converter, value: Converter) -> Chain:
        """The same for records that these converters read."""
        varied = frozenset(side for side, one in (("key", key), ("value", value)) if not one.has_schemas)
        steps = [replace(step, transform=copy.copy(step.transform)) for step in self.steps]
        for step in steps:
            step.transform.varied = varied
        return Chain(tuple(steps))

    def apply(self, table: pa.Table) -> Transformed:
        """Take all rows through the chain. Null keys and values come in without a schema, as tombstones."""
        rows = pa.array(range(table.num_rows), pa.int64())
        whole = divided(table.append_column(ROW, rows))
        parts = [part for _, shape in whole if shape.num_rows for part in _by_nulls(shape, _SIDES, untyped=True)]
        failures: list[Failure] = []
        filtered = 0
        for step in self.steps:
            count = sum(part.num_rows for part in parts)
            failed_before = len(failures)
            changed = [made for part in parts for made in _step(step, part, failures)]
            parts = _merged([shape for made in changed for _, shape in divided(made)])
            left = sum(part.num_rows for part in parts)
            filtered += count - left - (len(failures) - failed_before)
        return Transformed(tuple(parts), filtered, tuple(sorted(failures, key=lambda failure: failure.row)))


def in_order(parts: Sequence[pa.Table]) -> pa.Table:
    """Parts as one table in the order of rows, without their numbers; values of several types keep theirs."""
    if len(parts) == 1:
        table = parts[0].drop_columns(ROW)
        return pa.table(table.columns, pa.schema([field.with_nullable(True) for field in table.schema]))
    rows = [one_chunk(part[ROW]).to_numpy() for part in parts]
    places = np.argsort(np.argsort(np.concatenate(rows)))
    placed = np.split(places, np.cumsum([len(each) for each in rows])[:-1])
    columns, fields = [], []
    for name in parts[0].column_names:
        if name != ROW:
            columns.append(united((at, one_chunk(part[name])) for at, part in zip(placed, parts, strict=True)))
            fields.append(parts[0].schema.field(name).with_type(columns[-1].type).with_nullable(True))
    return pa.table(columns, pa.schema(fields))


def _step(step: Step, table: pa.Table, failures: list[Failure]) -> list[pa.Table]:
    if step.predicate is None:
        return _applied(step, table, failures)
    try:
        chosen = step.predicate.test(table)
    except Exception as error:
        failures += [Failure(row, step.alias, type(step.predicate), error) for row in one_chunk(table[ROW]).to_pylist()]
        return []
    chosen = pc.fill_null(chosen, False)  # a comparison with null is null: no row may get lost between both filters
    chosen = pc.invert(chosen) if step.negate else chosen
    count = pc.sum(chosen).as_py() or 0
    if count == table.num_rows:
        return _applied(step, table, failures)
    if not count:
        return [table]
    return [*_applied(step, table.filter(chosen), failures), table.filter(pc.invert(chosen))]


def _by_nulls(table: pa.Table, sides: Sequence[str], *, untyped: bool = False) -> list[pa.Table]:
    """Rows in parts in which keys and values are all null, or none is.

    Args:
        untyped: leave null keys and values without a type.
    """
    parts = [table]
    for side in [side for side in sides if side in table.column_names]:
        divided = []
        for part in parts:
            column = part[side]
            if not column.null_count:
                divided.append(part)
                continue
            nulls = part if column.null_count == part.num_rows else part.filter(column.is_null())
            if untyped:
                nulls = nulls.set_column(nulls.column_names.index(side), side, pa.nulls(nulls.num_rows))
            divided.append(nulls)
            if nulls.num_rows < part.num_rows:
                divided.append(part.filter(column.is_valid()))
        parts = divided
    return parts


def _applied(step: Step, table: pa.Table, failures: list[Failure]) -> list[pa.Table]:
    """The rows transformed, nulls apart from others."""
    sides = [side for side in _SIDES if side in step.transform.reads]
    return [made for part in _by_nulls(table, sides) for made in _halves(step, part, failures)]


def _halves(step: Step, table: pa.Table, failures: list[Failure]) -> list[pa.Table]:
    """The rows transformed; those at fault are found by halves, unless even no row at all is refused."""
    try:
        return [_checked(step, step.transform.apply(table))]
    except Exception as error:
        refusal = error if table.num_rows == 1 else _refusal(step, table)
        if refusal is not None:
            failures += _failed(step, table, refusal)
            return []
        half = table.num_rows // 2
        return [*_halves(step, table.slice(0, half), failures), *_halves(step, table.slice(half), failures)]


def _refusal(step: Step, table: pa.Table) -> Exception | None:
    """The error that the transformation raises for these columns without any row."""
    try:
        step.transform.apply(table.slice(0, 0))
    except Exception as error:
        return error
    return None


def _failed(step: Step, table: pa.Table, error: Exception) -> list[Failure]:
    return [Failure(row, step.alias, type(step.transform), error) for row in one_chunk(table[ROW]).to_pylist()]


def _checked(step: Step, table: pa.Table) -> pa.Table:
    if not isinstance(table, pa.Table) or ROW not in table.column_names:
        raise TransformError(
            f"{type(step.transform).__qualname__}.apply did not give back its table with all of its columns.",
            next_step="Change columns with set_column and drop rows with filter, and leave the other columns alone.",
        )
    return table


def _merged(parts: Sequence[pa.Table]) -> list[pa.Table]:
    """Parts with the same columns as one, in the order of rows; empty ones are left out."""
    alike: dict[str, list[pa.Table]] = {}
    for part in parts:
        if part.num_rows:
            alike.setdefault(part.schema.to_string(show_schema_metadata=False), []).append(part)
    return [same[0] if len(same) == 1 else pa.concat_tables(same).sort_by(ROW) for same in alike.values()]
