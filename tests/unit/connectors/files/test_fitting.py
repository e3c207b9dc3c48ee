"""Nothing of a file of DirectorySource is lost in silence: it is a field, rescued, or a named error."""

from __future__ import annotations

import datetime
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectx.connectors.files.errors import SourceFileColumnError, SourceFileUnreadableError
from connectx.connectors.files.readers import FileReader
from connectx.data.json.converter import JsonConverter
from tests.support.directories import write

MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
INNER = pa.struct([("x", pa.int64())])
NESTED = pa.schema([("s", INNER), ("l", pa.list_(INNER)), ("d", pa.struct([("s", INNER)]))])
ROW = {"s": {"x": 1, "new": 2}, "l": [{"x": 1}, {"x": 2, "new": 3}], "d": {"s": {"x": 1, "new": {"y": 4}}}}
REST = {"s": {"new": 2}, "l": [None, {"new": 3}], "d": {"s": {"new": {"y": 4}}}}
KEPT = {"s": {"x": 1}, "l": [{"x": 1}, {"x": 2}], "d": {"s": {"x": 1}}}


def read(path: Path, kind: str, rows: int = 1_000, **more: Any) -> list[dict[str, Any]]:
    return [row for table in FileReader(kind, rows, **more).tables(str(path)) for row in table.to_pylist()]


def rescued(row: dict[str, Any]) -> Any:
    text = row.pop("_rescued_data")
    return None if text is None else json.loads(text)


def nested_file(folder: Path, kind: str) -> Path:
    path = folder / f"in.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([ROW]), path)
    else:
        write(path, json.dumps(ROW).encode() + b"\n")
    return path


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_field_that_a_nested_type_lacks_evolves_it_as_the_mode_says(tmp_path: Path, kind: str) -> None:
    path = nested_file(tmp_path, kind)
    (evolved,) = read(path, kind, schema=NESTED)
    assert rescued(evolved) is None
    assert evolved == {**ROW, "l": [{"x": 1, "new": None}, {"x": 2, "new": 3}]}
    (row,) = read(path, kind, schema=NESTED, evolution="rescue")
    assert json.loads(json.dumps(rescued(row)).replace("{}", "null")) == REST
    assert row == KEPT
    (dropped,) = read(path, kind, schema=NESTED, evolution="none")
    assert rescued(dropped) is None
    assert dropped == KEPT
    with pytest.raises(SourceFileColumnError, match=r"has the column s\.new"):
        read(path, kind, schema=NESTED, evolution="failOnNewColumns")


def test_a_nested_field_that_the_first_slice_lacks_is_rescued(tmp_path: Path) -> None:
    path = write(tmp_path / "in.json", f"{json.dumps(KEPT)}\n{json.dumps(ROW)}\n".encode())
    first, second = read(path, "json", rows=1)
    assert (rescued(first), rescued(second)) == (None, REST)
    assert first == second == KEPT


@pytest.mark.parametrize(
    ("kind", "document", "value"),
    [
        (pa.decimal128(10, 2), "12.5", Decimal("12.50")),
        (pa.decimal128(38, 20), "1.12345678901234567890", Decimal("1.12345678901234567890")),
        (pa.decimal128(10, 2), '"12.5"', Decimal("12.50")),
        (pa.decimal128(10, 2), "12.567", None),
        (pa.struct([("p", pa.decimal128(10, 2))]), '{"p":12.5}', {"p": Decimal("12.50")}),
        (pa.struct([("t", pa.timestamp("us"))]), '{"t":"2024-05-06 07:08:09"}', {"t": MOMENT.replace(tzinfo=None)}),
        (pa.timestamp("us", "UTC"), "1700000000000", None),
        (pa.date32(), "2024", None),
        (pa.float64(), "true", None),
        (pa.int64(), "12345678901234567890", None),
        (pa.int64(), '"0x10"', None),
        (pa.int64(), "1.5", None),
        (pa.int64(), "1.0", 1),
        (pa.string(), "5", None),
        (pa.string(), '"\\ud83d"', None),
        (INNER, '{"x":"a"}', None),
        (pa.list_(pa.int64()), '[1,"a"]', None),
        (pa.map_(pa.string(), pa.int64()), '{"a":1}', [("a", 1)]),
        (pa.map_(pa.string(), pa.int64()), '{"a":"b"}', None),
    ],
)
def test_a_value_fits_its_column_or_is_rescued(tmp_path: Path, kind: pa.DataType, document: str, value: Any) -> None:
    path = write(tmp_path / "in.json", f'{{"v":{document}}}\n{{"v":null}}\n{{}}\n'.encode())
    for rows in (1_000, 1):
        found, *others = read(path, "json", rows, schema=pa.schema([("v", kind)]))
        assert rescued(found) == (None if value is not None else {"v": json.loads(document)})
        assert found == {"v": value}
        assert others == [{"v": None, "_rescued_data": None}] * 2


def test_types_of_json_hold_all_digits_and_texts(tmp_path: Path) -> None:
    rows = [
        '{"n":12345678901234567890,"in":{"n":[98765432109876543210]},"t":"\\ud83d","long":' + "9" * 60 + "}",
        '{"n":1,"t":"ok","\\ud83d":1,"mixed":1}',
        '{"mixed":true}',
    ]
    first, second, third = read(write(tmp_path / "in.json", "\n".join(rows).encode()), "json")
    assert rescued(first) == {"t": "\ud83d", "long": int("9" * 60)}
    assert rescued(second) == {"\ud83d": 1, "mixed": 1}
    assert rescued(third) == {"mixed": True}
    assert (first["n"], first["in"], second["t"]) == (12345678901234567890, {"n": [98765432109876543210]}, "ok")


def test_columns_of_csv_are_text_where_numbers_would_lose_digits(tmp_path: Path) -> None:
    texts = ["02134", "12345678901234567890123", "1e5", "0.12345678901234567", "+5", "0x10", "nan", " 5", "00.5"]
    names = [f"c{at}" for at in range(len(texts))]
    path = write(tmp_path / "in.csv", f"{','.join([*names, 'i', 'f'])}\n{','.join([*texts, '-12', '0.50'])}\n".encode())
    (row,) = read(path, "csv")
    assert rescued(row) is None
    assert row == {**dict(zip(names, texts, strict=True)), "i": -12, "f": 0.5}


def test_a_later_text_that_a_number_would_change_is_rescued(tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", b"zip,share\n12345,0.5\n02134,1e5\n7,123456789012345.6\n")
    first, second, third = read(path, "csv", rows=1)
    assert first == {"zip": 12345, "share": 0.5, "_rescued_data": None}
    assert rescued(second) == {"zip": "02134", "share": "1e5"}
    assert rescued(third) == {"share": "123456789012345.6"}
    (declared, *_) = read(path, "csv", schema=pa.schema([("zip", pa.int32()), ("share", pa.float64())]))[1:]
    assert declared == {"zip": 2134, "share": 1e5, "_rescued_data": None}


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"id,name,name\n1,a,b\n", "its header names the column 'name' twice"),
        (b'id,name\n1,"a\n2,b\n3,c\n', "the record that begins in line 2: unexpected end of data"),
        (b'id,name\n1,a\n2,"a" b\n', "the record that begins in line 3: ',' expected after '\"'"),
    ],
)
def test_a_csv_file_that_would_lose_values_is_a_named_error(tmp_path: Path, content: bytes, cause: str) -> None:
    with pytest.raises(SourceFileUnreadableError) as caught:
        read(write(tmp_path / "in.csv", content), "csv")
    assert cause in caught.value.message


def test_long_csv_values_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", b'id,text\n1,"' + b"x" * 300_000 + b'"\n')
    assert [len(row["text"]) for row in read(path, "csv")] == [300_000]


def test_unsigned_and_short_columns_of_parquet_have_types_of_records(tmp_path: Path) -> None:
    top = 2**64 - 1
    table = pa.table(
        {
            "u8": pa.array([255], pa.uint8()),
            "u16": pa.array([65535], pa.uint16()),
            "u32": pa.array([2**32 - 1], pa.uint32()),
            "u64": pa.array([top], pa.uint64()),
            "half": pa.array([np.float16(1.5)], pa.float16()),
            "in": pa.array([{"u": top}], pa.struct([("u", pa.uint64())])),
            "list": pa.array([[top]], pa.list_(pa.uint64())),
            "map": pa.array([[("a", top)]], pa.map_(pa.string(), pa.uint64())),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    (found,) = FileReader("parquet", 10).tables(str(tmp_path / "in.parquet"))
    assert found.to_pylist() == table.to_pylist()
    JsonConverter().to_bytes_arrow(found.combine_chunks().to_struct_array().chunk(0))


def test_avro_files_have_the_types_of_their_schema(tmp_path: Path) -> None:
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "long"}]}
    decimals = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    kinds: dict[str, tuple[Any, Any, Any]] = {
        "map": ({"type": "map", "values": "long"}, {"a": 1, "b c": 2}, [("a", 1), ("b c", 2)]),
        "id": ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7), str(uuid.UUID(int=7))),
        "either": (["null", "long", "string"], "x", {"long": None, "string": "x"}),
        "named": (["null", point, "string"], {"x": 5}, {"point": {"x": 5}, "string": None}),
        "again": (["null", "point"], {"x": 6}, {"x": 6}),
        "points": ({"type": "array", "items": ["point", "null"]}, [{"x": 1}, None], [{"x": 1}, None]),
        "price": (decimals, Decimal("1.50"), Decimal("1.50")),
        "at": (["null", {"type": "long", "logicalType": "timestamp-millis"}], MOMENT, MOMENT),
        "nothing": (["null", "long"], None, None),
        "kind": ({"type": "enum", "name": "kind", "symbols": ["A", "B"]}, "B", "B"),
    }
    fields = [{"name": name, "type": kind} for name, (kind, _, _) in kinds.items()]
    path = tmp_path / "in.avro"
    with path.open("wb") as file:
        row = {name: value for name, (_, value, _) in kinds.items()}
        fastavro.writer(file, fastavro.parse_schema({"type": "record", "name": "row", "fields": fields}), [row])
    assert read(path, "avro") == [{name: value for name, (_, _, value) in kinds.items()}]
