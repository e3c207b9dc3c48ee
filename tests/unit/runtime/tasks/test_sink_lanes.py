"""Both lanes of a sink give the same rows, offsets and dead letters, for each converter, transformation and connector.

Records are read in chunks of any size, and executors get parts of any size: neither may show in the result.
"""

from __future__ import annotations

import json
import pickle
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

from connectx.core.messages import PrepareTask
from connectx.core.sink import messages as m
from connectx.data.converter import Converter
from connectx.data.converters import encode_readable
from connectx.data.json.converter import JsonConverter
from connectx.data.registry.converter import RegistryConverter
from connectx.data.simple import StringConverter
from connectx.history.clock import system_clock
from connectx.kafka.fetcher.chunks import SCHEMA
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TaskId, TopicPartition
from connectx.model.states import TargetState
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.hidden_values import HiddenValues
from connectx.plugins.registry import Plugins
from connectx.plugins.slices import SinkBatch
from connectx.runtime.tasks.record_errors import RecordErrors
from connectx.runtime.tasks.services import TaskServices
from connectx.runtime.tasks.sink import bulk, staging
from connectx.runtime.tasks.sink.bulk import BulkJobs, report_staged
from connectx.runtime.tasks.sink.context import SinkContext
from connectx.runtime.tasks.sink.dead_letters import DeadLetter, DeadLetterQueue
from connectx.runtime.tasks.sink.records import FetchedRecords
from connectx.runtime.tasks.sink.setup import SinkSetup, set_up
from tests.support.json_lines import JsonLines, lines_in, named
from tests.support.kept_rows import KeptRows, Row
from tests.support.lane_cases import CHAINS, KINDS, TOPIC, rows
from tests.support.profiles import STRINGS, dotted
from tests.support.shipped import CONVERTERS
from tests.support.waiting import until

pytestmark = pytest.mark.rule("always.8")

Value = bytes | None
Values = Callable[[random.Random], Value]
PARTITIONS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
RECORDS = 60
SIDES = ("key", "value")
JSON = "org.apache.kafka.connect.json.JsonConverter"
APACHE = "org.apache.kafka.connect.transforms"


def plain(chance: random.Random) -> Value:
    """JSON without schemas: nested, with missing fields and nulls, broken, or no value at all."""
    if (kind := chance.random()) < 0.2:
        return chance.choice([None, b"null", b'{"id":', b"", b"\xff\xfe", b'{"id": 1} x', b"nonsense"])
    row: dict[str, Any] = {
        "id": chance.randrange(-(2**62), 2**62),
        "amount": chance.choice([0.1, -0.0, 1e300, 12, None]),
        "name": chance.choice(["", "Ünï", "a'b", None, "2020-01-01"]),
        "on": chance.choice([True, False, None]),
        "at": chance.choice([None, {"city": "c", "tags": ["a", None]}, {"city": None, "tags": []}, {"tags": None}]),
    }
    return json.dumps({name: item for name, item in row.items() if kind < 0.8 or chance.random() < 0.8}).encode()


FIRST = b'{"id":1,"amount":0.5,"name":"n","on":true,"at":{"city":"c","tags":["t"]}}'
STRUCT = {
    "type": "struct",
    "optional": True,
    "fields": [
        {"field": "id", "type": "int32", "optional": False},
        {"field": "amount", "type": "double", "optional": True},
        {"field": "tags", "type": "array", "items": {"type": "string", "optional": True}, "optional": True},
        {"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1, "optional": True},
        {"field": "raw", "type": "bytes", "optional": True},
    ],
}


def with_schema(chance: random.Random) -> Value:
    """JSON with schemas, of which some do not fit, and tombstones."""
    if chance.random() < 0.2:
        bad = {"schema": STRUCT, "payload": {"id": "text"}}
        return chance.choice([None, b"{}", b'{"payload":1}', b"{", json.dumps(bad).encode()])
    row = {
        "id": chance.randrange(-(2**31), 2**31),
        "amount": chance.choice([0.25, 3, None, -1e-9]),
        "tags": chance.choice([None, [], ["a", None, "ü"]]),
        "day": chance.choice([0, 18_000, None]),
        "raw": chance.choice(["AAEC", "", None]),
    }
    return json.dumps({"schema": STRUCT, "payload": row}).encode()


FIRST_WITH_SCHEMA = json.dumps(
    {"schema": STRUCT, "payload": {"id": 1, "amount": 0.5, "tags": ["a"], "day": 1, "raw": "AA=="}}
).encode()


def packed(code: str) -> Values:
    """Numbers of a fixed width, some of them cut off."""

    def make(chance: random.Random) -> Value:
        data = struct.pack(code, chance.choice([0, 1, -1, 7]))
        return chance.choice([data, data, data, data[:-1], data + b"0", None, b""])

    return make


def texts(chance: random.Random) -> Value:
    return chance.choice([b"a", "ü".encode(), b"", b"\xff", None, b"5"])


def converter(name: str) -> dict[str, str]:
    return {"value.converter": f"org.apache.kafka.connect.converters.{name}Converter"}


def chain(*steps: tuple[str, str], **settings: str) -> dict[str, str]:
    config = {"transforms": ",".join(alias for alias, _ in steps)}
    config |= {f"transforms.{alias}.type": f"{APACHE}.{kind}" for alias, kind in steps}
    return config | {name.replace("__", "."): text for name, text in settings.items()}


NO_SCHEMA = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
INSERT = chain(
    ("mask", "MaskField$Value"),
    ("place", "InsertField$Value"),
    transforms__mask__fields="name",
    transforms__place__partition__field="part",
    transforms__place__offset__field="log_offset",
    transforms__place__timestamp__field="happened",
)
FILTER = chain(
    ("drop", "Filter"),
    transforms__drop__predicate="none",
    predicates="none",
    predicates__none__type=f"{APACHE}.predicates.RecordIsTombstone",
)
CAST = chain(("cast", "Cast$Value"), transforms__cast__spec="name:int64,on:string")
SHAPE = chain(
    ("replace", "ReplaceField$Value"),
    ("flat", "Flatten$Value"),
    transforms__replace__renames="id:number",
    transforms__replace__exclude="on",
    transforms__flat__delimiter="_",
)
KEYS = chain(
    ("key", "ValueToKey"),
    ("hoist", "HoistField$Value"),
    transforms__key__fields="id",
    transforms__hoist__field="row",
)
TIME = chain(
    ("time", "TimestampConverter$Value"),
    transforms__time__field="name",
    transforms__time__target__type="Timestamp",
    transforms__time__format="yyyy-MM-dd",
)
DATED = b'{"id":1,"amount":0.5,"name":"2020-01-01","on":true,"at":{"city":"c","tags":["t"]}}'
NUMBERED = FIRST.replace(b'"n"', b'"12"')

CASES: Mapping[str, tuple[Mapping[str, str], bytes, Values]] = {
    "json": (NO_SCHEMA, FIRST, plain),
    "json with schemas": ({"value.converter": JSON}, FIRST_WITH_SCHEMA, with_schema),
    "strings": ({"value.converter": STRINGS}, b"first", texts),
    "bytes": (converter("ByteArray"), b"first", texts),
    "booleans": (converter("Boolean"), b"\x01", lambda chance: chance.choice([b"\x00", b"\x01", b"\x02", b"", None])),
    "shorts": (converter("Short"), struct.pack(">h", 5), packed(">h")),
    "integers": (converter("Integer"), struct.pack(">i", 5), packed(">i")),
    "longs": (converter("Long"), struct.pack(">q", 5), packed(">q")),
    "floats": (converter("Float"), struct.pack(">f", 0.5), packed(">f")),
    "doubles": (converter("Double"), struct.pack(">d", 0.5), packed(">d")),
    "inserted fields": (NO_SCHEMA | INSERT, FIRST, plain),
    "a filter": (NO_SCHEMA | FILTER, FIRST, plain),
    "casts": (NO_SCHEMA | CAST, NUMBERED, plain),
    "other shapes": (NO_SCHEMA | SHAPE, FIRST, plain),
    "keys": (NO_SCHEMA | KEYS, FIRST, plain),
    "times": (NO_SCHEMA | TIME, DATED, plain),
}


def target(kind: str, folder: Path) -> dict[str, str]:
    if kind == "DataSourceSink":
        options = {"datasource.class": named(JsonLines), "datasource.options.folder": str(folder)}
        return {"connector.class": kind, **options}
    if kind == "KeptRows":
        return {"connector.class": f"{KeptRows.__module__}.{kind}"}
    if kind != "IcebergSink":
        return {"connector.class": kind, "path": str(folder)}
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri()}
    return {"connector.class": kind, **{f"iceberg.catalog.{name}": text for name, text in catalog.items()}}


def log_of(first: bytes, values: Values, chance: random.Random) -> pa.Table:
    """Two partitions whose first record makes the table, with gaps as transaction markers leave them."""
    rows = []
    for partition in PARTITIONS:
        offset = 0
        for number in range(RECORDS):
            rows.append(
                {
                    "topic": TOPIC,
                    "partition": partition.partition,
                    "offset": offset,
                    "timestamp": 1_600_000_000_000 + number,
                    "key": None if number % 7 == 0 else f"k{number}".encode(),
                    "value": first if number == 0 else values(chance),
                    "headers": [{"key": "h", "value": b"1"}] if number % 3 else [],
                }
            )
            offset += chance.choice([1, 1, 1, 2])
    return pa.Table.from_pylist(rows, SCHEMA)


def between(log: pa.Table, partition: TopicPartition, first: int, end: int) -> pa.Table:
    rows = [row for row in log.to_pylist() if row["partition"] == partition.partition and first <= row["offset"] < end]
    return pa.Table.from_pylist(rows, SCHEMA)


class Letters:
    """A dead letter queue that keeps what it is given."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, ...]] = []

    def report(self, raw: pa.Table, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            row = raw.slice(letter.row, 1).to_pylist()[0]
            self.found.append(
                (row["partition"], row["offset"], row, letter.stage, letter.class_name, str(letter.error))
            )

    def flush(self) -> None:
        """Nothing is on its way."""


class InThisProcess:
    """Spark with executors in this process, which get everything pickled. Counts the tasks of each job, and bytes."""

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.result_bytes = 0

    def session(self) -> Any:
        return self

    def range(self, first: int, end: int, step: int, parts: int) -> Any:
        self.tasks.append(parts)
        return SimpleNamespace(mapInArrow=lambda order, schema: self._answers(order, end, parts))

    def job(self, name: str) -> Any:
        return pytest.MonkeyPatch.context()

    def interrupt(self) -> None:
        """Nothing runs for long."""

    def tasks_of(self, name: str) -> None:
        return None

    def _answers(self, order: Any, end: int, parts: int) -> Any:
        sent = pickle.loads(cloudpickle.dumps(order))
        numbers = [list(range(end * part // parts, end * (part + 1) // parts)) for part in reversed(range(parts))]
        batches = [pa.RecordBatch.from_pydict({"id": each}) for each in numbers]

        def collected() -> pa.Table:
            table = pa.Table.from_batches([*sent(iter(batches))])
            self.result_bytes += table.nbytes
            return table

        return SimpleNamespace(toArrow=collected)


class Lane:
    """A sink task without its loop: it puts a log by one lane, and falls back to the worker as the loop does."""

    def __init__(self, config: Mapping[str, str], log: pa.Table, chance: random.Random) -> None:
        self.log, self.chance, self.letters = log, chance, Letters()
        self.setup = _set_up(config)
        counted = RecordErrors(system_clock())
        letters = cast(DeadLetterQueue, self.letters)
        self.counted = counted
        self.records = FetchedRecords(self.setup, letters, counted)
        self.context = SinkContext(self.setup, "connect-lanes", letters, counted, lambda: cast(Any, None))
        self.plugin = self.setup.plugin
        self.plugin.start(self.setup.task_config, self.context)
        self.plugin.open(PARTITIONS)
        self.spark = InThisProcess()
        self.jobs = BulkJobs(self.setup, cast(Any, self.spark), "connect-lanes")
        self.staged = self.filtered = 0

    def by_the_worker(self, partition: TopicPartition, first: int, end: int) -> None:
        """In chunks of any size."""
        while first < end:
            stop = min(end, first + self.chance.randrange(1, 40))
            number = self.records.fetched(between(self.log, partition, first, stop), {partition})
            ranges = {partition: (first, stop)}
            records = self.records.of(number, ranges)
            rows, _ = records.readable(self.plugin)
            self.filtered += records.filtered
            self.context.records = records
            self.plugin.put(SinkBatch(rows, ranges))
            first = stop
        self.plugin.flush()

    def by_executors(self, ranges: Mapping[TopicPartition, tuple[int, int]], number: int = 1) -> None:
        """In parts and chunks of any size."""
        self.jobs.run(m.RunBulk(number, ranges))
        ended = until(self.jobs.ended, "a job")
        if isinstance(ended, m.BulkStaged):
            job = self.jobs.staged(number)
            if any(result.bad for result in job.results):
                report_staged(self.setup, cast(DeadLetterQueue, self.letters), self.counted, job.results)
            self.plugin.commit(job.token, ranges, [each for result in job.results for each in result.messages])
            self.jobs.committed()
            self.staged += ended.records
            self.filtered += sum(result.filtered for result in job.results)
            return
        assert isinstance(ended, m.BulkFailed)
        rest: dict[TopicPartition, tuple[int, int]] = {}
        for partition, (first, end) in ranges.items():
            stop = ended.ends.get(partition, end if not ended.ends else first)
            self.by_the_worker(partition, first, stop)
            rest |= {partition: (stop, end)} if stop < end else {}
        if rest:
            self.by_executors(rest, number + 1)

    def results(self) -> tuple[Any, ...]:
        """Schema and rows of the table, its offsets, and dead letters."""
        letters = sorted(self.letters.found, key=lambda each: each[:2])
        stored = self.setup.connector.stored(self.setup.connector_config, TOPIC)
        if stored is None:
            lines = lines_in(Path(self.setup.task_config["datasource.options.folder"]))
            return None, sorted(map(repr, lines)), {}, letters
        rows = sorted(repr(row) for table in stored.read() for row in table.to_pylist())
        offsets = _set_up(self.setup.connector_config).plugin
        offsets.start(self.setup.task_config, self.context)
        return stored.value_type, rows, offsets.open(PARTITIONS), letters


def _set_up(config: Mapping[str, str | None]) -> SinkSetup:
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "127.0.0.1:1", "key.converter": STRINGS}))
    order = PrepareTask(TaskId("lanes", 0), 1, config, config, TargetState.STARTED, 1, exactly_once=False, task_count=1)
    services = SimpleNamespace(
        config=worker,
        clients=ClientConfigs(worker, "worker-1"),
        created=lambda create, given: create(given),
    )
    return set_up(order, cast(TaskServices, services), Plugins())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Lane]:
    """`run(lane, connector, config, log, seed)` puts a log into a separate table."""

    def make(name: str, kind: str, config: Mapping[str, str], log: pa.Table, seed: int) -> Lane:
        chance = random.Random(seed)
        folder = tmp_path / f"{name}-{uuid4().hex}"
        folder.mkdir()
        queue = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
        lane = Lane({"name": "lanes", "topics": TOPIC, **target(kind, folder), **queue, **config}, log, chance)

        def read(consumer: object, ranges: Any, max_records: int) -> Iterator[pa.Table]:
            ((partition, (first, end)),) = ranges.items()
            rows, at = between(log, partition, first, end), 0
            while at < rows.num_rows:
                size = chance.randrange(1, 40)
                yield rows.slice(at, size)
                at += size

        monkeypatch.setattr(staging, "read_ranges", read)
        monkeypatch.setattr(bulk, "ship", lambda session, modules: None)
        monkeypatch.setattr(bulk, "executor_cores", lambda session: chance.randrange(1, 9))
        ends = {partition: _end(log, partition) for partition in PARTITIONS}
        lane.by_the_worker(PARTITIONS[0], 0, 1)  # makes the table
        if name == "tail":
            lane.by_the_worker(PARTITIONS[0], 1, ends[PARTITIONS[0]])
            lane.by_the_worker(PARTITIONS[1], 0, ends[PARTITIONS[1]])
        else:
            lane.by_executors({PARTITIONS[0]: (1, ends[PARTITIONS[0]]), PARTITIONS[1]: (0, ends[PARTITIONS[1]])})
        return lane

    return make


def _end(log: pa.Table, partition: TopicPartition) -> int:
    offsets: list[int] = log.filter(pc.equal(log["partition"], partition.partition))["offset"].to_pylist()
    return 1 + max(offsets)


def same(run: Callable[..., Lane], kind: str, case: str, **more: str) -> Lane:
    config, first, values = CASES[case]
    config = {**config, **dotted(more)}
    log = log_of(first, values, random.Random(case))
    tail, by_bulk = (run(name, kind, config, log, 7) for name in ("tail", "bulk"))
    assert by_bulk.staged > RECORDS
    assert by_bulk.results() == tail.results()
    assert len(tail.results()[1]) > RECORDS / 4
    return by_bulk


@pytest.mark.parametrize("case", CASES)
def test_both_lanes_convert_and_transform_alike(run: Callable[..., Lane], case: str) -> None:
    same(run, "DeltaSink", case)


def spoiled(given: Value, chance: random.Random) -> Value:
    """Some bytes cut off, or others."""
    return given if chance.random() < 0.9 or given is None else chance.choice([given[:-1], b"", b"\xff{", given + b"0"])


def log_of_rows(kind: str, config: Mapping[str, str], chance: random.Random) -> pa.Table:
    """Rows as the converters of a connector write them, and some that are no such bytes."""
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "127.0.0.1:1"}))
    key, value = (Plugins().converter(side, config, worker) for side in SIDES)
    table = rows(KINDS[kind], 2 * RECORDS, chance).drop_columns(["topic", "partition"])
    records, _ = encode_readable(table, key, value, TOPIC)
    made = [
        {
            **row,
            **{"topic": TOPIC, "partition": number % 2, "offset": number},
            **{side: spoiled(row[side], chance) for side in SIDES},
        }
        for number, row in enumerate(records.to_pylist())
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def kept_alike(run: Callable[..., Lane], config: Mapping[str, str], log: pa.Table, shown: Callable[[Row], Any]) -> None:
    """Compare rows, with the types of their keys and values, dead letters and numbers of dropped records."""
    found = []
    for name in ("tail", "bulk"):
        lane = run(name, "KeptRows", config, log, 7)
        rows = sorted(cast(KeptRows.Task, lane.plugin).rows, key=lambda row: (row[0]["partition"], row[0]["offset"]))
        letters = sorted(lane.letters.found, key=lambda each: each[:2])
        found.append(([shown(row) for row in rows], [each[:2] + each[3:] for each in letters], lane.filtered))
    tail, by_bulk = found
    assert by_bulk == tail
    assert lane.staged == log.num_rows - 1
    assert len(tail[0]) + len(tail[1]) + tail[2] == log.num_rows


def with_types(row: Row) -> str:
    """A record, with the types of its key and value unless they are null."""
    record, *types = row
    return repr((record, [None if record[side] is None else kind for side, kind in zip(SIDES, types, strict=True)]))


def exactly(row: Row) -> str:
    """A record whatever the type of its column, which may hold records of other shapes in one of the lanes."""
    return repr(row[0])


def of_both_sides(cls: type[Converter], **settings: str) -> dict[str, str]:
    registry = {"schema.registry.url": f"mock://{uuid4().hex}"} if issubclass(cls, RegistryConverter) else {}
    given = {"": cls.java_class, **{f".{name}": text for name, text in {**registry, **dotted(settings)}.items()}}
    return {f"{side}.converter{name}": text for side in SIDES for name, text in given.items()}


KINDS_OF = {
    **{"StringConverter": ["wide", "string"], "ByteArrayConverter": ["binary"], "BooleanConverter": ["bool"]},
    **{f"{name}Converter": ["int8"] for name in ("Short", "Integer")},
    **{"LongConverter": ["int64"], "FloatConverter": ["float"], "DoubleConverter": ["double"]},
}


@pytest.mark.parametrize("cls", CONVERTERS)
def test_both_lanes_read_what_a_converter_writes(run: Callable[..., Lane], cls: type[Converter]) -> None:
    for kind in KINDS_OF.get(cls.__name__, ["wide", "named", "maps", "lists"]):
        config, chance = of_both_sides(cls), random.Random(f"{cls.__name__} {kind}")
        kept_alike(run, config, log_of_rows(kind, config, chance), with_types)


@pytest.mark.parametrize("cls", [cls for cls in CONVERTERS if not cls.by_topic])
def test_both_lanes_read_the_same_headers(run: Callable[..., Lane], cls: type[Converter]) -> None:
    config = {"header.converter": cls.java_class, **of_both_sides(StringConverter)}
    kept_alike(run, config, log_of_rows("string", config, random.Random(cls.__name__)), with_types)


@pytest.mark.parametrize("case", CHAINS)
def test_both_lanes_transform_records_with_schemas_alike(run: Callable[..., Lane], case: str) -> None:
    config = {**of_both_sides(JsonConverter), **CHAINS[case]}
    kept_alike(run, config, log_of_rows("wide", config, random.Random(case)), exactly)


@pytest.mark.parametrize("case", CHAINS)
def test_both_lanes_transform_records_without_schemas_alike(run: Callable[..., Lane], case: str) -> None:
    config = {**of_both_sides(JsonConverter, schemas_enable="false"), **CHAINS[case]}
    kept_alike(run, config, log_of_rows("wide", config, random.Random(case)), exactly)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ExtractField$Value", {"field": "rare"}),
        ("ValueToKey", {"fields": "id,rare"}),
        ("HeaderFrom$Value", {"fields": "rare", "headers": "from", "operation": "copy"}),
    ],
)
def test_both_lanes_take_a_rare_field_of_records_without_schemas_alike(
    run: Callable[..., Lane], name: str, settings: Mapping[str, str]
) -> None:
    transform = {"transforms": "t", "transforms.t.type": f"{APACHE}.{name}"}
    config = {**NO_SCHEMA, **transform, **{f"transforms.t.{key}": text for key, text in settings.items()}}

    def value(chance: random.Random) -> Value:
        return b'{"id":1,"rare":"x"}' if chance.random() < 0.05 else b'{"id":2}'

    kept_alike(run, config, log_of(b'{"id":0}', value, random.Random("rare")), exactly)


@pytest.mark.parametrize("kind", ["IcebergSink", "ParquetSink", "DataSourceSink"])
@pytest.mark.parametrize("case", ["json", "other shapes"])
def test_both_lanes_write_tables_alike(run: Callable[..., Lane], kind: str, case: str) -> None:
    same(run, kind, case)


@pytest.mark.parametrize("kind", ["DeltaSink", "ParquetSink"])
def test_both_lanes_write_directories_by_values_alike(run: Callable[..., Lane], kind: str) -> None:
    config, first, values = CASES["json"]
    log = log_of(first, values, random.Random("directories"))
    tail, by_bulk = (run(name, kind, {**config, "partition.by": "on"}, log, 7) for name in ("tail", "bulk"))
    assert by_bulk.staged > RECORDS
    assert by_bulk.results() == tail.results()


@pytest.mark.parametrize("kind", ["DeltaSink", "IcebergSink"])
def test_both_lanes_replace_and_delete_rows_alike(run: Callable[..., Lane], kind: str) -> None:
    chance = random.Random("changes")
    log = log_of(FIRST, plain, chance)
    keys = [f"{part}-{chance.randrange(20)}".encode() for part in log["partition"].to_pylist()]
    log = log.set_column(log.schema.get_field_index("key"), log.schema.field("key"), pa.array(keys, pa.binary()))
    upserts = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "k", "delete.enabled": "true"}
    tail, by_bulk = (run(name, kind, NO_SCHEMA | upserts, log, 7) for name in ("tail", "bulk"))
    assert by_bulk.staged > RECORDS
    assert by_bulk.results() == tail.results()
    assert 20 < len(tail.results()[1]) < 40


def test_executors_send_bad_records_without_the_good_ones_that_were_fetched_with_them(run: Callable[..., Lane]) -> None:
    def values(chance: random.Random) -> Value:
        return b"bad" if chance.random() < 0.3 else json.dumps({"id": 1, "pad": "x" * 20_000}).encode()

    log = log_of(b'{"id":1,"pad":"x"}', values, random.Random("bad"))
    by_bulk = run("bulk", "ParquetSink", NO_SCHEMA, log, 7)
    assert len(by_bulk.letters.found) > 20
    assert by_bulk.spark.result_bytes < 100_000 < log.nbytes // 10


def test_executors_share_the_connections_that_the_tasks_leave(run: Callable[..., Lane]) -> None:
    by_bulk = same(run, "ParquetSink", "json", max_connections="3", tasks_max="1")
    assert set(by_bulk.spark.tasks) == {2}
    by_two = _set_up({**by_bulk.setup.connector_config, "tasks.max": "2", "max.connections": "7"})
    assert by_two.max_executor_connections == 2


def test_the_tail_writes_when_each_task_has_the_only_connection(run: Callable[..., Lane]) -> None:
    config = run("bulk", "ParquetSink", CASES["json"][0], log_of(*CASES["json"][1:], random.Random(1)), 7).setup
    settings = config.connector_config
    assert settings.get("max.connections") is None
    assert config.loop.bulk_obstacle is None
    limited = _set_up({**settings, "tasks.max": "2", "max.connections": "3"})
    assert limited.loop.bulk_obstacle == "max.connections leaves no connection for executors"


def test_an_error_of_discard_is_logged_without_secrets(
    run: Callable[..., Lane], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lane = run("bulk", "ParquetSink", CASES["json"][0], log_of(*CASES["json"][1:], random.Random(1)), 7)
    secret = "hunter2"
    hidden = HiddenValues()
    hidden.add(secret)
    jobs = BulkJobs(lane.setup, cast(Any, lane.spark), "connect-lanes")

    def fail(token: str, messages: object) -> None:
        raise OSError(f"{secret} is no password of this server")

    monkeypatch.setattr(lane.plugin, "discard", fail)
    jobs.run(m.RunBulk(9, {PARTITIONS[0]: (1, 9)}))
    until(jobs.ended, "a job")
    jobs.discard(9)
    assert "[hidden] is no password" in caplog.text
    assert secret not in caplog.text
