"""Kafka Connect 4.3 and connectx, one worker process each, in turns: same broker, configuration, data and guarantee.

`python -m bench peer` or `make bench-peer`. Each measurement has the figures of both and their ratio; above 1 connectx
is better.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from confluent_kafka import Producer

from bench import flows
from bench.debezium import JDBC_SINK, SINK_CLASS, postgres_on_loopback
from bench.flows import LINE_BYTES, STRINGS, until
from bench.plugins import plugin_folder
from connectx.kafka.broker import node
from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.java_worker import JavaWorker, peer_config
from tests.support.worker_processes import WorkerProcess

# Java's best: both compilers, and a heap that does not limit it.
_JAVA_OPTIONS = ("-Xms256m", "-Xmx2g", "-XX:+UseG1GC", "-Xshare:auto")
FAST_PRODUCER: Final = {
    "producer.override.linger.ms": "5",
    "producer.override.batch.size": "262144",
    "producer.override.buffer.memory": "67108864",
}
_FAST = {"batch.size": "20000", **FAST_PRODUCER, **STRINGS}
# One transaction each second costs both less than one each batch.
_EXACTLY_ONCE = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "1000"}
_SINK = {
    "consumer.override.max.poll.records": "10000",
    "consumer.override.fetch.min.bytes": "1000000",
    "consumer.override.fetch.max.wait.ms": "100",
    "consumer.override.max.partition.fetch.bytes": "8388608",
    "consumer.override.isolation.level": "read_committed",
    **STRINGS,
}


_STEADY: Final = (0.2, 0.9)
"""Parts of a run between which its steady rate is taken: without the connector's start and its last commit."""


@dataclass(frozen=True)
class Run:
    """Rates of one run, records/s: from the connector's creation to the last record, and in between."""

    whole: float
    steady: float


@dataclass(frozen=True)
class Side:
    """A worker that runs, and how long it took to serve its first request."""

    name: str
    url: str
    pid: int
    start_s: float

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, or replace its configuration."""

        def is_taken() -> bool:
            answer = httpx.put(f"{self.url}/connectors/{name}/config", json={"name": name, **config}, timeout=60)
            if answer.status_code != httpx.codes.CONFLICT:  # a rebalance is in progress
                answer.raise_for_status()
            return answer.is_success

        until(is_taken)

    def delete(self, name: str) -> None:
        """Delete a connector."""
        httpx.delete(f"{self.url}/connectors/{name}", timeout=60).raise_for_status()

    def stop(self, name: str) -> None:
        """Stop a connector, and wait until it has no task."""
        httpx.put(f"{self.url}/connectors/{name}/stop", timeout=60).raise_for_status()

        def is_stopped() -> bool:
            answer = httpx.get(f"{self.url}/connectors/{name}/status", timeout=60).json()
            return answer["connector"]["state"] == "STOPPED" and not answer["tasks"]

        until(is_stopped)

    def resume(self, name: str) -> None:
        """Start a stopped connector again."""
        httpx.put(f"{self.url}/connectors/{name}/resume", timeout=60).raise_for_status()

    def is_running(self, name: str) -> bool:
        """Whether the connector and a task of it run."""
        answer = httpx.get(f"{self.url}/connectors/{name}/status", timeout=60)
        tasks = answer.json().get("tasks", []) if answer.is_success else []
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

    def memory_mb(self) -> float:
        """Resident memory of the process."""
        return float(psutil.Process(self.pid).memory_info().rss / 2**20)

    def cpu_s(self) -> float:
        """Processor time of the process so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)


def java_side(config: Mapping[str, str], folder: Path, endings: ExitStack) -> Side:
    """Start a Java worker; `endings` kills it."""
    began_s = time.monotonic()
    worker = JavaWorker(config, folder, _JAVA_OPTIONS)
    endings.callback(worker.kill)
    worker.wait_ready()
    return Side("kafka_connect", worker.url, worker.process.pid, time.monotonic() - began_s)


def connectx_side(config: Mapping[str, str], folder: Path, endings: ExitStack) -> Side:
    """Start a `connectx worker`; `endings` kills it."""
    began_s = time.monotonic()
    worker = WorkerProcess(folder, **{key.replace(".", "_"): value for key, value in config.items()})
    endings.callback(worker.process.kill)
    url = worker.wait_url()
    until(lambda: httpx.get(f"{url}/connectors", timeout=60).is_success)
    return Side("connectx", url, worker.process.pid, time.monotonic() - began_s)


@contextmanager
def both_sides(
    kafka: EmbeddedKafka, folder: Path, support: str, plugins: Path | None = None, discovery: str = "service_load"
) -> Iterator[tuple[Side, Side]]:
    """A Java worker, with plugin.path and plugin.discovery, and a connectx worker on one broker, in separate groups."""
    settings = {"exactly_once_source_support": support, "connector_client_config_override_policy": "All"}
    java = peer_config(kafka.bootstrap_servers, f"java-{support}", **settings)
    python = peer_config(kafka.bootstrap_servers, f"python-{support}", **settings)
    with ExitStack() as endings:
        path = {} if plugins is None else {"plugin.path": str(plugins), "plugin.discovery": discovery}
        theirs = java_side({**java, **path}, folder / f"java-{support}", endings)
        yield theirs, connectx_side(python, folder / f"python-{support}", endings)


def measure_peer(count: int, rounds: int = 3) -> Iterator[dict[str, object]]:
    """Sources, sinks, latency, REST with 500 connectors, start, memory, failover."""
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(gate=False) as kafka:
        folder = Path(name)
        path = flows.lines_file(folder, count)
        flows.create_topic(kafka, "filled", 1)
        flows.fill(kafka, "filled", (f"{i:09d}-".ljust(LINE_BYTES, "x").encode() for i in range(count)))
        for support in ("enabled", "disabled"):
            plugins = plugin_folder(folder, JDBC_SINK) if support == "disabled" else None
            with both_sides(kafka, folder, support, plugins) as sides:
                if support == "enabled":
                    yield compared("start_s", _by_side(sides, lambda side: side.start_s), less_is_better=True)
                guarantee = "exactly_once" if support == "enabled" else "at_least_once"
                more = _EXACTLY_ONCE if support == "enabled" else {}
                yield from rates(f"source_{guarantee}", sides, rounds, FileSourceRun(kafka, path, count, more))
                if support == "enabled":
                    yield from rates("mirror_exactly_once", sides, rounds, _Mirror(kafka, count))
                if support == "disabled":
                    yield from rates("file_sink", sides, rounds, FileSinkRun(folder, count))
                    with postgres_on_loopback() as port:
                        yield from rates("postgres_upsert", sides, rounds, _Upsert(kafka, port, count // 5))
                    yield compared("latency_p50_ms", _latencies(kafka, sides, folder), less_is_better=True)
                    yield compared("memory_mb", _by_side(sides, Side.memory_mb), less_is_better=True)
                    yield compared("rest_500_connectors_ms", _rest(sides, folder), less_is_better=True)
        yield compared("failover_s", _failovers(kafka, folder), less_is_better=True)


def _followed(
    side: Side, name: str, config: Mapping[str, str], count: int, progress: Callable[[], tuple[int, int]]
) -> Run:
    """Create a connector and follow it to its end, then delete it."""
    run = follow(lambda: side.create(name, config), count, progress)
    side.delete(name)
    return run


def follow(start: Callable[[], None], count: int, progress: Callable[[], tuple[int, int]]) -> Run:
    """Start a flow and follow it to its end.

    Args:
        progress: returns how many records have arrived, and how many of them count as done.
    """
    began_s = time.monotonic()
    start()
    marks: list[tuple[float, int]] = []

    def is_done() -> bool:
        arrived, done = progress()
        if len(marks) < len(_STEADY) and arrived >= _STEADY[len(marks)] * count:
            marks.append((time.monotonic(), arrived))
        return done >= count

    until(is_done)
    whole = count / (time.monotonic() - began_s)
    (first_s, first), (last_s, last) = marks[0], marks[-1]
    return Run(whole, (last - first) / (last_s - first_s) if len(marks) == len(_STEADY) else whole)


@dataclass
class FileSourceRun:
    """One run of a FileStreamSource: from its creation until all lines can be read committed.

    `more` are settings of both sides, `own` those of each, by its name.
    """

    kafka: EmbeddedKafka
    path: Path
    count: int
    more: Mapping[str, str]
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __call__(self, side: Side, number: int) -> Run:
        topic = f"in-{side.name}-{len(self.more)}-{number}"
        run = self.fill(side, topic)
        flows.delete_topic(self.kafka, topic)
        return run

    def fill(self, side: Side, topic: str) -> Run:
        """Write all lines to a new topic."""
        flows.create_topic(self.kafka, topic)
        config = {"connector.class": "FileStreamSource", "file": str(self.path), "topic": topic, "tasks.max": "1"}

        def progress() -> tuple[int, int]:
            return flows.last_end(self.kafka, topic), flows.committed_end(self.kafka, topic)

        settings = {**config, **_FAST, **self.more, **self.own.get(side.name, {})}
        return _followed(side, topic, settings, self.count, progress)


@dataclass
class _Mirror:
    """One run of MirrorMaker 2's source connector, or of MirrorSource, until a copy of the topic can be read committed.

    Both clusters are the same broker. Each run has another alias, and so another target topic.
    """

    kafka: EmbeddedKafka
    count: int

    def __call__(self, side: Side, number: int) -> Run:
        name = f"mirror-{side.name}-{number}"
        target = f"{name}.filled"
        flows.create_topic(self.kafka, target)
        bytes_converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
        config = {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": name,
            "source.cluster.bootstrap.servers": self.kafka.bootstrap_servers,
            "target.cluster.alias": "target",
            "target.cluster.bootstrap.servers": self.kafka.bootstrap_servers,
            "source.consumer.isolation.level": "read_committed",
            "source.consumer.max.poll.records": "20000",
            "source.consumer.fetch.min.bytes": "1000000",
            "source.consumer.max.partition.fetch.bytes": "8388608",
            "topics": "filled",
            "replication.factor": "1",
            "emit.offset-syncs.enabled": "false",
            "sync.topic.acls.enabled": "false",
            "sync.topic.configs.enabled": "false",
            "tasks.max": "1",
        }
        converters = {f"{part}.converter": bytes_converter for part in ("key", "value", "header")}

        def progress() -> tuple[int, int]:
            return flows.last_end(self.kafka, target), flows.committed_end(self.kafka, target)

        run = _followed(side, name, {**_FAST, **_EXACTLY_ONCE, **config, **converters}, self.count, progress)
        flows.delete_topic(self.kafka, target)
        return run


@dataclass
class FileSinkRun:
    """One run of a FileStreamSink: from its creation until all lines of a topic are in the file.

    `more` are settings of both sides, `own` those of each, by its name.
    """

    folder: Path
    count: int
    topic: str = "filled"
    more: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __call__(self, side: Side, number: int) -> Run:
        name = f"out-{side.name}-{number}"
        path = self.folder / name
        config = {"connector.class": "FileStreamSink", "file": str(path), "topics": self.topic, "tasks.max": "1"}

        def progress() -> tuple[int, int]:
            lines = path.stat().st_size // (LINE_BYTES + 1) if path.exists() else 0
            return lines, lines

        settings = {**config, **_SINK, **self.more, **self.own.get(side.name, {})}
        run = _followed(side, name, settings, self.count, progress)
        path.unlink()
        return run


@dataclass
class _Upsert:
    """One run of a sink that upserts rows into an empty table of PostgreSQL, until all are there."""

    kafka: EmbeddedKafka
    port: int
    count: int

    def __post_init__(self) -> None:
        fields = [{"field": "id", "type": "int64"}, {"field": "name", "type": "string"}]
        schema = {"type": "struct", "fields": [*fields, {"field": "amount", "type": "double"}]}
        head = b'{"schema":' + json.dumps(schema).encode() + b',"payload":{"id":'
        flows.create_topic(self.kafka, "rows", 1)
        flows.fill(
            self.kafka, "rows", (head + b'%d,"name":"name-%d","amount":%d.5}}' % (i, i, i) for i in range(self.count))
        )
        with self._cursor() as cursor:
            cursor.execute("create table rows (id bigint primary key, name text, amount double precision)")

    def __call__(self, side: Side, number: int) -> Run:
        name = f"rows-{side.name}-{number}"
        address = f"postgresql://{node.HOST}:{self.port}/postgres"
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        both = {"topics": "rows", "tasks.max": "1", "insert.mode": "upsert", "value.converter": json_converter}
        own = {
            "kafka_connect": {
                "connector.class": SINK_CLASS,
                "connection.url": f"jdbc:{address}?reWriteBatchedInserts=true",
                "connection.username": "postgres",
                "connection.password": "any",
                "primary.key.mode": "record_value",
                "primary.key.fields": "id",
                "collection.name.format": "rows",
                "schema.evolution": "none",
                "batch.size": "5000",
            },
            "connectx": {
                "connector.class": "PostgresSink",
                "connection.url": address,
                "connection.user": "postgres",
                "pk.mode": "record_value",
                "pk.fields": "id",
            },
        }[side.name]
        with self._cursor() as cursor:
            cursor.execute("truncate table rows")

            def progress() -> tuple[int, int]:
                cursor.execute("select max(id) from rows")  # of the primary key; one partition, so they come in order
                rows = (cursor.fetchone()[0] or -1) + 1
                return rows, rows

            return _followed(side, name, {**_SINK, **both, **own}, self.count, progress)

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        import adbc_driver_postgresql.dbapi as adbc

        address = f"postgresql://postgres@{node.HOST}:{self.port}/postgres"
        with adbc.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
            yield cursor


def _failovers(kafka: EmbeddedKafka, folder: Path) -> dict[str, float]:
    """From SIGKILL of the worker that runs a source to the next line that can be read committed; delay 0."""
    found: dict[str, float] = {}
    for start, name in ((java_side, "java"), (connectx_side, "python")):
        with ExitStack() as endings:
            config = peer_config(kafka.bootstrap_servers, f"failover-{name}")
            sides = [start(config, folder / f"failover-{name}-{number}", endings) for number in (1, 2)]
            path, topic = folder / f"failover-{name}.txt", f"failover-{name}"
            path.write_text("before\n")
            flows.create_topic(kafka, topic)
            source = {"connector.class": "FileStreamSource", "file": str(path), "topic": topic, "tasks.max": "1"}
            sides[0].create(topic, {**source, **STRINGS})
            until(lambda topic=topic: flows.committed_end(kafka, topic) >= 1)
            answer = httpx.get(f"{sides[0].url}/connectors/{topic}/status", timeout=60).json()
            owner = next(side for side in sides if side.url.endswith(answer["tasks"][0]["worker_id"]))
            end = flows.committed_end(kafka, topic)
            psutil.Process(owner.pid).kill()
            began_s = time.monotonic()
            with path.open("a") as lines:
                lines.write("after\n")
            until(lambda topic=topic, end=end: flows.committed_end(kafka, topic) > end)
            found[owner.name] = time.monotonic() - began_s
    return found


def rates(
    measure: str, sides: tuple[Side, Side], rounds: int, follow: FileSourceRun | _Mirror | FileSinkRun | _Upsert
) -> Iterator[dict[str, object]]:
    """Records/s of both in turns; the first round warms up and does not count. Also processor time a record."""
    runs: dict[str, list[Run]] = {side.name: [] for side in sides}
    cpu_s = dict.fromkeys(runs, 0.0)
    for number in range(rounds + 1):
        for side in sides:
            before_s = side.cpu_s()
            run = follow(side, number)
            if number:
                runs[side.name].append(run)
                cpu_s[side.name] += side.cpu_s() - before_s
    steady = {name: statistics.median(run.steady for run in found) for name, found in runs.items()}
    yield compared(f"{measure}_records_per_s", steady)
    whole = {name: statistics.median(run.whole for run in found) for name, found in runs.items()}
    yield compared(f"{measure}_whole_run_records_per_s", whole)
    micros = {name: seconds / rounds / follow.count * 1e6 for name, seconds in cpu_s.items()}
    yield compared(f"{measure}_worker_cpu_us_per_record", micros, less_is_better=True)


def _latencies(kafka: EmbeddedKafka, sides: tuple[Side, Side], folder: Path) -> dict[str, float]:
    """Median from a produced record to its line in the sink's file."""
    found: dict[str, float] = {}
    for side in sides:
        topic, path = f"latency-{side.name}", folder / f"latency-{side.name}"
        flows.create_topic(kafka, topic)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
        config = {"connector.class": "FileStreamSink", "file": str(path), "topics": topic, "tasks.max": "1"}
        side.create(topic, {**config, **STRINGS})
        until(lambda side=side, topic=topic: side.is_running(topic))
        samples = list(flows.produce_and_see(producer, topic, path, 60))
        found[side.name] = statistics.median(samples[10:])
        side.delete(topic)
    return found


def _rest(sides: tuple[Side, Side], folder: Path) -> dict[str, float]:
    """Median time of `GET /connectors?expand=status&expand=info` with 500 connectors without work."""
    found: dict[str, float] = {}
    empty = folder / "empty"
    empty.touch()
    for side in sides:
        with httpx.Client(base_url=side.url, timeout=120) as client:
            for number in range(500):
                config = {"connector.class": "FileStreamSource", "file": str(empty), "topic": "none", "tasks.max": "1"}
                side.create(f"idle-{number}", {**config, **STRINGS})
            until(lambda client=client: len(client.get("/connectors").json()) >= 500)
            samples = []
            for _ in range(10):
                began_s = time.monotonic()
                client.get("/connectors", params={"expand": ["status", "info"]}).raise_for_status()
                samples.append((time.monotonic() - began_s) * 1000)
            found[side.name] = statistics.median(samples)
    return found


def _by_side(sides: tuple[Side, Side], figure: Callable[[Side], float]) -> dict[str, float]:
    return {side.name: figure(side) for side in sides}


def compared(measure: str, figures: Mapping[str, float], *, less_is_better: bool = False) -> dict[str, object]:
    theirs, ours = figures["kafka_connect"], figures["connectx"]
    ratio = theirs / ours if less_is_better else ours / theirs
    return {
        "measure": measure,
        "kafka_connect": float(f"{theirs:.3g}"),
        "connectx": float(f"{ours:.3g}"),
        "ratio": round(ratio, 2),
    }
