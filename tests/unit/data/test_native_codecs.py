"""Native code that reads others' bytes: damaged records end no process, and Avro has another library to choose."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from connectx.data.avro.codec import AvroCodec
from connectx.data.avro.converter import AvroConverter
from connectx.data.avro.types import parse
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
