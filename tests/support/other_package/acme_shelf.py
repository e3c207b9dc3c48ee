"""A package of another author: a source and a sink of shelves, which are directories of Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

import connectx as cx
from connectx.extras import Extra
from connectx.model.places import Place

CONFIG = cx.ConfigDef().define("shelf", str, doc="Directory of the shelf.")


class ShelfMissingError(cx.ConnectxError):
    """The directory does not exist."""

    code = "shelf_missing"


def places(config: Mapping[str, str | None]) -> list[Place]:
    return [Place(f"shelf {config.get('shelf')}", is_local=True)]


class ShelfSource(cx.SourceConnector):
    """Reads numbers from a shelf."""

    summary = "numbers"
    config = cx.ConfigDef(CONFIG).define("topic", str, doc="Topic that the rows go to.")
    java_class = "org.acme.shelf.ShelfSourceConnector"
    other_names = ("org.acme.old.Shelf",)
    version = "7.1"

    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> list[Place]:
        return places(config)

    class Task(cx.SourceTask):
        def start(self, config: Mapping[str, str], context: Any) -> None:
            super().start(config, context)
            if not Path(config["shelf"]).is_dir():
                raise ShelfMissingError(f"The shelf {config['shelf']} does not exist.")

        def poll(self, spark: Any, offset: Any) -> cx.Slice | None:
            return None if offset else cx.Slice(pa.table({"id": range(100)}), {"next": 100}, self.settings["topic"])

        def reread(self, spark: Any, start: Any, end: Any) -> Iterator[cx.Slice]:
            if start is None:
                yield cx.Slice(pa.table({"id": range(100)}), {"next": 100}, self.settings["topic"])


class ShelfSink(cx.SinkConnector):
    """Writes rows to a shelf."""

    summary = "rows of a shelf"
    config = CONFIG
    requires: ClassVar[tuple[tuple[Extra, str], ...]] = (("spark", "pyspark"),)
    version = "7.1"

    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> list[Place]:
        return places(config)

    @classmethod
    def stored(cls, config: Mapping[str, str | None], topic: str) -> cx.Stored:
        files = sorted(Path(config["shelf"] or "").glob("*.parquet"))
        return cx.Stored(f"shelf {config['shelf']}", lambda: (pq.read_table(file) for file in files))

    @classmethod
    def bulk_obstacle(cls, config: Mapping[str, str | None]) -> str | None:
        return None

    class Task(cx.SinkTask):
        reads_fields = True

        def write(self, rows: pa.Table, name: str) -> None:
            pq.write_table(pa.Table.from_struct_array(rows["value"].combine_chunks()), name)

        def put(self, batch: cx.SinkBatch) -> None:
            for at, (first, _) in batch.ranges.items():
                self.write(batch.rows, f"{self.settings['shelf']}/{at.topic}-{at.partition}-{first}.parquet")

        def stage(self, plan: Any, token: str, batches: Iterator[cx.SinkBatch]) -> Iterable[str]:
            for batch in batches:
                if batch.rows.num_rows:
                    ((first, _),) = batch.ranges.values()
                    staged = f"{self.settings['shelf']}/{token}-{first}.staged"
                    self.write(batch.rows, staged)
                    yield staged

        def commit(self, token: str, ranges: Any, messages: Sequence[str]) -> None:
            for staged in messages:
                Path(staged).rename(Path(staged).with_suffix(".parquet"))


class FarShelfSink(ShelfSink):
    """Writes rows to a shelf with a module that is not installed."""

    summary = "rows of a far shelf"
    requires = (("lake", "acme_far_shelf"),)
