"""Native code that reads others' bytes: damaged records end no process, and another library can be chosen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from connectx.data.avro.codec import AvroCodec
from connectx.data.avro.converter import AvroConverter
from connectx.data.avro.types import parse
from connectx.data.protobuf.codec import ProtobufCodec
from connectx.data.protobuf.pools import descriptor_of
from connectx.data.protobuf.types import Options
from connectx.data.registry.client import KnownSchema
from tests.support.native_codecs import AVRO, ROWS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("seed", [1])
def test_damaged_records_are_read_or_refused_and_end_no_process(seed: int) -> None:
    command = [sys.executable, "-m", "tests.support.native_codecs", str(seed), "60"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_both_libraries_of_avro_write_and_read_the_same() -> None:
    native, python = (AvroCodec(parse(json.dumps(AVRO)), native=is_native) for is_native in (True, False))
    rows = pa.array(ROWS, native.type)
    assert native.write(rows).to_pylist() == python.write(rows).to_pylist()
    assert native.read(python.write(rows)).value.equals(python.read(native.write(rows)).value)
    assert native.type == python.type


def test_the_library_is_chosen_by_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyruhvro

    monkeypatch.delattr(pyruhvro, "deserialize_array")
    given = {"schema.registry.url": "http://127.0.0.1:1", "converter.type": "value", "avro.library": "fastavro"}
    codec = AvroConverter(given).codec(KnownSchema(1, "AVRO", json.dumps(AVRO)))
    rows = pa.array(ROWS, codec.type)
    assert codec.read(codec.write(rows)).value.equals(rows)


KINDS_OF_FIELDS = """syntax = "proto3"; package p;
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto"; import "google/type/timeofday.proto"; import "confluent/type/decimal.proto";
message M { int32 a = 1; optional string b = 2; enum E { X = 0; Y = 5; } E e = 3; optional E oe = 4; repeated E re = 5;
  message I { uint32 u = 1; bytes r = 2; } I i = 6; repeated I ri = 7; map<int32, I> mi = 8; map<string, E> me = 9;
  oneof o { fixed64 x = 10; bool y = 11; I z = 12; } google.protobuf.Timestamp t = 13; google.protobuf.Duration d = 14;
  google.protobuf.Int32Value w = 15; repeated google.protobuf.StringValue rw = 16; google.type.Date da = 17;
  google.type.TimeOfDay td = 18; confluent.type.Decimal de = 19; repeated google.protobuf.Timestamp rt = 20;
  sint64 s = 21; float f = 22; google.protobuf.UInt64Value uw = 23; message Empty { } Empty n = 24; }"""
MESSAGES: list[dict[str, Any]] = [
    {},
    {"a": -1, "b": "", "e": 5, "oe": 0, "re": [0, 5], "i": {}, "ri": [{"u": 2**32 - 1}, {"r": b"\0"}], "x": 2**63 - 1},
    {
        "mi": {1: {"u": 1}},
        "me": {"k": 5},
        "y": False,
        "t": {"seconds": -1, "nanos": 5_000},
        "d": {"seconds": -3},
        "n": {},
    },
    {"z": {"u": 1}, "w": {"value": 0}, "rw": [{"value": "a"}, {}], "da": {"year": 1969, "month": 2, "day": 3}},
    {"td": {"hours": 23, "minutes": 59, "seconds": 58, "nanos": 7_000_000}, "rt": [{"seconds": 1}], "s": -(2**63)},
    {"de": {"value": b"\1", "precision": 38, "scale": 0}, "f": 1.5, "uw": {"value": 2**63 - 1}, "e": 7, "re": [9]},
]


@pytest.mark.parametrize("options", [Options(), Options(int_for_enums=True, wrapper_for_nullables=True)])
def test_both_libraries_of_protobuf_write_and_read_the_same(options: Options) -> None:
    file = descriptor_of(KINDS_OF_FIELDS, [])
    made: Any = GetMessageClass(file.message_types_by_name["M"])
    bodies = pa.array([b"\0" + made(**one).SerializeToString() for one in MESSAGES], pa.binary())
    native, python = (ProtobufCodec(file, options, native=is_native) for is_native in (True, False))
    read = native.read(bodies)
    assert read.error.null_count == len(bodies)
    assert python.read(bodies).value.equals(read.value)
    known = read.value if options.int_for_enums else read.value[:-1]  # the last one's enum has symbols that are unknown
    written = [[made.FromString(one[1:]) for one in codec.write(known).to_pylist()] for codec in (native, python)]
    assert written[0] == written[1] == [made(**one) for one in MESSAGES[: len(known)]]


def test_google_protobuf_reads_and_writes_without_ptars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ptars", None)
    file = descriptor_of(KINDS_OF_FIELDS, [])
    codec = ProtobufCodec(file, Options(), native=False)
    assert codec.read(codec.write(codec.read(pa.array([b"\0"])).value)).error.null_count == 1


@pytest.mark.parametrize(
    "body", [b"\x8a\x01\x06\x08\xe4\x0f\x10\x02\x18\x1e", b"\x6a\x09\x08" + b"\xff" * 7 + b"\x7f", b"\x12\x01\xff"]
)
def test_what_google_protobuf_reads_and_no_column_holds_is_an_error_of_its_record(body: bytes) -> None:
    codec = ProtobufCodec(descriptor_of(KINDS_OF_FIELDS, []), Options(), native=False)
    assert codec.read(pa.array([b"\0" + body, b"\0"])).error.is_valid().to_pylist() == [True, False]
