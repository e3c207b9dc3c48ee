"""Converters and transformations of one sink task, for the worker and for Spark's executors.

Imports neither clients of Kafka nor Spark. It decides nothing about bad records: it reports which ones cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import rows_where
from connectx.data.converters import decode
from connectx.data.headers import HEADERS
from connectx.data.transforms.chain import in_order
from connectx.model.class_names import public_name
from connectx.values import Value

if TYPE_CHECKING:
    from connectx.data.converter import Converter
    from connectx.data.headers import HeaderConverter
    from connectx.data.transforms.chain import Chain
    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.registry import Plugins
    from connectx.plugins.tasks import SinkTask


class BadRecord(NamedTuple):
    """A record that cannot be read or transformed, by its row; `stage` is Kafka Connect's, `class_name` was at work."""

    row: int
    stage: str
    class_name: str
    cause: str


class Wanted(NamedTuple):
    """Types that a sink wants of keys and values without schemas; None: as in the record."""

    key: pa.DataType | None = None
    value: pa.DataType | None = None


class Conversion(Value):
    """What makes rows of fetched records."""

    key_converter: Converter
    value_converter: Converter
    header_converter: HeaderConverter
    chain: Chain

    @classmethod
    def of(
        cls,
        plugins: Plugins,
        config: Mapping[str, str | None],
        worker: WorkerConfig,
        *,
        reads_fields: bool,
        key_fields: Sequence[str] | None = None,
    ) -> Conversion:
        """From the settings of a connector and its worker.

        Args:
            reads_fields: the sink needs fields of values without schemas.
            key_fields: `SinkConnector.key_fields`.

        Raises:
            ConfigError: a setting is wrong.
            PluginNotFoundError: a class cannot be found.
        """
        chain = plugins.chain(config)
        key, value = plugins.converter("key", config, worker), plugins.converter("value", config, worker)
        # JSON without schemas is then read as structs of what is in it: transformations need fields.
        key.infers_fields = key_fields is not None or chain.reads("key")
        if key_fields is not None and len(key_fields) == 1 and not chain.reads("key"):
            (key.only_field,) = key_fields
        value.infers_fields = reads_fields or not keeps_values(chain)
        return cls(key, value, plugins.header_converter(config, worker), chain.reading(key, value))

    @property
    def classes(self) -> tuple[type, ...]:
        return type(self.key_converter), type(self.value_converter), *self.chain.classes

    def wanted(self, plugin: SinkTask, topic: str) -> Wanted:
        """The types that the plugin wants of a topic's keys and values, unless a transformation changes those."""
        return Wanted(
            None if self.chain.reads("key") or self.chain.reads("topic") else plugin.key_type(topic),
            plugin.value_type(topic) if keeps_values(self.chain) else None,
        )

    def decoded(self, raw: pa.Table, topic: str, wanted: Wanted) -> pa.Table:
        """Records of one topic with key, value and headers, and why one cannot be read in the column error.

        Raises:
            ConversionError: one type cannot hold all values.
        """
        types = {} if wanted.value is None else {topic: wanted.value}
        table = decode(raw, self.key_converter, self.value_converter, types, wanted.key)
        if self.header_converter.as_is:
            return table
        headers, errors = self.header_converter.read(table["headers"].cast(HEADERS))
        both = pc.coalesce(table["error"], errors)
        return table.drop_columns(["headers", "error"]).append_column("headers", headers).append_column("error", both)

    def read(
        self,
        raw: pa.Table,
        topic: str,
        wanted: Wanted,
        judge: Callable[[Sequence[BadRecord]], object],
    ) -> tuple[pa.Table, int]:
        """Rows of one topic's records, without the bad ones, and how many a transformation dropped.

        Args:
            judge: called with records that a converter cannot read, then with those that a transformation refuses; what
                it raises ends the call.

        Raises:
            ConversionError, TransformError: one type cannot hold all values.
        """
        table = self.decoded(raw, topic, wanted)
        good = table.drop_columns("error")
        numbers = None
        if table["error"].null_count < table.num_rows:
            bad = rows_where(pc.is_valid(table["error"])).to_pylist()
            causes = table["error"].take(bad).to_pylist()
            judge([BadRecord(row, *self._stage(cause), cause) for row, cause in zip(bad, causes, strict=True)])
            numbers = rows_where(pc.is_null(table["error"])).to_pylist()
            good = good.take(pa.array(numbers, pa.int64()))
        return self._transformed(good, numbers, judge) if self.chain else (good, 0)

    def _transformed(
        self, rows: pa.Table, numbers: Sequence[int] | None, judge: Callable[[Sequence[BadRecord]], object]
    ) -> tuple[pa.Table, int]:
        """Rows through the chain; `numbers` are those of rows among the fetched ones, None: the same."""
        made = self.chain.apply(rows)
        if made.failures:
            judge(
                [
                    BadRecord(
                        failure.row if numbers is None else numbers[failure.row],
                        "TRANSFORMATION",
                        public_name(failure.transform),
                        failure.message,
                    )
                    for failure in made.failures
                ]
            )
        return (in_order(made.parts) if made.parts else rows.slice(0, 0)), made.filtered

    def _stage(self, cause: str) -> tuple[str, str]:
        """Kafka Connect's stage of a converter's error, and the class at work."""
        if cause.startswith("Converting the key"):
            return "KEY_CONVERTER", public_name(type(self.key_converter))
        if cause.startswith("Converting the value"):
            return "VALUE_CONVERTER", public_name(type(self.value_converter))
        return "HEADER_CONVERTER", self.header_converter.name


def keeps_values(chain: Chain) -> bool:
    """True when values have the types that the sink wants of their topic: no transformation changes either."""
    return not (chain.reads("value") or chain.reads("topic"))
