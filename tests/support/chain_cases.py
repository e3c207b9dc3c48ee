"""Random records and chains of transformations, from a seed, for a comparison with Kafka Connect's classes."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.support.connect_classes import JSON, KAFKA

LOGICAL: Final = f"{KAFKA}data."
STRING: Final = f"{KAFKA}storage.StringConverter"
SIMPLE: Final = f"{KAFKA}storage.SimpleHeaderConverter"
NAMES: Final = ("id", "a", "b", "a.b", "é", 'q"')
TOPICS: Final = ("orders", "t1")
TEXTS: Final = ("", "abc", "12", "-1.5", "true", "é€😀", 'a"b\\c', "2020-01-02", "{}")
INTEGERS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
STATIC: Final = {"static.field": "s", "static.value": "x"}
SCALARS: Final = (*INTEGERS, "float", "double", "boolean", "string", "bytes", "Date", "Time", "Timestamp", "Decimal")


@dataclass(frozen=True)
class ChainCase:
    """Records of one topic as bytes, the schema of their values (None: they have none), and a connector's settings."""

    records: tuple[dict[str, Any], ...]
    schema: dict[str, Any] | None
    config: dict[str, str]


def a_case(random: Random, *, sink: bool) -> ChainCase:
    """One to six records."""
    with_schema = not sink or random.random() < 0.6
    schema = _struct(random, 0) if with_schema else None
    if schema is not None and random.random() < 0.3:
        schema |= {"name": "shop.Row", "version": 2, "doc": "A row", "parameters": {"p": "1"}}
    names = [field["field"] for field in schema["fields"]] if schema else random.sample(NAMES, 3)
    kinds = {name: random.choice(("int", "text", "fraction", "list", "object")) for name in names}
    topic = random.choice(TOPICS)
    records = []
    for offset in range(random.choice((1, 3, 6))):
        value = None
        if random.random() < 0.93:
            value = {"schema": schema, "payload": _value(random, schema)} if schema else _document(random, kinds)
        records.append(
            {
                "topic": topic,
                "partition": random.choice((0, 3)),
                "offset": offset,
                "timestamp": random.choice((0, 1_483_425_001_864, -12_219_292_800_001)),
                "key": random.choice((None, b"k", "é".encode()) if sink else (b"k", "é".encode())),
                "value": None if value is None else json.dumps(value).encode(),
                "headers": random.choice(([], [("h", b"abc")], [("h", b"abc"), ("x", None)])),
            }
        )
    config = {
        "key.converter": STRING,
        "value.converter": JSON,
        "value.converter.schemas.enable": str(with_schema).lower(),
    }
    if not sink:
        config |= {"out.key.converter": JSON, "out.value.converter": JSON, "out.key.converter.schemas.enable": "false"}
        config |= {"out.value.converter.schemas.enable": random.choice(("true", "false"))}
        config |= {"out.value.converter.decimal.format": random.choice(("BASE64", "NUMERIC"))}
        config |= {"out.value.converter.replace.null.with.default": random.choice(("true", "false"))}
        config |= {"value.converter.replace.null.with.default": "false"}
    config |= _chain(random, names, sink=sink)
    # Java's StringConverter writes the addresses of bytes, and dates by the clock of its time zone
    has_typed = any(text.startswith(f"{KAFKA}transforms.HeaderFrom") for text in config.values())
    config |= {"header.converter": SIMPLE if has_typed else random.choice((SIMPLE, STRING))}
    return ChainCase(tuple(records), schema, config)


def _struct(random: Random, depth: int) -> dict[str, Any]:
    names = random.sample(NAMES, random.randint(1, 4))
    fields = [_schema(random, depth + 1) | {"field": name} for name in names]
    return {"type": "struct", "optional": False, "fields": fields}


def _schema(random: Random, depth: int) -> dict[str, Any]:
    kind = random.choice((*SCALARS, *SCALARS, "array", "map", "struct") if depth < 3 else SCALARS)
    made: dict[str, Any] = {"type": kind}
    if kind == "Decimal":
        made = {
            "type": "bytes",
            "name": f"{LOGICAL}Decimal",
            "version": 1,
            "parameters": {"scale": "2", "connect.decimal.precision": "38"},
        }
    elif kind in ("Date", "Time", "Timestamp"):
        made = {"type": "int64" if kind == "Timestamp" else "int32", "name": f"{LOGICAL}{kind}", "version": 1}
    elif kind == "array":
        made["items"] = _schema(random, depth + 1)
    elif kind == "map":
        values = {key: part for key, part in _schema(random, 3).items() if key != "default"}
        made |= {"keys": {"type": random.choice(("string", "int32")), "optional": False}, "values": values}
    elif kind == "struct":
        made = _struct(random, depth)
    elif random.random() < 0.1 and kind != "bytes":
        made |= {"name": "shop.Part", "version": 1}
    made["optional"] = random.random() < 0.7
    if kind in SCALARS and random.random() < 0.2:
        made["default"] = _value(random, {**made, "optional": False})
    return made


def _value(random: Random, schema: dict[str, Any]) -> Any:
    """As JsonConverter spells it."""
    if schema.get("optional") and random.random() < 0.25:
        return None
    kind, name = schema["type"], schema.get("name", "").removeprefix(LOGICAL)
    match name or kind:
        case "Decimal":
            return base64.b64encode(random.randint(-30_000, 30_000).to_bytes(3, "big", signed=True)).decode()
        case "Date":
            return random.choice((0, -1, 19_782, random.randint(-200_000, 40_000)))
        case "Time":
            return random.choice((0, 86_399_999, random.randint(0, 86_399_999)))
        case "Timestamp":
            return random.choice((0, -1, 1_709_251_199_999, random.randint(-(10**13), 10**13)))
    match kind:
        case "float" | "double":
            return random.choice((0.0, 1.5, -2.25, 1e7, 123_456.75, 0.001))
        case "boolean":
            return random.random() < 0.5
        case "string":
            return random.choice(TEXTS)
        case "bytes":
            return base64.b64encode(random.choice((b"", b"abc", b"\0\xff"))).decode()
        case "array":
            return [_value(random, schema["items"]) for _ in range(random.randint(0, 2))]
        case "map":
            keys = random.sample(("x", "y"), random.randint(0, 2))
            pairs = [(key, _value(random, schema["values"])) for key in keys]
            if schema["keys"]["type"] == "string":
                return dict(pairs)
            return [[number, value] for number, (_, value) in enumerate(pairs)]
        case "struct":
            return {field["field"]: _value(random, field) for field in schema["fields"]}
    end = 1 << min(INTEGERS[kind], 53)  # Timestamps beyond that do not fit into microseconds
    return random.choice((0, 1, -1, end - 1, -end, random.randint(-end, end - 1)))


def _document(random: Random, kinds: dict[str, str]) -> dict[str, Any]:
    """An object without a schema: some fields are missing, or of another kind."""
    made: dict[str, Any] = {}
    for name, kind in kinds.items():
        shown = kind
        if random.random() < 0.15:
            shown = random.choice(("null", "int", "text", "object"))
        if random.random() < 0.85:
            made[name] = {
                "int": random.choice((0, 12, -7, 2**53 + 1)),
                "text": random.choice(TEXTS),
                "null": None,
                "fraction": random.choice((0.5, 12.25, 1e20)),
                "list": [1, 2][: random.randint(0, 2)],
                "object": {"id": random.randint(0, 9), "a": random.choice((None, "x"))},
            }[shown]
    return made


def _chain(random: Random, names: Sequence[str], *, sink: bool) -> dict[str, str]:
    config: dict[str, str] = {}
    count = random.choice((0, 1, 1, 2, 3))
    for number in range(count):
        name, settings = _transform(random, names, sink=sink)
        alias = f"transforms.t{number}"
        config |= {
            f"{alias}.type": f"{KAFKA}transforms.{name}",
            **{f"{alias}.{key}": text for key, text in settings.items()},
        }
        if name == "Filter" or random.random() < 0.25:
            kind, own = random.choice(
                (
                    ("HasHeaderKey", {"name": "x"}),
                    ("RecordIsTombstone", {}),
                    ("TopicNameMatches", {"pattern": "[a-z]+"}),
                )
            )
            config |= {f"{alias}.predicate": f"p{number}", f"{alias}.negate": random.choice(("true", "false"))}
            config |= {f"predicates.p{number}.type": f"{KAFKA}transforms.predicates.{kind}"}
            config |= {f"predicates.p{number}.{key}": text for key, text in own.items()}
    used = sorted({text for key, text in config.items() if key.endswith(".predicate")})
    config |= {"predicates": ",".join(used)} if used else {}
    return config | ({"transforms": ",".join(f"t{number}" for number in range(count))} if count else {})


def _transform(random: Random, names: Sequence[str], *, sink: bool) -> tuple[str, dict[str, str]]:
    field, other = random.choice((*names, "missing")), random.choice(names)
    types = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
    made: tuple[str, dict[str, str]] = random.choice(
        (
            ("Cast$Value", {"spec": f"{field}:{random.choice(types)}"}),
            ("ExtractField$Value", {"field": field}),
            ("ExtractField$Value", {"field": f"{other}.id", "field.syntax.version": "V2"}),
            ("Flatten$Value", {"delimiter": random.choice((".", "_"))}),
            ("HeaderFrom$Value", {"fields": other, "headers": "from", "operation": random.choice(("copy", "move"))}),
            ("HoistField$Value", {"field": "outer"}),
            (
                "InsertField$Value",
                {"topic.field": "topic", "offset.field" if sink else "partition.field": field, **STATIC},
            ),
            ("MaskField$Value", {"fields": f"{field},{other}"}),
            ("MaskField$Value", {"fields": field, "replacement": random.choice(("7", "***", "1.5"))}),
            ("ReplaceField$Value", {"exclude": field}),
            ("ReplaceField$Value", {"include": f"{field},{other}", "renames": f"{other}:renamed"}),
            ("SetSchemaMetadata$Value", {"schema.name": "shop.Other", "schema.version": "5"}),
            (
                "TimestampConverter$Value",
                {
                    "field": field,
                    "target.type": random.choice(("string", "unix", "Date", "Time", "Timestamp")),
                    "format": random.choice(("yyyy-MM-dd", "EEE d MMM yyyy HH:mm:ss.SSS z")),
                },
            ),
            ("ValueToKey", {"fields": other}),
            ("Filter", {}),
            ("DropHeaders", {"headers": "h"}),
            ("InsertHeader", {"header": "new", "value.literal": "text"}),
            ("RegexRouter", {"regex": "(.*)s", "replacement": "$1-new"}),
            ("TimestampRouter", {"topic.format": "${topic}-${timestamp}", "timestamp.format": "yyyyMMddHH"}),
        )
    )
    name, settings = made
    if name.startswith(
        ("Cast", "ExtractField", "HeaderFrom", "Mask", "Replace", "TimestampC", "ValueToKey", "InsertF")
    ):
        settings = settings | ({"replace.null.with.default": "false"} if random.random() < 0.3 else {})
    return name, settings
