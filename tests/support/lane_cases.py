"""Transformations, predicates, converters and rows with which tests compare both lanes.

Each class that connectx provides has its cases here, and a test fails for a class without one. Rows have keys and
values of one type, so that the variants for keys and values have the same settings.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from connectx.data.connect_schema import SchemaName, described
from connectx.data.transforms.columns import HEADERS
from tests.support.shipped import PACKAGE, PREDICATES, TRANSFORMS

TOPIC: Final = "rows"
NAME: Final = SchemaName("com.acme.Row", 2)
STAMP_MS: Final = 1_600_000_000_000

SETTINGS: Final[Mapping[str, Sequence[Mapping[str, str]]]] = {
    "Cast": (
        {"spec": "id:string,amount:int32,digits:int64,on:string,day:string,price:float64"},
        {"spec": "digits:int8,small:boolean"},
        {"spec": "string"},
    ),
    "DropHeaders": ({"headers": "h,missing"},),
    "ExtractField": (
        {"field": "name"},
        {"field": "inner"},
        {"field": "inner.city", "field.syntax.version": "V2"},
        {"field": "missing"},
    ),
    "Filter": ({},),
    "Flatten": ({"delimiter": "_"},),
    "HeaderFrom": (
        {"fields": "id,digits", "headers": "number,digits", "operation": "copy"},
        {"fields": "name", "headers": "h", "operation": "move"},
        {"fields": "missing", "headers": "h", "operation": "copy"},
    ),
    "HoistField": ({"field": "row"},),
    "InsertField": (
        {"topic.field": "topic", "partition.field": "part?", "timestamp.field": "happened"},
        {"static.field": "static!", "static.value": "s"},
        {"topic.field": "name"},
        {"offset.field": "log_offset"},
    ),
    "InsertHeader": ({"header": "new", "value.literal": "1"},),
    "MaskField": (
        {"fields": "name,amount,tags,day,price"},
        {"fields": "name,id", "replacement": "7"},
        {"fields": "id", "replacement": "text"},
        {"fields": "inner"},
    ),
    "RegexRouter": ({"regex": "(r)ows", "replacement": "$1-routed"},),
    "ReplaceField": (
        {"exclude": "on,inner", "renames": "id:number"},
        {"include": "name"},
        {"renames": "id:name"},
    ),
    "SetSchemaMetadata": ({"schema.name": "com.acme.Other"}, {"schema.version": "7"}),
    "TimestampConverter": (
        {"field": "at", "target.type": "string", "format": "yyyy-MM-dd HH:mm:ss.SSS"},
        {"field": "date", "target.type": "Timestamp", "format": "yyyy-MM-dd"},
        {"field": "id", "target.type": "Date", "unix.precision": "nanoseconds"},
        {"field": "day", "target.type": "unix", "unix.precision": "nanoseconds"},
        {"field": "at", "target.type": "Time"},
        {"field": "missing", "target.type": "unix"},
    ),
    "TimestampRouter": ({"topic.format": "${topic}-${timestamp}", "timestamp.format": "yyyy"},),
    "ValueToKey": ({"fields": "id,inner"}, {"fields": "missing"}),
}
"""Settings of each transformation, by its class without the variant. Some fail for all rows, some for a few."""

CONDITIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "HasHeaderKey": {"name": "h"},
    "RecordIsTombstone": {},
    "TopicNameMatches": {"pattern": "row."},
}
"""Settings of each predicate."""


def chain(*steps: tuple[str, Mapping[str, str]], predicate: str = "", negate: bool = False) -> dict[str, str]:
    """Settings of a connector with these transformations; the first one has the predicate."""
    config = {"transforms": ",".join(f"t{number}" for number in range(len(steps)))}
    for number, (name, settings) in enumerate(steps):
        config[f"transforms.t{number}.type"] = PACKAGE + name
        config |= {f"transforms.t{number}.{key}": text for key, text in settings.items()}
    if predicate:
        config |= {"transforms.t0.predicate": "p", "transforms.t0.negate": str(negate).lower(), "predicates": "p"}
        config["predicates.p.type"] = f"{PACKAGE}predicates.{predicate}"
        config |= {f"predicates.p.{key}": text for key, text in CONDITIONS[predicate].items()}
    return config


def _chains() -> Iterator[tuple[str, dict[str, str]]]:
    for path in TRANSFORMS:
        name = path.removeprefix(PACKAGE)
        base, _, side = name.partition("$")
        hoist = [(f"HoistField${side}", {"field": "hoisted"})] if side else []
        for number, settings in enumerate(SETTINGS.get(base, ())):
            yield f"{name} {number}", chain((name, settings), *hoist)
    for path in PREDICATES:
        name = path.rpartition(".")[2]
        for negate in (False, True):
            for step in ("InsertHeader", "InsertField$Key", "Filter"):
                steps = chain((step, SETTINGS[step.partition("$")[0]][0]), predicate=name, negate=negate)
                yield f"{step} {'unless' if negate else 'if'} {name}", steps


CHAINS: Final[Mapping[str, Mapping[str, str]]] = dict(_chains())
"""Chains of each transformation, before one whose records show the types of nulls, and with each predicate."""

INNER: Final = pa.struct([("city", pa.string()), ("n", pa.int32()), ("deep", pa.struct([("x", pa.float64())]))])
WIDE: Final = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        *(("small", pa.int16()), ("amount", pa.float64()), ("ratio", pa.float32())),
        *(("price", pa.decimal128(10, 2)), ("name", pa.string()), ("digits", pa.string()), ("on", pa.bool_())),
        *(("day", pa.date32()), ("date", pa.string()), ("at", pa.timestamp("us", "UTC")), ("raw", pa.binary())),
        *(("tags", pa.list_(pa.string())), ("inner", INNER)),
    ]
)
NAMED: Final = pa.struct(
    [
        described(pa.field("level", pa.string()), SchemaName("com.acme.Level", 3, "How loud"), "low"),
        described(pa.field("number", pa.int32()), SchemaName(parameters=(("unit", "m"),)), 7),
    ]
)
KINDS: Final[Mapping[str, pa.DataType]] = {
    "wide": WIDE,
    "named": NAMED,
    "maps": pa.struct([("counts", pa.map_(pa.string(), pa.int64())), ("name", pa.string())]),
    "lists": pa.list_(pa.struct([("n", pa.int32()), ("tags", pa.list_(pa.float64()))])),
    "nothing": pa.null(),
    **{str(kind): kind for kind in (pa.string(), pa.binary(), pa.bool_(), pa.int8(), pa.int64())},
    **{str(kind): kind for kind in (pa.float32(), pa.float64(), pa.decimal128(20, 3), pa.date32(), pa.time32("ms"))},
    **{str(kind): kind for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("s"))},
}
"""Types of keys and values."""

_TEXTS: Final = ("", "n", "Ünï 😀", 'a"b\\', "x" * 50)
_MOMENT: Final = datetime(2020, 1, 1, tzinfo=UTC)
_SCALARS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[random.Random], Any]], ...]] = (
    (pa.types.is_null, lambda chance: None),
    (pa.types.is_boolean, lambda chance: chance.random() < 0.5),
    (pa.types.is_int8, lambda chance: chance.randrange(-128, 128)),
    (pa.types.is_int16, lambda chance: chance.randrange(-(2**15), 2**15)),
    (pa.types.is_int32, lambda chance: chance.randrange(-(2**31), 2**31)),
    (pa.types.is_int64, lambda chance: chance.choice([0, 7, -1, 40_000, 2**40, 2**62])),
    (pa.types.is_floating, lambda chance: chance.choice([0.0, -0.0, 0.5, 12.0, 1e30, float("nan")])),
    (pa.types.is_decimal, lambda chance: Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-2)),
    (pa.types.is_string, lambda chance: chance.choice(_TEXTS)),
    (pa.types.is_binary, lambda chance: chance.choice([b"", b"\0\xff", b"raw"])),
    (pa.types.is_date, lambda chance: date(2020, 1, 1) + timedelta(days=chance.randrange(-30_000, 9_000))),
    (pa.types.is_time, lambda chance: (_MOMENT + timedelta(seconds=chance.randrange(86_400))).time()),
    (pa.types.is_duration, lambda chance: timedelta(seconds=chance.randrange(9))),
)
_OF_FIELDS: Final[Mapping[str, Sequence[str | float]]] = {
    "digits": ("1", "77", "+5", "-3", "300", "no number", ""),
    "date": ("2020-01-01", "1969-12-31", "2020-02-30", "never"),
    **dict.fromkeys(("amount", "ratio", "x"), (0.0, -0.0, 0.5, 12.0, 1e30)),
}


def value(kind: pa.DataType, chance: random.Random, nulls: float = 0.2) -> Any:
    """A value of a type; its nullable parts are null with this probability."""
    if pa.types.is_struct(kind):
        return {field.name: _of_field(field, chance, nulls) for field in kind}
    if pa.types.is_map(kind):
        return [(name, value(kind.item_type, chance)) for name in chance.sample(_TEXTS, chance.randrange(3))]
    if pa.types.is_list(kind):
        return [_of_field(kind.value_field, chance, nulls) for _ in range(chance.randrange(3))]
    if pa.types.is_timestamp(kind):
        moment = _MOMENT + timedelta(microseconds=chance.randrange(-(10**16), 10**15))
        return moment if kind.tz else moment.replace(tzinfo=None)
    return next(make(chance) for fits, make in _SCALARS if fits(kind))


def _of_field(field: pa.Field, chance: random.Random, nulls: float) -> Any:
    if field.nullable and chance.random() < nulls:
        return None
    return chance.choice(_OF_FIELDS[field.name]) if field.name in _OF_FIELDS else value(field.type, chance, nulls)


def rows(kind: pa.DataType, count: int, chance: random.Random) -> pa.Table:
    """Rows of a source: some without key, value, topic, partition or headers; each has a separate timestamp."""

    def some(made: Callable[[], Any], share: float) -> list[Any]:
        return [made() if chance.random() < share else None for _ in range(count)]

    def header() -> list[dict[str, Any]]:
        return [{"key": chance.choice(["h", "g"]), "value": chance.choice([b"1", b"t", None])}] * chance.randrange(3)

    columns = {
        "topic": pa.array(some(lambda: chance.choice([TOPIC, "other"]), 0.7), pa.string()),
        "partition": pa.array(some(lambda: chance.randrange(3), 0.3), pa.int32()),
        "timestamp": pa.array([STAMP_MS + number for number in range(count)], pa.int64()),
        "key": pa.array(some(lambda: value(kind, chance), 0.8), kind),
        "value": pa.array(some(lambda: value(kind, chance), 0.8), kind),
        "headers": pa.array(some(header, 0.8), HEADERS),
    }
    fields = [pa.field(name, array.type) for name, array in columns.items()]
    return pa.table(columns, pa.schema([NAME.on(field) if field.name == "value" else field for field in fields]))


def cuts(table: pa.Table, chance: random.Random) -> list[pa.Table]:
    """The rows in batches of any size: some have no row, and some a single one."""
    pieces, at = [], 0
    while at < table.num_rows:
        pieces.append(table.slice(at, chance.choice([0, 1, 1, 3, table.num_rows // 2])))
        at += pieces[-1].num_rows
    return pieces
