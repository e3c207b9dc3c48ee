"""PostgresCdcSource and Debezium's connector for PostgreSQL in turns: same server, load, configuration and guarantee.

`python -m bench cdc_peer`. Each run has a new table, slot and topic: a snapshot, then backlogs of transactions that
were committed while the connector was stopped, then single changes. One configuration serves both sides.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import TopicPartition

from bench import cdc, flows
from bench.debezium import POSTGRES_SOURCE, postgres_on_loopback, postgres_source
from bench.flows import until
from bench.peer import FAST_PRODUCER, Run, Side, both_sides, compared, follow
from bench.plugins import plugin_folder
from connectx.kafka.broker import node
from connectx.kafka.broker.embedded import EmbeddedKafka

_SNAPSHOT: Final = "snapshot"
_SIZES: Final = (10_000, 100, 1)
"""Rows of a transaction."""

_LOADED: Final = """DO $$ BEGIN FOR at IN {first}..{last} BY {size} LOOP
INSERT INTO orders SELECT n, 'name-' || n, n + 0.5 FROM generate_series(at, least(at + {size} - 1, {last})) n;
COMMIT; END LOOP; END $$"""
_JSON: Final = {
    f"{side}.converter{key}": value
    for side in ("key", "value")
    for key, value in (("", "org.apache.kafka.connect.json.JsonConverter"), (".schemas.enable", "false"))
}


@dataclass(frozen=True)
class _Cost:
    """What one load took: changes/s, and processor time of worker and server in us a change."""

    run: Run
    worker_us: float
    server_us: float


_FIGURES: Final[Mapping[str, tuple[Callable[[_Cost], float], bool]]] = {
    "records_per_s": (lambda cost: cost.run.steady, False),
    "whole_run_records_per_s": (lambda cost: cost.run.whole, False),
    "worker_cpu_us_per_record": (lambda cost: cost.worker_us, True),
    "server_cpu_us_per_record": (lambda cost: cost.server_us, True),
}
"""What is reported of a load, and whether less is better."""


@dataclass
class _Samples:
    """By side; costs also by load."""

    costs: dict[tuple[str, str], list[_Cost]] = field(default_factory=lambda: defaultdict(list))
    latencies_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class _Database:
    """The server that both read."""

    port: int
    cursor: Any

    def __post_init__(self) -> None:
        self.cursor.execute("SELECT pg_backend_pid()")
        (pid,) = self.cursor.fetchone()
        self._postmaster = psutil.Process(pid).parent()

    def cpu_s(self) -> float:
        """Processor time of the server so far, processes that have ended included."""
        times = [process.cpu_times() for process in (self._postmaster, *self._postmaster.children())]
        return float(sum(time.user + time.system for time in times) + times[0].children_user + times[0].children_system)

    def execute(self, *statements: str) -> None:
        """Run statements."""
        for statement in statements:
            self.cursor.execute(statement)

    def fill(self, first: int, last: int, size: int) -> None:
        """Insert rows in transactions of `size` rows."""
        loaded = _LOADED.format(first=first, last=last, size=size)
        self.execute("SET synchronous_commit = off", loaded, "RESET synchronous_commit")

    def is_released(self, slot: str) -> bool:
        """Whether no connection reads the slot."""
        self.cursor.execute(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'")
        (active,) = self.cursor.fetchone()
        return active is False

    def drop_slot(self, slot: str) -> None:
        """Drop a slot as soon as no connection reads it."""
        until(lambda: self.is_released(slot))
        self.execute(f"SELECT pg_drop_replication_slot('{slot}')")


@contextmanager
def _database() -> Iterator[_Database]:
    import adbc_driver_postgresql.dbapi as adbc

    with postgres_on_loopback("wal_level=logical") as port:
        uri = f"postgresql://postgres@{node.HOST}:{port}/postgres"
        with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE PUBLICATION dbz_publication FOR ALL TABLES")
            yield _Database(port, cursor)


def measure_cdc_peer(count: int, rounds: int = 2) -> Iterator[dict[str, object]]:
    """A snapshot, backlogs and single changes in turns; the first round warms up and does not count."""
    samples = _Samples()
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(gate=False) as kafka, _database() as database:
        folder = Path(name)
        with both_sides(kafka, folder, "enabled", plugin_folder(folder, POSTGRES_SOURCE)) as sides:
            for number in range(rounds + 1):
                for side in sides:
                    _run(kafka, database, side, f"{side.name}_{number}", count, samples if number else _Samples())
    for load in (_SNAPSHOT, *map(_backlog, _SIZES)):
        for suffix, (figure, less_is_better) in _FIGURES.items():
            medians = {side.name: statistics.median(map(figure, samples.costs[load, side.name])) for side in sides}
            yield compared(f"cdc_{load}_{suffix}", medians, less_is_better=less_is_better)
    latencies = {name: statistics.median(found) for name, found in samples.latencies_ms.items()}
    yield compared("cdc_latency_p50_ms", latencies, less_is_better=True)


def _backlog(size: int) -> str:
    """Name of a load."""
    return f"transactions_of_{size}"


def _run(kafka: EmbeddedKafka, database: _Database, side: Side, name: str, count: int, samples: _Samples) -> None:
    """All loads of one side, `count` rows each; connector, slot and topics have the same name."""
    topic = f"{name}.public.orders"
    flows.create_topic(kafka, topic)
    database.execute("DROP TABLE IF EXISTS orders", cdc.CREATE)
    database.fill(1, count, count)
    consumer = flows.reader(kafka, topic, 0)

    def measured(load: str, start: Callable[[], None], base: int, last: int) -> None:
        """Follow a load until the record of the last row can be read: offsets count markers of transactions, too."""

        def progress() -> tuple[int, int]:
            arrived, end = flows.last_end(kafka, topic) - base, flows.committed_end(kafka, topic)
            if end - base < count:
                return arrived, end - base
            consumer.assign([TopicPartition(topic, 0, end - 5)])
            keys = [message.key() for message in consumer.consume(5, timeout=0.2)]
            return arrived, count if b'{"id":%d}' % last in keys else count - 1

        worker_s, server_s = side.cpu_s(), database.cpu_s()
        run = follow(start, count, progress)
        used_us = [(after - before) / count * 1e6
                   for before, after in ((worker_s, side.cpu_s()), (server_s, database.cpu_s()))]  # fmt: skip
        samples.costs[load, side.name].append(_Cost(run, *used_us))

    last = count
    measured(_SNAPSHOT, lambda: side.create(name, _config(database.port, name)), 0, last)
    for size in _SIZES:
        side.stop(name)
        until(lambda: database.is_released(name))
        database.fill(last + 1, last + count, size)
        last += count
        measured(_backlog(size), lambda: side.resume(name), flows.committed_end(kafka, topic), last)
    consumer.assign([TopicPartition(topic, 0, flows.committed_end(kafka, topic))])
    samples.latencies_ms[side.name] += list(cdc.change_and_see(database.cursor, consumer, last))[10:]
    consumer.close()
    side.delete(name)
    database.drop_slot(name)
    flows.delete_topic(kafka, topic)


def _config(port: int, name: str) -> Mapping[str, str]:
    """Of both sides: connectx knows the connector by the name of Debezium's class."""
    return {
        **postgres_source(port, name),
        "exactly.once.support": "required",
        "max.batch.size": "16384",
        "max.queue.size": "65536",
        "poll.interval.ms": "50",
        **FAST_PRODUCER,
        **_JSON,
    }
