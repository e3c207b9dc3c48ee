"""Transformations of record headers, and the predicates.

Mirror HeaderFrom, InsertHeader and DropHeaders of org.apache.kafka.connect.transforms and
org.apache.kafka.connect.transforms.predicates. A header's value is its text.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import one_chunk
from connectx.data.transforms.api import KAFKA, Predicate, Transform
from connectx.data.transforms.columns import HEADERS, moments, replaced, require_all
from connectx.data.transforms.fields import NOT_EMPTY, NULLS, SideTransform
from connectx.data.transforms.texts import as_text
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef
from connectx.model.patterns import compiled
from connectx.model.validators import distinct_list, non_empty, non_null, one_of, valid_regex


class HeaderFrom(SideTransform):
    """Copies or moves fields to headers."""

    java_class = f"{KAFKA}HeaderFrom"
    config = (
        ConfigDef()
        .define("fields", list, importance="HIGH", doc="Fields to copy or move.", validator=NOT_EMPTY)
        .define(
            "headers", list, importance="HIGH", doc="Names of headers, in the order of fields.", validator=NOT_EMPTY
        )
        .define(
            "operation",
            str,
            importance="HIGH",
            doc="move takes the fields out of the key or value, copy leaves them there.",
            validator=one_of("move", "copy"),
        )
        .define("replace.null.with.default", bool, True, doc=NULLS)
    )

    def configure(self) -> None:
        """As many headers as fields."""
        if len(self.settings["fields"]) != len(self.settings["headers"]):
            raise ConfigError(["'fields' config must have the same number of elements as 'headers' config."])

    def apply(self, table: pa.Table) -> pa.Table:
        """Headers at the end, in order."""
        purpose = f"header {self.settings['operation']}"
        fields = self.fields(table, purpose)
        require_all(fields, purpose)
        if self.settings["operation"] == "move":
            left = [column for name, column in fields.columns.items() if name not in self.settings["fields"]]
            table = fields.back(left, optional=False)
        for header, name in zip(self.settings["headers"], self.settings["fields"], strict=True):
            text = as_text(moments(fields.column(name)), purpose, schemaless=fields.schemaless)
            table = with_header(table, header, text.cast(pa.binary()))
        return table


class InsertHeader(Transform):
    """Adds a header with a fixed value."""

    java_class = f"{KAFKA}InsertHeader"
    reads = ("headers",)
    config = (
        ConfigDef()
        .define("header", str, importance="HIGH", doc="Name of the header.", validator=non_null())
        .define("value.literal", str, importance="HIGH", doc="Its value.", validator=non_null())
    )

    def apply(self, table: pa.Table) -> pa.Table:
        """Every record gets it."""
        text = self.settings["value.literal"].encode()
        return with_header(table, self.settings["header"], pa.array([text] * table.num_rows, pa.binary()))


class DropHeaders(Transform):
    """Takes headers away by name."""

    java_class = f"{KAFKA}DropHeaders"
    reads = ("headers",)
    config = ConfigDef().define(
        "headers",
        list,
        importance="HIGH",
        doc="Names of headers to take away.",
        validator=distinct_list("headers", filled=True),
    )

    def apply(self, table: pa.Table) -> pa.Table:
        """All of these names."""
        headers = one_chunk(table["headers"])
        if headers.null_count == len(headers):
            return table
        dropped = set(self.settings["headers"])
        kept = [
            None if row is None else [header for header in row if header["key"] not in dropped]
            for row in headers.to_pylist()
        ]
        return replaced(table, "headers", pa.array(kept, HEADERS))


def with_header(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The table with one more header for each record."""
    added = pa.StructArray.from_arrays(
        [pa.array([name] * len(values), pa.string()), values], fields=list(HEADERS.value_type)
    )
    present = one_chunk(table["headers"])
    if present.null_count == len(present):
        offsets = pa.array(range(len(added) + 1), pa.int32())
        return replaced(table, "headers", pa.ListArray.from_arrays(offsets, added, type=HEADERS))
    rows = [[*(before or ()), header] for before, header in zip(present.to_pylist(), added.to_pylist(), strict=True)]
    return replaced(table, "headers", pa.array(rows, HEADERS))


class TopicNameMatches(Predicate):
    """True for records of topics that a regular expression matches as a whole."""

    java_class = f"{KAFKA}predicates.TopicNameMatches"
    reads = ()
    config = ConfigDef().define("pattern", str, doc="What the topic has to match.", validator=valid_regex(filled=True))

    def test(self, table: pa.Table) -> pa.Array:
        """Test each distinct topic once."""
        distinct = one_chunk(table["topic"]).dictionary_encode()
        pattern = compiled(self.settings["pattern"])
        matches = [pattern.matches(topic) for topic in distinct.dictionary.to_pylist()]
        return pc.fill_null(pc.take(pa.array(matches, pa.bool_()), distinct.indices), False)


class HasHeaderKey(Predicate):
    """True for records that have a header of that name."""

    java_class = f"{KAFKA}predicates.HasHeaderKey"
    reads = ()
    config = ConfigDef().define("name", str, doc="Name of the header.", validator=non_empty())

    def test(self, table: pa.Table) -> pa.Array:
        """Once or several times."""
        name = self.settings["name"]
        found: list[Any] = one_chunk(table["headers"]).to_pylist()
        return pa.array([any(header["key"] == name for header in row or ()) for row in found], pa.bool_())


class RecordIsTombstone(Predicate):
    """True for records without a value."""

    java_class = f"{KAFKA}predicates.RecordIsTombstone"
    reads = ()

    def test(self, table: pa.Table) -> pa.Array:
        """Null values."""
        return one_chunk(table["value"]).is_null()
