"""Reads damaged records by native code, in a separate process: `python -m tests.support.native_codecs SEED COUNT`.

It ends with 0 if each record was read or refused. A crash of native code ends it with a signal.
"""

from __future__ import annotations

import json
import random
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from connectx.data.avro.codec import AvroCodec
from connectx.data.avro.types import parse
from connectx.data.protobuf.codec import ProtobufCodec
from connectx.data.protobuf.pools import descriptor_of
from connectx.data.protobuf.types import Options

_MEMORY_BYTES: Final = 8 << 30
AVRO: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "items", "type": {"type": "array", "items": "double"}},
        {"name": "of", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
PROTOBUF: Final = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; string name = 2; repeated double items = 3; map<string, int32> of = 4;
  message Inner { optional uint32 x = 1; google.protobuf.Timestamp at = 2; } Inner inner = 6;
  enum Kind { A = 0; B = 1; } Kind kind = 5; oneof one { bytes raw = 7; bool flag = 8; } }"""
ROWS: Final = [
    {"id": 7, "name": "x", "kind": "A", "items": [1.5, 2.0], "of": [("k", 1)], "at": 1_700_000_000_000},
    {"id": -1, "name": None, "kind": "B", "items": [], "of": [], "at": 0},
]


def codecs() -> dict[str, tuple[Callable[[pa.Array], Any], list[bytes]]]:
    """Readers by their names, with bodies that they can read."""
    native = AvroCodec(parse(json.dumps(AVRO)))
    python = AvroCodec(parse(json.dumps(AVRO)), native=False)
    kind = native.type
    avro = python.write(pa.array(ROWS, kind)).to_pylist()
    ptars, google = (
        ProtobufCodec(descriptor_of(PROTOBUF, []), Options(), native=is_native) for is_native in (True, False)
    )
    bodies = [b"\0\x08\x07\x12\x01x\x1a\x08" + b"\0" * 8, b"\0\x22\x05\x0a\x01k\x10\x01\x32\x02\x08\x01", b"\0"]
    return {
        "pyruhvro": (native.read, avro),
        "fastavro": (python.read, avro),
        "ptars": (ptars.read, bodies),
        "google.protobuf": (google.read, bodies),
    }


def damaged(bodies: list[bytes], chance: random.Random) -> Iterator[bytes]:
    """Bodies with bytes changed, cut out, doubled or put in, some of which claim great lengths."""
    while True:
        body = bytearray(chance.choice(bodies))
        for _ in range(chance.randint(1, 4)):
            at = chance.randint(0, len(body))
            match chance.randint(0, 4):
                case 0:
                    body[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    del body[at : at + chance.randint(1, 4)]
                case 2:
                    body[at:at] = chance.randbytes(chance.randint(1, 6))
                case 3:
                    body[at:at] = b"\xff" * chance.randint(1, 9) + bytes([chance.randrange(128)])
                case _:
                    body += body[at:]
        yield bytes(body[:4096])


def main(seed: int, count: int) -> None:
    """Read `count` batches with each codec."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    for name, (read, bodies) in codecs().items():
        chance = random.Random(f"{name} {seed}")
        source = damaged(bodies, chance)
        for number in range(count):
            batch = [next(source) for _ in range(chance.randint(1, 3))]
            print(name, number, [body.hex() for body in batch], file=sys.stderr, flush=True)
            found = read(pa.array(batch, pa.binary()))
            assert len(found.value) == len(batch)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
