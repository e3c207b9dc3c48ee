"""Decodes records as a sink connector does: through its converters and transformations.

Records that the sink leaves out (a converter cannot read them, a transformation drops or refuses them) are no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from connectx.data.converters import decode
from connectx.data.transforms.chain import ROW
from connectx.data.transforms.columns import HEADERS
from connectx.runtime.tasks.sink.conversion import keeps_values
from connectx.verify.check.sides import UNREADABLE, Values

if TYPE_CHECKING:
    import pyarrow as pa

    from connectx.data.converter import Converter
    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.registry import Plugins
    from connectx.plugins.stored import Stored


@dataclass(frozen=True, slots=True)
class SinkDecoder:
    """Decodes for one sink; a `connectx.verify.check.sides.Decode`."""

    config: Mapping[str, str | None]
    stored: Stored
    plugins: Plugins
    worker: WorkerConfig

    @property
    def classes(self) -> tuple[type, ...]:
        """Classes of converters, transformations and predicates."""
        sides = (self._converter(side, fields=False) for side in ("key", "value"))
        return (*map(type, sides), *self.plugins.chain(self.config).classes)

    def __call__(self, topic: str, records: pa.Table) -> Values:
        """Key and value of each record."""
        if not records.num_rows:
            return []
        chain = self.plugins.chain(self.config)
        key = self._converter("key", fields=chain.reads("key"))
        wanted = self.stored.value_type
        has_unknown_types = wanted is None and not self.stored.lines
        value = self._converter("value", fields=has_unknown_types or not keeps_values(chain))
        types = {topic: wanted} if wanted is not None and keeps_values(chain) else None
        table = decode(records, key, value, types)
        headers = self.plugins.header_converter(self.config, self.worker)
        if not headers.as_is:
            read_headers, problems = headers.read(table["headers"].cast(HEADERS))
            both = pc.coalesce(table["error"], problems)
            table = table.drop_columns(["headers", "error"])
            table = table.append_column("headers", read_headers).append_column("error", both)
        found: Values = [(None, UNREADABLE)] * records.num_rows
        errors = table["error"].to_pylist()
        read = table.drop_columns("error")
        if not chain:
            return [
                pair if error is None else bad for pair, error, bad in zip(_pairs(read), errors, found, strict=True)
            ]
        good = [row for row, error in enumerate(errors) if error is None]
        for part in chain.reading(key, value).apply(read.take(good)).parts:
            for row, pair in zip(part[ROW].to_pylist(), _pairs(part), strict=True):
                found[good[row]] = pair
        return found

    def _converter(self, side: str, *, fields: bool) -> Converter:
        converter = self.plugins.converter(side, self.config, self.worker)
        converter.infers_fields = fields
        return converter


def _pairs(table: pa.Table) -> list[tuple[Any, Any]]:
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
