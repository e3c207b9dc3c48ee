"""Generator: a source that computes rows from their number, at a given rate, for trials and measurements.

It decides what row number n holds, which is always the same, so that the ids show any loss or repetition. Its source
offset is the number of rows made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectx.connectors.shared.keyed import keyed_table
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef, Validator, invalid_value
from connectx.model.source_offsets import SourceOffset
from connectx.model.validators import at_least, non_empty
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.contexts import SourceTaskContext
from connectx.plugins.slices import Slice
from connectx.plugins.tasks import SourceTask
from connectx.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_TYPES = ("long", "double", "string", "boolean")
_TICK_S = 0.05
_IDLE_MS = 1_000
_REREAD_ROWS = 10_000


def _known_fields(fields: Any) -> str | None:
    """Names with a type each: `name:long`, `:double`, `:string` or `:boolean`"""
    for text in fields or ():
        name, _, kind = text.partition(":")
        if not name or kind not in _TYPES:
            return f"{text or 'an empty name'} is not name:type with one of the types {', '.join(_TYPES)}"
        if name == "id" and kind != "long":
            return f"{text}: id is the row's number, of type long"
    names = [text.partition(":")[0] for text in fields or ()]
    return None if names and len(set(names)) == len(names) else "Fields need names, each only once"


def _known_schema(text: Any) -> str | None:
    """An Avro schema of type record"""
    from connectx.connectors.generator.rows import RowSchema, SchemaProblem

    try:
        RowSchema(text or "{}")
    except SchemaProblem as problem:
        return str(problem)
    return None


class Generator(SourceConnector):
    """Makes rows. With several tasks, task t of n makes the ids t, t + n, t + 2n, ..."""

    summary = "generated rows at a given rate"
    version = VERSION
    offsets_in_kafka = True
    exactly_once = True
    config = (
        ConfigDef()
        .define("topic", str, importance="HIGH", validator=non_empty(), doc="Topic that the rows go to.")
        .define(
            "rate",
            float,
            100.0,
            importance="HIGH",
            validator=at_least(0),
            doc="Rows per second and task; 0 is as fast as possible.",
        )
        .define("rows.per.poll", int, 10_000, validator=at_least(1), doc="The most rows that one poll makes.")
        .define(
            "fields",
            list,
            "id:long,name:string,amount:double",
            validator=_known_fields,
            doc="Fields as name:type, with the types long, double, string and boolean; `id` holds the row's number.",
        )
        .define(
            "schema.string",
            str,
            None,
            importance="HIGH",
            validator=Validator(lambda text: None if text is None else _known_schema(text), "Avro schema of a record"),
            doc="Avro schema of the rows, in place of fields, with ranges, choices, patterns and relations.",
        )
        .define("seed", "LONG", 0, doc="Another seed gives other rows. Rows of fields do not depend on it.")
        .define("key.fields", list, "", doc="Fields that make the record's key; none is a null key.")
        .define("max.rows", "LONG", None, doc="How many rows each task makes in all; left out, there is no end.")
    )

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Rows have one definition."""
        return _problems(config)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [
            {**self.settings, "generator.task": str(task), "generator.tasks": str(max_tasks)}
            for task in range(max_tasks)
        ]

    class Task(SourceTask):
        """Source partition `{"generator": t, "of": n}`, source offset `{"rows": <rows made>}`."""

        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            super().start(config, context)
            if found := _problems(config):
                raise ConfigError([message for messages in found.values() for message in messages])
            self._values = values = Generator.config.parse(config)
            self._task = int(config.get("generator.task", "0"))
            self._tasks = int(config.get("generator.tasks", "1"))
            self.partition = {"generator": self._task, "of": self._tasks}
            self._fields = [tuple(text.split(":")) for text in values["fields"]]
            self._schema = None
            if text := values["schema.string"]:
                from connectx.connectors.generator.rows import RowSchema

                self._schema = RowSchema(text)
            names = [name for name, _ in self._fields] if self._schema is None else self._schema.fields
            unknown = [name for name in values["key.fields"] if name not in names]
            if unknown:
                raise ConfigError([f"Invalid value {unknown[0]} for configuration key.fields: no such field"])
            self._paced_from: tuple[float, int] | None = None

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """The rows that are due, without Spark."""
            made = int(offset["rows"]) if offset else 0
            rows = self._due(made)
            if rows <= 0:
                return None
            table = keyed_table(self._rows(made, rows), self._values["key.fields"])
            return Slice(table, {"rows": made + rows}, topic=self._values["topic"])

        def reread(self, spark: SparkSession, start: SourceOffset | None, end: SourceOffset | None) -> Iterator[Slice]:
            """The rows with these numbers; without `end` those up to max.rows, none without that."""
            made = int(start["rows"]) if start else 0
            last = int(end["rows"]) if end else self._values["max.rows"] or made
            while made < last:
                rows = min(_REREAD_ROWS, last - made)
                table = keyed_table(self._rows(made, rows), self._values["key.fields"])
                made += rows
                yield Slice(table, {"rows": made}, topic=self._values["topic"])

        def idle(self, offset: SourceOffset | None) -> None:
            """Wait until the next rows are due."""
            made = int(offset["rows"]) if offset else 0
            rate = self._values["rate"]
            if self._paced_from is None or not rate or self._left(made) == 0:
                self.context.wait(_IDLE_MS)
                return
            from_s, from_rows = self._paced_from
            due_s = from_s + (made + max(1.0, rate * _TICK_S) - from_rows) / rate
            self.context.wait(max(1, min(_IDLE_MS, int((due_s - time.monotonic()) * 1000) + 1)))

        def _left(self, made: int) -> int | None:
            maximum = self._values["max.rows"]
            return None if maximum is None else max(0, maximum - made)

        def _due(self, made: int) -> int:
            """Rows that may be made now; a delayed task catches up with one second at most."""
            most: int = self._values["rows.per.poll"]
            if (left := self._left(made)) is not None:
                most = min(most, left)
            rate = self._values["rate"]
            if not rate:
                return most
            now_s = time.monotonic()
            if self._paced_from is None or now_s - self._paced_from[0] > (made + 1 - self._paced_from[1]) / rate + 1.0:
                rows = min(most, 1 if self._paced_from is None else max(1, int(rate)))
                self._paced_from = (now_s, made + rows)
                return rows
            from_s, from_rows = self._paced_from
            return min(most, from_rows + int((now_s - from_s) * rate) - made)

        def _rows(self, made: int, rows: int) -> pa.Table:
            import numpy as np
            import pyarrow as pa

            ids = (np.arange(made, made + rows, dtype=np.int64)) * self._tasks + self._task
            if self._schema is not None:
                try:
                    return self._schema.rows(ids, self._values["seed"])
                except ValueError as error:  # a count that has outgrown its type
                    raise ConfigError([invalid_value("schema.string", "the schema", str(error))]) from error
            columns = {
                name: ids if name == "id" else _values(kind, _mixed(ids, at))
                for at, (name, kind) in enumerate(self._fields)
            }
            return pa.table(columns)


def _problems(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What does not go together, by key."""
    if config.get("fields") and config.get("schema.string"):
        return {"schema.string": ["fields and schema.string both define the rows: set one of them"]}
    return {}


def _mixed(ids: Any, field: int) -> Any:
    """A number below 2^64 per id and field that looks drawn by chance (SplitMix64)."""
    import numpy as np

    with np.errstate(over="ignore"):
        mixed = ids.astype(np.uint64) + np.uint64((field + 1) * 0x9E3779B97F4A7C15 % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return mixed ^ (mixed >> np.uint64(31))


def _values(kind: str, mixed: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    match kind:
        case "long":
            return (mixed % np.uint64(1_000_000)).astype(np.int64)
        case "double":
            return (mixed % np.uint64(1_000_000)).astype(np.float64) / 100
        case "boolean":
            return mixed % np.uint64(2) == 1
        case _:  # string
            return pa.array([f"text-{number:06d}" for number in (mixed % np.uint64(1_000_000)).tolist()])
