"""No bytes of other programs end a worker: every decoder of the product, with bytes of every kind.

DECODERS is the registry. A decoder returns a value or `Unreadable`, or raises one type of error. Values are used as the
product uses them: what was read can be written, applied and shown.
"""

from __future__ import annotations

import ast
import contextlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import connectx
from connectx.api.transfer.exporter import Backup
from connectx.core.config_log import ConfigLog
from connectx.core.messages import ConfigReadToEnd, ConfigRecordRead, StatusRecordRead
from connectx.core.status_log import StatusLog
from connectx.errors.databases import ReplicationMessageError
from connectx.errors.history import EventLogError, RecordingError
from connectx.errors.plugins import MalformedDataError
from connectx.errors.transfer import BackupFileError
from connectx.history.log import EventLog
from connectx.model.config_records import IgnoredRecord
from connectx.model.decoding import Unreadable, WrongShape
from connectx.model.events import Transition
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.model.payloads import WorkerFailed
from connectx.plugins.java.class_file import parse
from connectx.plugins.java.finder import find
from connectx.plugins.java.index import decoded_index
from connectx.plugins.java.lock import decoded_lock
from connectx.protocol import walsender
from connectx.protocol.config_topic import decode_config_record, encode_config_record
from connectx.protocol.group import decode_assignment, decode_metadata, encode_assignment, encode_metadata
from connectx.protocol.offsets_topic import (
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from connectx.protocol.pgoutput import Messages
from connectx.protocol.record_batches import Compression, decode, encode, finish, prepare
from connectx.protocol.status_topic import decode_status_record, encode_status_record
from connectx.recording.file import read_recordings
from connectx.recording.replay import first_difference
from connectx.rest.call import JsonResponse
from connectx.runtime.tasks.java.reports import report_of
from connectx.schema_registry.catalog import Catalog
from tests.support.java_classes import class_file, jar
from tests.support.pgoutput import Begin, Commit, Insert, Truncate, Update, encoded, relation
from tests.support.worker_script import leading

ROOT = Path(connectx.__file__).parent
DEEP = "[" * 100_000 + "]" * 100_000
LONG = "9" * 5_000

PARSES = {"loads", "unpack", "unpack_from", "frombuffer", "iter_unpack", "from_buffers"}
"""Functions that read bytes or JSON."""

# JSON that breaks what reads it: nested, long, beyond floating point, and with half of a surrogate pair.
ODD = [
    DEEP,
    LONG,
    "1e999",
    "-0.0",
    "NaN",
    r'"\ud800"',
    "null",
    "[1]",
    "{}",
    "-1",
    str(2**63),
    str(2**31),
    "[" * 99 + "]" * 99,
]
leaves = st.sampled_from(ODD) | st.builds(json.dumps, st.text(max_size=4) | st.integers() | st.floats() | st.booleans())


def members(keys: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """JSON objects with some known keys and any values."""
    pairs = st.lists(st.tuples(keys | st.text(max_size=3), json_texts), max_size=4)
    return pairs.map(lambda found: f"{{{','.join(f'{json.dumps(key)}:{value}' for key, value in found)}}}")


json_texts: st.SearchStrategy[str] = st.deferred(
    lambda: leaves | st.lists(json_texts, max_size=3).map(lambda found: f"[{','.join(found)}]") | members(st.nothing())
)


@st.composite
def changed(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """A valid sample, some of whose bytes were changed, cut out or put in."""
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, 4))):
        at, piece = (
            draw(st.integers(0, len(data))),
            draw(st.binary(max_size=8) | st.sampled_from([b"\xff" * 4, b"\x7f"])),
        )
        data[at : at + draw(st.integers(0, 6))] = piece
    return bytes(data)


def documents(samples: Sequence[bytes], *keys: str) -> st.SearchStrategy[bytes]:
    """JSON documents with known keys, broken samples, and any bytes."""
    made = (members(st.sampled_from(keys or ("",))) | json_texts).map(lambda text: text.encode(errors="replace"))
    return made | changed(samples) | st.binary(max_size=30)


@dataclass(frozen=True)
class Decoder:
    """One entry: what reads the bytes and uses the value, what to give it, and the error that it may raise."""

    read: Callable[..., Any]
    given: tuple[st.SearchStrategy[Any], ...]
    raises: tuple[type[Exception], ...] = ()


PROPERTIES = {"a": "b", "name": "x", "connector.class": "Generator"}
CONFIG_VALUES = [
    json.dumps(one).encode()
    for one in (
        {"properties": PROPERTIES},
        {"tasks": 2},
        {"task-count": 2},
        {"state": "PAUSED", "state.v2": "STOPPED"},
        {"include-tasks": True, "only-failed": False},
        {"key": "AP/+", "algorithm": "HmacSHA256", "creation-timestamp": 12},
        {"level": "DEBUG"},
    )
]
CONFIG_FIELDS = (
    "properties",
    "tasks",
    "task-count",
    "state",
    "state.v2",
    "key",
    "algorithm",
    "creation-timestamp",
    "level",
)
CONFIG_PREFIXES = [
    "connector-",
    "target-state-",
    "task-",
    "commit-",
    "restart-connector-",
    "tasks-fencing-",
    "logger-cluster-",
]
STATUS_VALUES = [
    b'{"state":"RUNNING","trace":null,"worker_id":"h:1","generation":4,"version":"1.0"}',
    b'{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":9}}',
]
STATUS_FIELDS = ("state", "trace", "worker_id", "generation", "version", "topic", "task", "discoverTimestamp")
OFFSETS = [b'["c",{"file":"x","n":1}]', b'{"position":42}', b"null"]


def keys(prefixes: Sequence[str]) -> st.SearchStrategy[bytes | None]:
    """Keys of an internal topic: its prefixes with names, numbers of tasks, and anything."""
    names = st.sampled_from(["c", "c-0", "x-" + LONG, "c-4294967296", "t:connector-c", "", "session-key"]) | st.text(
        max_size=4
    )
    known = st.builds(lambda prefix, name: (prefix + name).encode(), st.sampled_from(prefixes), names)
    return known | st.sampled_from([None, b"session-key", b"\xff\xfe"]) | st.binary(max_size=8)


def config_record(key: bytes | None, value: bytes | None) -> None:
    record = decode_config_record(key, value)
    if isinstance(record, Unreadable | IgnoredRecord):
        return
    encode_config_record(record)
    log = ConfigLog()
    log.apply(0, record)
    core = leading().core
    core.handle(ConfigRecordRead(2**40, record), 2_000)
    core.handle(ConfigReadToEnd(1), 2_001)
    JsonResponse([log.connector_config(name) for name in log.connectors()])


def status_record(key: bytes | None, value: bytes | None) -> None:
    record = decode_status_record(key, value)
    if isinstance(record, Unreadable):
        return
    encode_status_record(record)
    StatusLog().apply(record, 1)
    leading().core.handle(StatusRecordRead(record, 1), 2_000)


def offset_key(key: bytes | None) -> None:
    known = decode_offset_key(key)
    if not isinstance(known, Unreadable):
        encode_offset_key(*known)
        JsonResponse(known)


def offset_value(value: bytes | None) -> None:
    offset = decode_offset_value(value)
    if not isinstance(offset, Unreadable):
        encode_offset_value(offset)
        JsonResponse(offset)


SCHEMA_KEYS = [
    b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
    b'{"keytype":"CONFIG","subject":null,"magic":0}',
    b'{"keytype":"MODE","subject":"s","magic":0}',
    b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
    b'{"keytype":"NOOP","magic":0}',
]
SCHEMA_VALUES = [
    b'{"subject":"s","version":1,"id":9,"schema":"\\"int\\"","references":[{"name":"n","subject":"s","version":1}]}',
    b'{"compatibilityLevel":"FULL"}',
    b'{"mode":"IMPORT"}',
    b'{"subject":"s","version":1}',
]
SCHEMA_FIELDS = (
    "keytype",
    "subject",
    "version",
    "id",
    "schema",
    "schemaType",
    "references",
    "mode",
    "compatibilityLevel",
)


def schemas_record(key: bytes | None, value: bytes | None) -> None:
    catalog = Catalog()
    catalog.apply(key, value)
    JsonResponse([one.to_json() | dict(one.others) for one in catalog.all(deleted=True)])
    catalog.level(None)
    for subject in catalog.subjects(deleted=True):
        catalog.referencing(subject, 1)


@cache
def metadata() -> list[bytes]:
    work = WorkSet(("a",), (TaskId("a", 0), TaskId("b", 7)))
    given = Assignment(ProtocolVersion.SESSIONED, 0, "m", "http://h:1/", 9, work, work, 5)
    joined = MemberMetadata(ProtocolVersion.SESSIONED, "http://h:1/", 7, given)
    return [encode_metadata(joined), encode_assignment(given)]


def member_metadata(data: bytes) -> None:
    decoded = decode_metadata(data)
    if not isinstance(decoded, Unreadable):
        encode_metadata(decoded)


def assignment(data: bytes) -> None:
    decoded = decode_assignment(data)
    if not isinstance(decoded, Unreadable):
        encode_assignment(decoded)


@cache
def batches() -> list[bytes]:
    rows = pa.table({"key": pa.array([b"k", None]), "value": pa.array([b"v" * 40, b"w"])})
    prepared = prepare(rows, 1_000)
    return [finish(encode(prepared, 0, 2, Compression(name))) for name in ("none", "gzip", "snappy", "lz4", "zstd")]


def record_batch(data: bytes) -> None:
    for batch in decode(data, check_crc=False):
        batch.rows.validate(full=True)


@cache
def replicated() -> list[bytes]:
    row = (b"1", None)
    found = (
        Begin(1, 2, 3),
        relation(7, "id", "v"),
        Insert(7, row),
        Update(7, row, row, False),
        Truncate((7,), True, True),
    )
    return [encoded(message) for message in (*found, Commit(1, 2, 3))]


def pgoutput(parts: list[bytes]) -> None:
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    buffer = np.frombuffer(b"".join(parts), np.uint8)
    found = Messages(buffer, np.append(0, ends[:-1]).astype(np.int64), ends, np.zeros(len(parts), np.int64))
    found.begins(), found.commits(), found.relations(), found.truncates()
    numbers, _ = found.changes()
    if len(numbers):
        found.rows(numbers, 2)


def frames(parts: list[bytes]) -> None:
    walsender.messages_of(parts)


@cache
def recording() -> list[bytes]:
    from tests.unit.recording.test_recording import recorded, some_steps

    return ["\n".join(some_steps(recorded(8_192)).lines()).encode()]


def of_file(read: Callable[[Path], Any]) -> Callable[[bytes], None]:
    def read_bytes(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "file"
            path.write_bytes(data)
            read(path)

    return read_bytes


@cache
def jars() -> list[bytes]:
    services = {"org.apache.kafka.connect.source.SourceConnector": "org.acme.A"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jar"
        return [jar(path, class_file("org.acme.A", "org.acme.B"), services=services).read_bytes()]


def plugin_lock(data: bytes) -> None:
    decoded_lock(data)


def of_jar(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONNECTX_CACHE_DIR", f"{folder}/cache")
        path = Path(folder) / "a.jar"
        path.write_bytes(data)
        find([path])


def replayed(path: Path) -> None:
    for one in read_recordings(path):
        first_difference(one)


@cache
def history() -> list[bytes]:
    log = EventLog()
    log.append(Transition(WorkerFailed("it ended")), "worker-1")
    with tempfile.TemporaryDirectory() as folder:
        return [log.to_jsonl(Path(folder) / "events.jsonl").read_bytes()]


EXPORT = [
    json.dumps(
        {
            "format": "connectx-connectors",
            "version": 1,
            "connectors": [{"name": "c", "state": "RUNNING", "config": PROPERTIES, "offsets": [], "masked": []}],
        }
    ).encode()
]

PLUGIN_INDEX = [
    json.dumps(
        {
            "fingerprint": "x",
            "plugins": [["org.acme.A", "source", "1.0", "/a", True]],
            "refusals": [["/b", "it does not exist"]],
            "locations": ["/a"],
        }
    ).encode()
]

PLUGIN_LOCK = [json.dumps({"format": 1, "source": "a:b:1", "files": {"b-1.jar": "0" * 64}}).encode()]

lazily = st.deferred

JAVA_REPORTS = [
    b'{"report":"Committed","task":"c-0","instance":1,"records":2,"transaction":true,"offsets":[{"partition":{},"offset":{}}]}',
    b'{"report":"TaskConfigsGenerated","connector":"c","instance":1,"task_configs":[{"a":null}]}',
    b'{"report":"Answer","id":1,"error":"no","status":400}',
]

DECODERS = {
    "config topic": Decoder(
        config_record, (keys(CONFIG_PREFIXES), documents(CONFIG_VALUES, *CONFIG_FIELDS) | st.none())
    ),
    "status topic": Decoder(
        status_record,
        (
            keys(["status-connector-", "status-task-", "status-topic-"]),
            documents(STATUS_VALUES, *STATUS_FIELDS) | st.none(),
        ),
    ),
    "offsets topic, keys": Decoder(offset_key, (documents(OFFSETS) | st.none(),)),
    "offsets topic, values": Decoder(offset_value, (documents(OFFSETS) | st.none(),)),
    "schemas topic": Decoder(
        schemas_record,
        (documents(SCHEMA_KEYS, *SCHEMA_FIELDS) | st.none(), documents(SCHEMA_VALUES, *SCHEMA_FIELDS) | st.none()),
        (MalformedDataError,),
    ),
    "group metadata": Decoder(member_metadata, (lazily(lambda: changed(metadata())),)),
    "group assignments": Decoder(assignment, (lazily(lambda: changed(metadata())),)),
    "record batches": Decoder(record_batch, (lazily(lambda: changed(batches())),), (MalformedDataError,)),
    "pgoutput": Decoder(
        pgoutput, (st.lists(lazily(lambda: changed(replicated())), min_size=1, max_size=5),), (ReplicationMessageError,)
    ),
    "walsender, frames": Decoder(
        frames,
        (st.lists(lazily(lambda: changed([b"w" + bytes(24) + one for one in replicated()])), max_size=3),),
        (ReplicationMessageError,),
    ),
    "walsender, keepalives": Decoder(walsender.keepalive, (st.binary(max_size=20),), (ReplicationMessageError,)),
    "recordings": Decoder(
        of_file(replayed), (lazily(lambda: documents(recording(), "format", "steps")),), (RecordingError,)
    ),
    "class files": Decoder(parse, (lazily(lambda: changed([class_file("org.acme.A", "b.C")])),), (WrongShape,)),
    "jars": Decoder(of_jar, (lazily(lambda: changed(jars())),)),
    "lock files of plugins": Decoder(plugin_lock, (documents(PLUGIN_LOCK, "format", "source", "files"),)),
    "index of plugins": Decoder(
        lambda data: decoded_index(data, "x"),
        (documents(PLUGIN_INDEX, "fingerprint", "plugins", "refusals", "locations"),),
    ),
    "histories": Decoder(
        of_file(EventLog.from_jsonl),
        (lazily(lambda: documents(history(), "version", "seq", "data", "why")),),
        (EventLogError,),
    ),
    "reports of a JVM": Decoder(report_of, (documents(JAVA_REPORTS, "report", "task", "instance", "records"),)),
    "exports": Decoder(
        of_file(Backup.read), (documents(EXPORT, "format", "version", "connectors"),), (BackupFileError,)
    ),
}


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_bytes_end_what_reads_them(name: str, data: st.DataObject) -> None:
    entry = DECODERS[name]
    values = [data.draw(strategy) for strategy in entry.given]
    with contextlib.suppress(*entry.raises):
        entry.read(*values)


FUZZED = {
    "api/transfer/exporter.py",
    "history/log.py",
    "plugins/java/class_file.py",
    "plugins/java/index.py",
    "plugins/java/lock.py",
    "protocol/compact_json.py",
    "protocol/config_topic.py",
    "protocol/group.py",
    "protocol/offsets_topic.py",
    "protocol/pgoutput.py",
    "protocol/record_batches/codecs.py",
    "protocol/record_batches/decoding.py",
    "protocol/status_topic.py",
    "protocol/walsender.py",
    "recording/file.py",
    "schema_registry/records.py",
}
"""Modules of the decoders above."""

OTHERS = {
    "cli/common.py": "files that the user of the command names",
    "demo/measures.py": "the demonstration's own topic",
    "jvm/jars.py": "a file of this package",
    "kafka/broker/gate.py": "requests of workers to the embedded broker, on their connection's thread",
    "kafka/broker/request_kinds.py": "the same",
    "plugins/config_providers.py": "files that the worker's owner names",
    "protocol/partitions.py": "arrays of this program",
    "protocol/record_batches/encoding.py": "arrays of this program",
    "protocol/record_batches/varints.py": "what decoding.py has checked",
    "recording/codec.py": "keys of this program",
    "runtime/process/wire.py": "a pipe between a worker and its owner",
    "schema_registry/api.py": "a body of a request; what cannot be read is refused",
    "schema_registry/avro_compatibility.py": "schemas of requests; what cannot be read is refused",
    "schema_registry/catalog.py": "the same",
    "spark/launcher.py": "a file of the child process",
    "verify/check/commits.py": "keys of this program",
    "verify/check/identity.py": "records, on the thread of the user who checks",
    "verify/check/keys.py": "keys of this program",
    "verify/check/replay.py": "rows of this program",
}
"""Other modules that parse, and what they read."""

OF_TASKS = ("connectors/", "data/", "runtime/tasks/")
"""Folders whose code runs on a task's thread: an error there fails that task alone."""


def test_the_registry_names_every_module_that_parses_bytes() -> None:
    found = {module for module in parsing_modules() if not module.startswith(OF_TASKS)}
    assert found == FUZZED | set(OTHERS)


def parsing_modules() -> set[str]:
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in PARSES:
                found.add(path.relative_to(ROOT).as_posix())
    return found


def test_every_function_that_is_marked_as_a_decoder_is_in_the_registry() -> None:
    marked = {
        (path.relative_to(ROOT).as_posix(), node.name)
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(by) == "decoder" for by in node.decorator_list)
    }
    used = Path(__file__).read_text()
    assert {module for module, _ in marked} <= FUZZED
    assert [
        name for module, name in sorted(marked) if f"{name}(" not in used and module != "schema_registry/records.py"
    ] == []
