"""Transformations of the fields of keys and values.

Mirror InsertField, ReplaceField, MaskField, ExtractField, HoistField, Flatten and ValueToKey of
org.apache.kafka.connect.transforms. A struct stands for Connect's Struct and for its Map without schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import one_chunk
from connectx.data.connect_schema import default_of, is_schemaless, with_default
from connectx.data.shapes import united
from connectx.data.transforms.api import KAFKA, Transform
from connectx.data.transforms.columns import (
    TIMESTAMP,
    Column,
    Fields,
    in_java_order,
    moments,
    name_of,
    replaced,
    require_all,
)
from connectx.errors.plugins import ConfigError, TransformError
from connectx.model.configdef import ConfigDef, Validator, invalid_value
from connectx.model.validators import distinct_list, non_empty, one_of

_OPTIONALITY: Final = "Suffix with '!' to make this a required field, or '?' to keep it optional (the default)."
_BIG_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?")
NULLS: Final = "Whether null fields that have a default in the schema get it."
NOT_EMPTY: Final = Validator(lambda value: None if value else "Empty list", "non-empty list")
_QUOTED_STEP: Final = re.compile(r"`((?:[^`]|`(?!\.|\Z)|(?<=\\)`(?=\.))*)(?<!\\)`(?:\.|\Z)")
"""A step of a path in backticks. Inside, a backtick before a dot has a backslash."""


class SideTransform(Transform):
    """Base of transformations with a $Key and a $Value variant; `side` is the column that they change."""

    side: ClassVar[str] = "value"

    @classmethod
    def variants(cls) -> tuple[type[Transform], ...]:
        """$Key and $Value."""
        base: Any = cls
        return () if "$" in cls.__name__ else (_variant(base, "key"), _variant(base, "value"))

    def fields(self, table: pa.Table, purpose: str) -> Fields:
        """Fields of this variant's side."""
        return Fields(table, self.side, purpose, self.varied, use_defaults=self.use_defaults)

    @property
    def use_defaults(self) -> bool:
        """Whether null fields get their defaults: always where there is no such setting."""
        return bool(self.settings.get("replace.null.with.default", True))


@cache
def _variant(cls: Any, side: str) -> type[SideTransform]:
    suffix = f"${side.title()}"
    given = {"side": side, "reads": (side,), "java_class": f"{cls.java_class}{suffix}", "__doc__": cls.__doc__}
    return type(f"{cls.__name__}{suffix}", (cls,), given)


class InsertField(SideTransform):
    """Adds attributes of the record, or a fixed text, as fields."""

    java_class = f"{KAFKA}InsertField"
    config = (
        ConfigDef()
        .define("topic.field", str, None, doc=f"Field for the topic. {_OPTIONALITY}")
        .define("partition.field", str, None, doc=f"Field for the partition. {_OPTIONALITY}")
        .define("offset.field", str, None, doc=f"Field for the offset, sinks only. {_OPTIONALITY}")
        .define("timestamp.field", str, None, doc=f"Field for the record's timestamp. {_OPTIONALITY}")
        .define("static.field", str, None, doc=f"Field for a fixed text. {_OPTIONALITY}")
        .define("static.value", str, None, doc="That text.")
        .define("replace.null.with.default", bool, True, doc=NULLS)
    )

    def configure(self) -> None:
        """Something has to be inserted."""
        given = {
            name: self.settings[f"{name}.field"] for name in ("topic", "partition", "offset", "timestamp", "static")
        }
        self._wanted = {name: spec for name, spec in given.items() if spec is not None}
        if not self._wanted:
            raise ConfigError(["No field insertion configured"])
        self.reads_time = "timestamp" in self._wanted
        if "static" in self._wanted and self.settings["static.value"] is None:
            reason = f"No value specified for static field: {self._wanted['static'].rstrip('?!')}"
            raise ConfigError([invalid_value("static.value", None, reason)])

    def apply(self, table: pa.Table) -> pa.Table:
        """Fields at the end, in the order of the keys."""
        fields = self.fields(table, "field insertion")
        if fields.empty:
            return table
        wanted = dict(self._wanted)
        if "timestamp" in wanted and self.side in self.varied and table["timestamp"].null_count == table.num_rows:
            del wanted["timestamp"]
        added = [self._column(fields, name, spec, table) for name, spec in wanted.items()]
        return fields.back([*fields.columns.values(), *added], optional=False)

    def _column(self, fields: Fields, name: str, spec: str, table: pa.Table) -> Column:
        if name == "static":
            values = pa.array([self.settings["static.value"]] * fields.count, pa.string())
        elif name not in table.column_names:
            raise TransformError("Offset insertion is only supported for sink connectors")
        else:
            values = one_chunk(table[name])
            if name == "timestamp":
                values = values.cast(pa.timestamp("ms", "UTC")).cast(TIMESTAMP)
        label = spec[:-1] if spec[-1:] in ("?", "!") else spec
        return pa.field(label, values.type, nullable=not spec.endswith("!")), values


def parts_of(mapping: str) -> list[str]:
    """Parts between colons, as Java's `split` has them: without empty ones at the end."""
    return mapping.rstrip(":").split(":")


def _pairs_problem(value: Any) -> str | None:
    wrong = [mapping for mapping in value or () if len(parts_of(mapping)) != 2]
    return f"Invalid rename mapping: {wrong[0]}" if wrong else None


class ReplaceField(SideTransform):
    """Leaves fields out or renames them."""

    java_class = f"{KAFKA}ReplaceField"
    config = (
        ConfigDef()
        .define(
            "exclude", list, [], doc="Fields to leave out; goes before include.", validator=distinct_list("exclude")
        )
        .define("include", list, [], doc="The only fields to keep, when given.", validator=distinct_list("include"))
        .define(
            "renames",
            list,
            [],
            doc="Pairs of names, as in foo:bar,abc:xyz.",
            validator=Validator(_pairs_problem, "list of colon-delimited pairs, e.g. foo:bar,abc:xyz"),
        )
        .define("replace.null.with.default", bool, True, doc=NULLS)
    )

    def configure(self) -> None:
        """Take the names apart."""
        self._renames = dict(map(parts_of, self.settings["renames"]))

    def apply(self, table: pa.Table) -> pa.Table:
        """Fields in their order."""
        fields = self.fields(table, "field replacement")
        if fields.empty:
            return table
        exclude, include = self.settings["exclude"], self.settings["include"]
        names = [name for name in fields.columns if name not in exclude and (not include or name in include)]
        made = [self._renames.get(name, name) for name in names]
        if fields.schemaless and len(set(made)) < len(made):
            names = in_java_order(names)
        columns = [
            (fields.columns[name][0].with_name(self._renames.get(name, name)), fields.columns[name][1])
            for name in names
        ]
        return fields.back(columns, optional=False)


class MaskField(SideTransform):
    """Puts the empty value of its type, or a replacement, in the place of what a field holds."""

    java_class = f"{KAFKA}MaskField"
    config = (
        ConfigDef()
        .define(
            "fields", list, importance="HIGH", doc="Fields to mask.", validator=distinct_list("fields", filled=True)
        )
        .define(
            "replacement",
            str,
            None,
            importance="LOW",
            doc="What to put in their place: numbers, or text that is not empty.",
            validator=non_empty(),
        )
        .define("replace.null.with.default", bool, True, importance="LOW", doc=NULLS)
    )

    def apply(self, table: pa.Table) -> pa.Table:
        """Nulls stay."""
        fields = self.fields(table, "mask fields")
        require_all(fields, "mask fields")
        masked = self.settings["fields"]
        return fields.back(
            [self._masked(column) if name in masked else column for name, column in fields.with_missing(masked).items()]
        )

    def _masked(self, column: Column) -> Column:
        field, values = column
        if values.null_count == len(values):
            return column
        if pa.types.is_struct(field.type) and self.side in self.varied and self.settings["replacement"] is None:
            field = field.with_type(pa.struct([]))
        filling = _empty(field.type) if self.settings["replacement"] is None else self._replacement(column)
        if not values.null_count:
            return field, pa.repeat(filling, len(values))
        rows = pc.if_else(values.is_valid(), pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64()))
        return field, pa.repeat(filling, 1).take(rows)

    def _replacement(self, column: Column) -> pa.Scalar:
        """As Java's Values converts text: bits of numbers are cut off."""
        text, kind, types = self.settings["replacement"], moments(column).type, pa.types
        if types.is_string(kind) or types.is_large_string(kind):
            return pa.scalar(text, kind)
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
            raise TransformError(f"Cannot mask value of type {name_of(kind)} with custom replacement.")
        if not _BIG_DECIMAL.fullmatch(text):
            raise TransformError(f"Unable to convert {text} (class java.lang.String) to number")
        number = Decimal(text)
        if types.is_integer(kind):
            return pa.scalar(narrowed(int(number), kind.bit_width), kind)
        if self.side in self.varied and types.is_decimal(kind):  # integers of more than 64 bits, longs in Java
            return pa.scalar(Decimal(narrowed(int(number), 64)), kind)
        try:
            return pa.scalar(number if types.is_decimal(kind) else float(number), kind)
        except pa.ArrowInvalid:
            raise TransformError(f"Unable to convert {text} to {kind}") from None


def narrowed(number: int, bits: int) -> int:
    """The lowest bits of a whole number, as Java narrows one."""
    low = number & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def _empty(kind: pa.DataType) -> pa.Scalar:
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind):
        return pa.scalar(0, kind)
    if types.is_boolean(kind):
        return pa.scalar(False, kind)
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.scalar("", kind)
    if types.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    if types.is_date32(kind) or types.is_time32(kind):
        return pa.scalar(0, pa.int32()).cast(kind)
    if types.is_temporal(kind):
        return pa.scalar(0, pa.int64()).cast(kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        return pa.scalar([], kind)
    if types.is_struct(kind) and not kind.num_fields:
        return pa.scalar({}, kind)
    raise TransformError(f"Cannot mask value of type: {name_of(kind)}")


class ValueToKey(Transform):
    """Makes a key of fields of the value."""

    java_class = f"{KAFKA}ValueToKey"
    reads = ("key", "value")
    config = (
        ConfigDef()
        .define(
            "fields",
            list,
            importance="HIGH",
            doc="Fields of the value that make the key.",
            validator=distinct_list("fields", filled=True),
        )
        .define("replace.null.with.default", bool, True, doc=NULLS)
    )

    def apply(self, table: pa.Table) -> pa.Table:
        """The key is a struct, also of one field."""
        purpose = "copying fields from value to key"
        use_defaults = self.settings["replace.null.with.default"]
        fields = Fields(table, "value", purpose, self.varied, use_defaults=use_defaults)
        require_all(fields, purpose)
        made = fields.struct([fields.column(name) for name in self.settings["fields"]])
        return replaced(table, "key", made, pa.field("key", made.type, nullable=False))


class ExtractField(SideTransform):
    """Puts one field in the place of the whole."""

    java_class = f"{KAFKA}ExtractField"
    config = (
        ConfigDef()
        .define("field", str, doc="Field to take.")
        .define(
            "field.syntax.version",
            str,
            "V1",
            importance="HIGH",
            doc="V1: the field's name. V2: a path, names with dots in backticks (KIP-821).",
            validator=one_of("V1", "V2", ignore_case=True),
        )
        .define("replace.null.with.default", bool, True, doc=NULLS)
    )

    def configure(self) -> None:
        """Take the path apart."""
        field = self.settings["field"]
        self._path = [field] if self.settings["field.syntax.version"].upper() == "V1" else _path(field)

    def apply(self, table: pa.Table) -> pa.Table:
        """Null where there is no key or value, or no such parent."""
        values, field = one_chunk(table[self.side]), pa.field(self.side, pa.null())
        for name in self._path:
            if pa.types.is_null(values.type) or (self.side in self.varied and values.null_count == len(values)):
                values, field = pa.nulls(len(values)), pa.field(self.side, pa.null())
                break
            if not pa.types.is_struct(values.type):
                raise TransformError(
                    f"Only Struct objects supported for [field extraction], found: {name_of(values.type)}"
                )
            index = values.type.get_field_index(name)
            if index < 0 and (self.side in self.varied or is_schemaless(values.type)):
                values, field = pa.nulls(len(values)), pa.field(self.side, pa.null())
                break
            if index < 0:
                raise TransformError(f"Unknown field: {self.settings['field']}")
            field, values = values.type.field(index), values.flatten()[index]
            if self.use_defaults or name != self._path[-1]:
                values = with_default(values, default_of(field))
        return replaced(table, self.side, values, field)


def _path(text: str) -> list[str]:
    """Names of a path, as SingleFieldPath takes it apart."""
    if not text:
        raise ConfigError([invalid_value("field", text, "A path names at least one field")])
    names, at = [], 0
    while at < len(text):
        if text[at] != "`":
            name = text[at:].partition(".")[0]
            at += len(name) + 1
        elif found := _QUOTED_STEP.match(text, at):
            name, at = found.group(1).replace("\\`.", "`."), found.end()
        else:
            where = f"consider adding a backslash before backtick at position {at} to escape it"
            raise ConfigError([f"Incomplete backtick pair in path: [{text}], {where}"])
        names.append(name)
    return [*names, ""] if text.endswith(".") else names


class HoistField(SideTransform):
    """Makes the whole the only field of a struct."""

    java_class = f"{KAFKA}HoistField"
    config = ConfigDef().define("field", str, doc="Name of the field.")

    def apply(self, table: pa.Table) -> pa.Table:
        """Also around null."""
        values = one_chunk(table[self.side])
        field = table.schema.field(self.side).with_name(self.settings["field"])
        made = pa.StructArray.from_arrays([values], fields=[field])
        return replaced(table, self.side, made, pa.field(self.side, made.type, nullable=False))


def _by_null_objects(values: pa.Array) -> list[Any]:
    """Numbers of the rows in which the same structs within a struct are null, at any depth."""
    nulls = _null_objects(values)
    if not nulls:
        return [np.arange(len(values))]
    patterns = np.unique(np.stack(nulls), axis=1, return_inverse=True)[1].reshape(-1)
    return [np.flatnonzero(patterns == each) for each in range(patterns.max() + 1)]


def _null_objects(values: pa.Array) -> list[Any]:
    """For each struct within a struct that is null in some rows only, in which."""
    found = []
    for inner in values.flatten():
        if pa.types.is_struct(inner.type) and inner.null_count < len(inner):
            if inner.null_count:
                found.append(inner.is_null().to_numpy(zero_copy_only=False))
            found += _null_objects(inner)
    return found


class Flatten(SideTransform):
    """Puts the fields of nested structs beside the others, under joined names."""

    java_class = f"{KAFKA}Flatten"
    config = ConfigDef().define("delimiter", str, ".", doc="What to put between names.")

    def apply(self, table: pa.Table) -> pa.Table:
        """Arrays stay as they are. Without schemas an object that is null in a record has no fields there."""
        fields = self.fields(table, "flattening")
        if fields.empty:
            return table
        if fields.schemaless and len(groups := _by_null_objects(one_chunk(table[self.side]))) > 1:
            parts = [(rows, one_chunk(self.apply(table.take(pa.array(rows)))[self.side])) for rows in groups]
            return replaced(table, self.side, united(parts), table.schema.field(self.side))
        flat = self._flat(fields.columns, "", list, schemaless=fields.schemaless)
        if fields.schemaless and len({field.name for field, _ in flat}) < len(flat):
            flat = self._flat(fields.columns, "", in_java_order, schemaless=True)
        return fields.back(flat, optional=False)

    def _flat(
        self,
        columns: Mapping[str, Column],
        prefix: str,
        order: Callable[[Collection[str]], list[str]],
        *,
        schemaless: bool,
        optional: bool = False,
    ) -> list[Column]:
        flat: list[Column] = []
        for name in order(columns.keys()):
            field, values = columns[name]
            label = f"{prefix}{self.settings['delimiter']}{name}" if prefix else name
            nullable = optional or field.nullable
            if pa.types.is_map(field.type):
                raise TransformError(
                    f"Flatten transformation does not support MAP for record with schemas (for field {label})."
                )
            if pa.types.is_struct(field.type):
                if schemaless and 0 < len(values) == values.null_count:
                    flat.append((pa.field(label, pa.null()), pa.nulls(len(values))))
                    continue
                inner = {part.name: (part, array) for part, array in zip(field.type, values.flatten(), strict=True)}
                flat += self._flat(inner, label, order, schemaless=schemaless, optional=nullable)
            else:
                flat.append((field.with_name(label).with_nullable(nullable), values))
        return flat
