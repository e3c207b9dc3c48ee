"""SetSchemaMetadata: name and version of the schema of keys or values.

Mirrors org.apache.kafka.connect.transforms.SetSchemaMetadata. Both are metadata of the table's column. Converters write
them into their schemas.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from connectx.data.connect_schema import SchemaName
from connectx.data.transforms.api import KAFKA
from connectx.data.transforms.fields import SideTransform
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef


class SetSchemaMetadata(SideTransform):
    """Sets the name, the version, or both of the schema of keys or values."""

    java_class = f"{KAFKA}SetSchemaMetadata"
    config = (
        ConfigDef()
        .define("schema.name", str, None, importance="HIGH", doc="Schema name to set, such as com.acme.Order.")
        .define("schema.version", int, None, importance="HIGH", doc="Schema version to set.")
        .define(
            "replace.null.with.default",
            bool,
            True,
            doc="Whether null fields that have a default in the schema get it; fields have no defaults here.",
        )
    )

    def configure(self) -> None:
        """One of both is set."""
        if self.settings["schema.name"] is None and self.settings["schema.version"] is None:
            raise ConfigError(["Neither schema name nor version configured"])

    def apply(self, table: pa.Table) -> pa.Table:
        """The rows stay as they are; what is not set keeps its value."""
        place = table.column_names.index(self.side)
        field = table.schema.field(place)
        before = SchemaName.of(field)
        name, version = self.settings["schema.name"], self.settings["schema.version"]
        made = replace(
            before,
            name=before.name if name is None else name,
            version=before.version if version is None else version,
        )
        return table.set_column(place, made.on(field), table[self.side])
