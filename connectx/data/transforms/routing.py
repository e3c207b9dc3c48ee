"""Transformations of topics and times, and the one that drops records.

Mirror Filter, RegexRouter, TimestampRouter and TimestampConverter of org.apache.kafka.connect.transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import one_chunk
from connectx.data.transforms.api import KAFKA, Transform
from connectx.data.transforms.columns import TIME, TIMESTAMP, Column, moments, name_of, replaced
from connectx.data.transforms.date_format import DateFormat
from connectx.data.transforms.fields import NULLS, SideTransform
from connectx.errors.plugins import ConfigError, PatternError, TransformError
from connectx.model.configdef import ConfigDef, Validator, invalid_value
from connectx.model.patterns import compiled
from connectx.model.validators import one_of, valid_regex

_PER_MS: Final = {
    "seconds": (1000, 1),
    "milliseconds": (1, 1),
    "microseconds": (1, 1000),
    "nanoseconds": (1, 1_000_000),
}


class Filter(Transform):
    """Drops every record that it is applied to; its predicate selects them."""

    java_class = f"{KAFKA}Filter"
    reads = ()

    def apply(self, table: pa.Table) -> pa.Table:
        """Nothing is left."""
        return table.slice(0, 0)


class RegexRouter(Transform):
    """Renames topics that a regular expression matches as a whole."""

    java_class = f"{KAFKA}RegexRouter"
    reads = ("topic",)
    config = (
        ConfigDef()
        .define("regex", str, importance="HIGH", doc="What a topic has to match.", validator=valid_regex())
        .define("replacement", str, importance="HIGH", doc="The new name, with $1 for the first group.")
    )

    def configure(self) -> None:
        """Compile both."""
        self._regex, template = compiled(self.settings["regex"]), self.settings["replacement"]
        try:
            self._replacement = self._regex.replacement(template)
        except PatternError as error:
            raise ConfigError([invalid_value("replacement", template, error.reason)]) from error

    def apply(self, table: pa.Table) -> pa.Table:
        """Route each distinct topic once."""
        return replaced(table, "topic", mapped(one_chunk(table["topic"]), self._route))

    def _route(self, topic: str) -> str:
        return self._replacement.first_in(topic) if self._regex.matches(topic) else topic


def mapped(texts: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """Each different text changed once; null stays."""
    distinct = texts.dictionary_encode()
    changed = pa.array([change(text) for text in distinct.dictionary.to_pylist()], pa.string())
    return pc.take(changed, distinct.indices)


def _date_format_problem(value: Any) -> str | None:
    try:
        DateFormat(value or "")
    except ValueError as error:
        return f"A SimpleDateFormat is expected: {error}"
    return None


_DATE_FORMAT: Final = Validator(_date_format_problem, "SimpleDateFormat")


def _time_format_problem(value: Any) -> str | None:
    """The problem in the words of Java's TimestampConverter."""
    try:
        DateFormat(value or "")
    except ValueError as error:
        wanted = "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps"
        return f"Invalid value java.lang.IllegalArgumentException: {error} for configuration {wanted}: {value}"
    return None


class TimestampRouter(Transform):
    """Puts the time of a record into the name of its topic."""

    java_class = f"{KAFKA}TimestampRouter"
    reads = ("topic",)
    reads_time = True
    config = (
        ConfigDef()
        .define(
            "topic.format",
            str,
            "${topic}-${timestamp}",
            importance="HIGH",
            doc="The new name, with ${topic} and ${timestamp} for the topic and time of the record.",
        )
        .define(
            "timestamp.format",
            str,
            "yyyyMMdd",
            importance="HIGH",
            doc="How the time is written, in UTC (java.text.SimpleDateFormat).",
            validator=_DATE_FORMAT,
        )
    )

    def configure(self) -> None:
        """Take the format apart."""
        self._format = DateFormat(self.settings["timestamp.format"])

    def apply(self, table: pa.Table) -> pa.Table:
        """Every record needs a timestamp."""
        stamps = one_chunk(table["timestamp"])
        if stamps.null_count:
            raise TransformError("Timestamp missing on record")
        times = self._format.format(stamps.cast(pa.int64())).cast(pa.string())
        named = pa.array([self.settings["topic.format"]] * table.num_rows, pa.string())
        for placeholder, texts in (("${topic}", one_chunk(table["topic"])), ("${timestamp}", times)):
            pieces = pc.split_pattern(named, placeholder)
            named = pc.binary_join(pieces, texts)
        return replaced(table, "topic", named)


class TimestampConverter(SideTransform):
    """Converts times between text, numbers and Connect's Date, Time and Timestamp."""

    java_class = f"{KAFKA}TimestampConverter"
    config = (
        ConfigDef()
        .define("field", str, "", importance="HIGH", doc="The field with the time; empty when the whole is a time.")
        .define(
            "target.type",
            str,
            importance="HIGH",
            doc="string, unix, Date, Time or Timestamp.",
            validator=one_of("string", "unix", "Date", "Time", "Timestamp"),
        )
        .define(
            "format",
            str,
            "",
            doc="How text is written and read (java.text.SimpleDateFormat).",
            validator=Validator(_time_format_problem, "SimpleDateFormat", whole_message=True),
        )
        .define(
            "unix.precision",
            str,
            "milliseconds",
            importance="LOW",
            doc="Unit of numbers: seconds, milliseconds, microseconds or nanoseconds.",
            validator=one_of("nanoseconds", "microseconds", "milliseconds", "seconds"),
        )
        .define("replace.null.with.default", bool, True, doc=NULLS)
    )

    def configure(self) -> None:
        """Text needs a format."""
        if self.settings["target.type"] == "string" and not self.settings["format"].strip():
            raise ConfigError(
                ["TimestampConverter requires format option to be specified when using string timestamps"]
            )
        self._format = DateFormat(self.settings["format"]) if self.settings["format"].strip() else None

    def apply(self, table: pa.Table) -> pa.Table:
        """Nulls stay. A field that is not there changes nothing."""
        name = self.settings["field"]
        if not name:
            field, values = self._converted((table.schema.field(self.side), one_chunk(table[self.side])))
            return replaced(table, self.side, values, field)
        fields = self.fields(table, "converting timestamp formats")
        if fields.empty:
            return table
        columns = fields.with_missing([name])
        if name in columns:
            columns[name] = self._converted(columns[name])
        return fields.back(list(columns.values()))

    def _converted(self, column: Column) -> Column:
        """The schema has no name and no default."""
        field, values = column
        if self.side in self.varied and values.null_count == len(values):
            values = pa.nulls(len(values))  # without a schema there is nothing to refuse
        if not pa.types.is_null(values.type):
            values = self._written(self._read(moments(column)))
        return pa.field(field.name, values.type, field.nullable), values

    def _read(self, values: pa.Array) -> pa.Array:
        """Milliseconds since 1970."""
        kind, types = values.type, pa.types
        if types.is_timestamp(kind):
            return pc.floor_temporal(values, unit="millisecond").cast(pa.timestamp("ms", kind.tz)).cast(pa.int64())
        if types.is_time(kind):
            return values.cast(pa.time32("ms"), safe=False).cast(pa.int32()).cast(pa.int64())
        if types.is_date32(kind):
            return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), 86_400_000)
        if types.is_string(kind) or types.is_large_string(kind):
            if self._format is None:
                raise TransformError("Text cannot be read as a time without the setting format")
            return self._format.parse(values)
        if types.is_int64(kind):
            times, per_ms = _PER_MS[self.settings["unix.precision"]]
            return _saturated(values, times) if per_ms == 1 else pc.divide(values, per_ms)
        raise TransformError(f"Schema of type {name_of(kind)} does not correspond to a known timestamp type format")

    def _written(self, stamps_ms: pa.Array) -> pa.Array:
        match self.settings["target.type"]:
            case "string":
                assert self._format is not None, "checked"
                return self._format.format(stamps_ms).cast(pa.string())
            case "unix":
                times, per_ms = _PER_MS[self.settings["unix.precision"]]
                return _saturated(stamps_ms, per_ms) if times == 1 else pc.divide(stamps_ms, times)
            case "Date":
                return self._in_range(lambda: _floored(stamps_ms)[0].cast(pa.int32()).cast(pa.date32()))
            case "Time":
                return _floored(stamps_ms)[1].cast(pa.int32()).cast(TIME)
            case _:  # Timestamp
                return self._in_range(lambda: stamps_ms.cast(pa.timestamp("ms", "UTC")).cast(TIMESTAMP))

    def _in_range(self, written: Callable[[], pa.Array]) -> pa.Array:
        try:
            return written()
        except pa.ArrowInvalid as error:
            raise TransformError(f"A time is beyond the range of {self.settings['target.type']}: {error}") from error


def _saturated(numbers: pa.Array, times: int) -> pa.Array:
    """Products, or the nearest long, as java.util.concurrent.TimeUnit converts."""
    limit = (2**63 - 1) // times
    inside = pc.multiply(
        pc.min_element_wise(pc.max_element_wise(numbers, -limit, skip_nulls=False), limit, skip_nulls=False), times
    )
    inside = pc.if_else(pc.greater(numbers, limit), pa.scalar(2**63 - 1, pa.int64()), inside)
    return pc.if_else(pc.less(numbers, -limit), pa.scalar(-(2**63), pa.int64()), inside)


def _floored(stamps_ms: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Days since 1970, and milliseconds since midnight."""
    days, milliseconds = np.divmod(stamps_ms.fill_null(0).to_numpy(), 86_400_000)
    mask = stamps_ms.is_null().to_numpy(zero_copy_only=False)
    return pa.array(days, pa.int64(), mask=mask), pa.array(milliseconds, pa.int64(), mask=mask)
