"""Small files that hold much once they are decompressed: they are refused, or read part by part."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectx.connectors.files import archives, limits
from connectx.connectors.files.errors import SourceFileUnreadableError
from connectx.connectors.files.limits import MOST_BYTES, unpacked
from connectx.connectors.files.readers import FileReader

SCHEMA = {"type": "record", "name": "row", "fields": [{"name": "text", "type": "string"}]}


def packed(codec: str, plain: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(plain)
    return bytes(sink.getvalue())


def snappy(plain: bytes) -> bytes:
    return bytes(pa.compress(plain, "snappy", asbytes=True)) + zlib.crc32(plain).to_bytes(4, "big")


def deflate(plain: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(plain) + packer.flush()


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "deflate": deflate,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": lambda plain: packed("zstd", plain),
    "snappy": snappy,
}


def number(value: int) -> bytes:
    """A long of Avro."""
    rest, found = value << 1, bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def avro_file(codec: str, plain: bytes, count: int, schema: str = "") -> bytes:
    """An Avro file of one block."""
    if not schema:
        schema = '{"type":"record","name":"row","fields":[{"name":"text","type":"string"}]}'
    pairs = {"avro.schema": schema.encode(), "avro.codec": codec.encode()}
    texts = b"".join(number(len(part)) + part for name, value in pairs.items() for part in (name.encode(), value))
    block = CODECS[codec](plain) if codec in CODECS else plain
    sync = bytes(range(16))
    return b"Obj\x01" + number(2) + texts + number(0) + sync + number(count) + number(len(block)) + block + sync


@pytest.mark.parametrize("codec", CODECS)
def test_blocks_of_avro_are_read_up_to_a_limit(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "in.avro"
    path.write_bytes(avro_file(codec, number(5) + b"hello" + number(2) + b"du", 2))
    tables = list(FileReader("avro", 10).tables(str(path)))
    assert [row["text"] for table in tables for row in table.to_pylist()] == ["hello", "du"]
    path.write_bytes(avro_file(codec, bytes(MOST_BYTES + 1), 1))
    assert path.stat().st_size < 4_000_000
    with pytest.raises(SourceFileUnreadableError, match=f"more than {MOST_BYTES}"):
        list(FileReader("avro", 10).tables(str(path)))


def test_an_avro_file_that_ends_within_a_block_is_damaged_and_not_shorter(tmp_path: Path) -> None:
    path = tmp_path / "in.avro"
    with path.open("wb") as file:
        fastavro.writer(file, SCHEMA, [{"text": "x" * 100}] * 100, sync_interval=1_000)
    whole = path.read_bytes()
    for cut in range(len(whole) - 1_000, len(whole) - 1, 7):
        path.write_bytes(whole[:cut])
        count, ending = 0, ""
        try:
            for table in FileReader("avro", 1).tables(str(path)):
                count += table.num_rows
        except SourceFileUnreadableError as error:
            ending = error.code
        assert ending or whole[cut - 16 : cut] == whole[-16:], cut


def test_a_length_that_no_memory_holds_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "in.avro"
    path.write_bytes(b"Obj\x01" + number(1) + number(2**50) + b"x" * 100)
    with pytest.raises(SourceFileUnreadableError, match=f"claims {2**50} bytes"):
        list(FileReader("avro", 10).tables(str(path)))


def test_records_that_take_no_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.avro"
    path.write_bytes(avro_file("null", b"", 2**40, '{"type":"record","name":"row","fields":[]}'))
    with pytest.raises(SourceFileUnreadableError, match="take no bytes"):
        list(FileReader("avro", 10).tables(str(path)))


@pytest.mark.parametrize("text_format", ["csv", "json"])
def test_a_line_that_is_too_long_is_refused(tmp_path: Path, text_format: str) -> None:
    path = tmp_path / f"in.{text_format}.zst"
    path.write_bytes(packed("zstd", b"a\n" + b"," * (MOST_BYTES + 1)))
    with pytest.raises(SourceFileUnreadableError, match=f"more than {MOST_BYTES} characters"):
        list(FileReader(text_format, 10).tables(str(path)))


@pytest.mark.parametrize("text_format", ["csv", "json"])
def test_a_table_ends_early_when_its_rows_are_long(
    tmp_path: Path, text_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_BYTES", 1_000)
    row = '"' + "x" * 400 + '"'
    lines = [f'{{"a":{row}}}' if text_format == "json" else row for _ in range(7)]
    path = tmp_path / f"in.{text_format}"
    path.write_text("\n".join(lines if text_format == "json" else ["a", *lines]))
    tables = list(FileReader(text_format, 100).tables(str(path)))
    assert [table.num_rows for table in tables] == [3, 3, 1]


def test_the_header_of_a_tar_may_not_name_a_length_without_limit(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("long")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, MOST_BYTES + 512
    path = tmp_path / "in.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(entry.tobuf() + bytes(MOST_BYTES + 512))
    with pytest.raises(SourceFileUnreadableError, match=f"more than {MOST_BYTES} bytes"):
        list(FileReader("json", 10).tables(str(path)))


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_files_in_a_zip_are_unpacked_in_small_parts(
    tmp_path: Path, compression: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.zip"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("in.json", b'{"id":1}\n' * 200_000)
    asked: list[int] = []
    read1 = zipfile.ZipExtFile.read1
    monkeypatch.setattr(zipfile.ZipExtFile, "read1", lambda file, n: asked.append(n) or read1(file, n))  # type: ignore[func-returns-value]
    ((_, content),) = ((name, file.read(1_000_000)) for name, file in archives.members_of(str(path)))
    assert content == (b'{"id":1}\n' * 200_000)[:1_000_000]
    assert compression == zipfile.ZIP_DEFLATED or max(asked) <= 4_096


def test_parquet_in_an_archive_is_unpacked_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}), parquet)
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:
        archive.writestr("in.parquet", parquet.getvalue())
    reads: list[int] = []
    read = zipfile.ZipExtFile.read
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda file, n=-1: reads.append(n) or read(file, n))  # type: ignore[func-returns-value]
    (table,) = FileReader("parquet", 10).tables(str(tmp_path / "in.zip"))
    assert table["id"].to_pylist() == [1]
    assert reads
    assert -1 not in reads


def test_unpacking_leaves_room_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unpacked(io.BytesIO(b"abc")).read() == b"abc"
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=256 * 1024 * 1024 + 2))
    with pytest.raises(ValueError, match="would leave less than"):
        unpacked(io.BytesIO(b"abc"))
