"""Measures file, topic and table of the demo by readers that share no code with connectx.

The file is read with Python's csv module, the topic by a separate consumer with read_committed, the table by SQL.
All three compute the same numbers, so that they can be compared column by column.
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectx.demo.flights import COLUMNS, KEY, NULL_TEXT
from connectx.errors.demo import DemoError
from connectx.values import Value

if TYPE_CHECKING:
    from confluent_kafka import Consumer

SUMMED: Final = ("distance", "dep_delay", "arr_delay", "air_time")
COLUMN_NAMES: Final = tuple(column.name for column in COLUMNS)
_QUIET_S: Final = 30.0


class Measures(Value):
    """Numbers of one place.

    Attributes:
        rows: rows or records.
        keys: distinct flights among them.
        sums: sum of each column in SUMMED, nulls left out.
        checksum: sum over all rows of the first 32 bits of the MD5 of all 19 columns as text; needs no order.
    """

    rows: int
    keys: int
    sums: Mapping[str, int]
    checksum: int


@dataclass(slots=True)
class Count:
    """Computes the measures of a place, row by row."""

    rows: int = 0
    keys: set[tuple[str, ...]] = field(default_factory=set)
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUMMED, 0))
    checksum: int = 0

    def add(self, row: Mapping[str, str]) -> None:
        """Count a row given as text by column, null as the empty text."""
        self.rows += 1
        self.keys.add(tuple(row[name] for name in KEY))
        for name in SUMMED:
            if row[name]:
                self.sums[name] += int(row[name])
        line = "|".join([row[name] for name in COLUMN_NAMES])
        self.checksum += int.from_bytes(hashlib.md5(line.encode(), usedforsecurity=False).digest()[:4])

    def done(self) -> Measures:
        """The measures of all rows so far."""
        return Measures(self.rows, len(self.keys), dict(self.sums), self.checksum)


def measure_file(path: Path) -> Measures:
    """Read the CSV file."""
    count = Count()
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            count.add({name: "" if text == NULL_TEXT else text for name, text in row.items()})
    return count.done()


def measure_topic(bootstrap_servers: str, topic: str) -> Measures:
    """Read everything that a read_committed consumer sees of a topic, up to its present end.

    Raises:
        DemoError: the topic cannot be read, or does not come to its end.
    """
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "flights-verdict",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    count = Count()
    try:
        for value in _values(consumer, topic):
            count.add(as_text(json.loads(value)))
    except KafkaException as error:
        raise DemoError(f"The topic {topic} could not be read: {error.args[0].str()}.") from error
    finally:
        consumer.close()
    return count.done()


def _values(consumer: Consumer, topic: str) -> Iterable[bytes]:
    """Values of all records from the beginning to the end of each partition as it is now."""
    from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

    metadata = consumer.list_topics(topic, timeout=30).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    left = set(metadata.partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in sorted(left)])
    quiet_since = time.monotonic()
    while left:
        messages = consumer.consume(10_000, timeout=1.0)
        for message in messages:
            error = message.error()
            if error is None:
                yield message.value() or b"{}"
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise KafkaException(error)
        if messages:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > _QUIET_S:
            raise DemoError(
                f"Partitions {sorted(left)} of {topic} do not come to their end: a transaction is open.",
                next_step="Run the demo again; if it stays so, the history in the report shows who left it open.",
            )


def as_text(value: Mapping[str, Any]) -> dict[str, str]:
    """A record's value as the text that the file has."""
    row = {name: "" if value[name] is None else str(value[name]) for name in COLUMN_NAMES}
    if isinstance(value["time_hour"], int):  # milliseconds, as Kafka Connect's JsonConverter writes a Timestamp
        row["time_hour"] = datetime.fromtimestamp(value["time_hour"] / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return row


def table_sql(table: str) -> str:
    """SQL for one row with rows, keys, the sums and the checksum of a table with the flights' columns."""
    text = [
        """coalesce(to_char(time_hour AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), '')"""
        if name == "time_hour"
        else f"coalesce({name}::text, '')"
        for name in COLUMN_NAMES
    ]
    sums = ", ".join(f"coalesce(sum({name}), 0)::bigint" for name in SUMMED)
    line = f"concat_ws('|', {', '.join(text)})"
    checksum = f"coalesce(sum(('x' || substr(md5({line}), 1, 8))::bit(32)::bigint), 0)::bigint"
    # Grouping counts distinct keys much faster than count(DISTINCT (...)), which sorts.
    keys = f"(SELECT count(*) FROM (SELECT 1 FROM {table} GROUP BY {', '.join(KEY)}) AS keys)"
    return f"SELECT count(*), {keys}, {sums}, {checksum} FROM {table}"


def measure_table(uri: str, table: str) -> Measures:
    """Ask PostgreSQL.

    Raises:
        DemoError: the table cannot be read.
    """
    rows, keys, *sums, checksum = query(uri, table_sql(table))[0]
    return Measures(rows, keys, dict(zip(SUMMED, sums, strict=True)), checksum)


def query(uri: str, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a query, over a new connection. Raises DemoError."""
    with Reader(uri) as reader:
        return reader.query(sql)


class Reader:
    """A connection to PostgreSQL, for asking more than once: opening one takes longer than most questions.

    It queries on a separate thread: on the main thread the driver handles Ctrl-C itself, and may lose it.
    """

    def __init__(self, uri: str) -> None:
        from adbc_driver_postgresql import dbapi

        with _typed_errors():
            self._connection = dbapi.connect(uri, autocommit=True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="connectx-demo-reader")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query. Raises DemoError."""
        return self._thread.submit(self._ask, sql).result()

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        with _typed_errors(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.shutdown()
        self._connection.close()


@contextmanager
def _typed_errors() -> Iterator[None]:
    import adbc_driver_manager

    try:
        yield
    except adbc_driver_manager.Error as error:
        raise DemoError(f"PostgreSQL did not answer: {str(error).splitlines()[0]}.") from error
