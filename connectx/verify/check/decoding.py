"""Decodes records as a sink connector does: through its converters and transformations.

Records that the sink leaves out (a converter cannot read them, a transformation drops or refuses them) are no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from connectx.data.transforms.chain import ROW
from connectx.runtime.tasks.sink.conversion import Conversion, Wanted, keeps_values
from connectx.values import Value
from connectx.verify.check.sides import UNREADABLE, Values

if TYPE_CHECKING:
    import pyarrow as pa

    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.registry import Plugins
    from connectx.plugins.stored import Stored


class SinkDecoder(Value):
    """Decodes for one sink; a `connectx.verify.check.sides.Decode` that can be pickled, for executors.

    Args:
        wanted: types that keys and values should have, where they are known and no transformation changes them.
        line_of: `Stored.line_of`.
    """

    conversion: Conversion
    wanted: Wanted
    line_of: Callable[..., pa.Array] | None = None

    @classmethod
    def of(
        cls, plugins: Plugins, config: Mapping[str, str | None], worker: WorkerConfig, stored: Stored
    ) -> SinkDecoder:
        """For the connector with this configuration, and the rows of its target.

        Raises:
            ConfigError: a setting is wrong.
            PluginNotFoundError: a class cannot be found.
        """
        line_of = stored.line_of if stored.lines and not stored.key else None
        has_unknown_types = stored.value_type is None and (line_of is not None or not stored.lines)
        conversion = Conversion.of(
            plugins,
            config,
            worker,
            reads_fields=has_unknown_types,
            key_fields=stored.key if stored.key_in_record_key else None,
        )
        key_type = None if conversion.chain.reads("key") else stored.key_type
        return cls(conversion, Wanted(key_type, stored.value_type if keeps_values(conversion.chain) else None), line_of)

    def __call__(self, topic: str, records: pa.Table) -> Values:
        if not records.num_rows:
            return []
        table = self.conversion.decoded(records, topic, self.wanted)
        found: Values = [(None, UNREADABLE)] * records.num_rows
        errors = table["error"].to_pylist()
        read = table.drop_columns("error")
        if not self.conversion.chain:
            return [
                pair if error is None else bad
                for pair, error, bad in zip(self._pairs(read), errors, found, strict=True)
            ]
        good = [row for row, error in enumerate(errors) if error is None]
        for part in self.conversion.chain.apply(read.take(good)).parts:
            for row, pair in zip(part[ROW].to_pylist(), self._pairs(part), strict=True):
                found[good[row]] = pair
        return found

    def _pairs(self, table: pa.Table) -> list[tuple[Any, Any]]:
        values = table["value"]
        if self.line_of is not None:
            values = self.line_of(values, schemaless=not self.conversion.value_converter.has_schemas)
        return list(zip(table["key"].to_pylist(), values.to_pylist(), strict=True))
