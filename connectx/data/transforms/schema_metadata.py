"""SetSchemaMetadata: name and version of the schema of keys or values.

Mirrors org.apache.kafka.connect.transforms.SetSchemaMetadata. Both are metadata of the table's column. Converters write
them into their schemas.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from connectx.data.chunks import one_chunk
from connectx.data.connect_schema import SchemaName
from connectx.data.transforms.api import KAFKA
from connectx.data.transforms.columns import replaced
from connectx.data.transforms.fields import NULLS, SideTransform
from connectx.errors.plugins import ConfigError, TransformError
from connectx.model.configdef import ConfigDef


class SetSchemaMetadata(SideTransform):
    """Sets the name, the version, or both of the schema of keys or values."""

    java_class = f"{KAFKA}SetSchemaMetadata"
    config = (
        ConfigDef()
        .define("schema.name", str, None, importance="HIGH", doc="Schema name to set, such as com.acme.Order.")
        .define("schema.version", int, None, importance="HIGH", doc="Schema version to set.")
        .define("replace.null.with.default", bool, True, doc=NULLS)
    )

    def configure(self) -> None:
        """One of both is set."""
        if self.settings["schema.name"] is None and self.settings["schema.version"] is None:
            raise ConfigError(["Neither schema name nor version configured"])

    def apply(self, table: pa.Table) -> pa.Table:
        """What is not set keeps its value. Null fields get their defaults, as in Java."""
        field, values = table.schema.field(self.side), one_chunk(table[self.side])
        if pa.types.is_null(field.type):
            return table
        if self.side in self.varied:
            raise TransformError("Schema required for [updating schema metadata]")
        if pa.types.is_struct(field.type) and not values.null_count:
            fields = self.fields(table, "updating schema metadata")
            values = fields.struct(list(fields.columns.values()))
        before = SchemaName.of(field)
        name, version = self.settings["schema.name"], self.settings["schema.version"]
        made = replace(
            before,
            name=before.name if name is None else name,
            version=before.version if version is None else version,
        )
        return replaced(table, self.side, values, made.on(field))
