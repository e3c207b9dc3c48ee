"""Keys and values of the internal topics beside the golden ones: shapes to ignore, tombstones, exact JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.errors.plugins import MalformedDataError
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    IgnoredRecord,
    LoggerLevelRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from connectx.model.decoding import Unreadable
from connectx.model.ids import TaskId
from connectx.model.states import State, TargetState
from connectx.model.status_records import (
    ConnectorStatusRecord,
    Status,
    StatusRecord,
    TaskStatusRecord,
    TopicStatusRecord,
)
from connectx.protocol import compact_json
from connectx.protocol.config_topic import decode_config_record, encode_config_record
from connectx.protocol.offsets_topic import (
    Primitive,
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from connectx.protocol.status_topic import decode_status_record, encode_status_record


def test_json_is_compact_and_escapes_only_what_it_must() -> None:
    assert compact_json.dumps({"p": ['ä/"\\', 1, True, None]}) == '{"p":["ä/\\"\\\\",1,true,null]}'.encode()


def test_control_characters_are_spelled_as_jackson_does() -> None:
    assert compact_json.dumps("\x1f\n\\u001f") == b'"\\u001F\\n\\\\u001f"'


def test_the_json_reader_refuses_what_is_not_json() -> None:
    for data in (b"", b"{", b"NaN", b"-Infinity", b"\xff"):
        with pytest.raises(ValueError, match=r".*"):
            compact_json.loads(data)


CONFIG_RECORDS: list[tuple[ConfigRecord, str, str | None]] = [
    (ConnectorConfigRecord("a-b ü", {"x": None, "y": "/"}), "connector-a-b ü", '{"properties":{"x":null,"y":"/"}}'),
    (ConnectorConfigRecord("c", None), "connector-c", None),
    (TargetStateRecord("c", TargetState.STARTED), "target-state-c", '{"state":"STARTED","state.v2":"STARTED"}'),
    (TargetStateRecord("c", TargetState.STOPPED), "target-state-c", '{"state":"PAUSED","state.v2":"STOPPED"}'),
    (TargetStateRecord("c", None), "target-state-c", None),
    (TaskConfigRecord(TaskId("a-1", 10), {"k": "v"}), "task-a-1-10", '{"properties":{"k":"v"}}'),
    (TaskCommitRecord("c", 0), "commit-c", '{"tasks":0}'),
    (TaskCountRecord("c", 3), "tasks-fencing-c", '{"task-count":3}'),
    (
        SessionKeyRecord(b"\x00\xff\xfe", "HmacSHA256", 12),
        "session-key",
        '{"key":"AP/+","algorithm":"HmacSHA256","creation-timestamp":12}',
    ),
    (RestartRecord("c", True, False), "restart-connector-c", '{"include-tasks":true,"only-failed":false}'),
    (LoggerLevelRecord("org.x", "DEBUG"), "logger-cluster-org.x", '{"level":"DEBUG"}'),
]


@pytest.mark.parametrize(("record", "key", "value"), CONFIG_RECORDS)
def test_a_config_record_is_written_and_read_as_kafka_connect_does(
    record: ConfigRecord, key: str, value: str | None
) -> None:
    data = None if value is None else value.encode()
    assert encode_config_record(record) == (key, data)
    assert decode_config_record(key.encode(), data) == record


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connector-c", "[]"),
        ("connector-c", '{"properties":[]}'),
        ("connector-c", '{"properties":{"a":1}}'),
        ("connector-", '{"properties":{}}'),
        ("task-c-0", None),
        ("task-c-0", "{}"),
        ("task-c", '{"properties":{}}'),
        ("task-c-x", '{"properties":{}}'),
        ("task-c-²", '{"properties":{}}'),
        ("task-c-99999999999", '{"properties":{}}'),
        ("commit-c", None),
        ("commit-c", '{"tasks":true}'),
        ("commit-c", '{"tasks":1.0}'),
        ("commit-c", '{"tasks":-1}'),
        ("commit-c", "{}"),
        ("tasks-fencing-c", None),
        ("tasks-fencing-c", '{"task-count":"1"}'),
        ("target-state-c", "{}"),
        ("target-state-c", '{"state":"started"}'),
        ("target-state-c", '{"state":"STARTED","state.v2":"DREAMING"}'),
        ("session-key", None),
        ("session-key", '{"algorithm":"HmacSHA256","creation-timestamp":1}'),
        ("session-key", '{"key":"AP/+","algorithm":"HmacSHA256"}'),
        ("session-key", '{"key":"AP/+","algorithm":"HmacSHA256","creation-timestamp":1.5}'),
        ("session-key", '{"key":"?","algorithm":"HmacSHA256","creation-timestamp":1}'),
        ("session-key-2", '{"key":"AP/+","algorithm":"HmacSHA256","creation-timestamp":1}'),
        ("restart-connector-c", None),
        ("logger-cluster-x", "{}"),
        ("hello", "{}"),
    ],
)
def test_a_record_of_the_wrong_shape_is_ignored_with_a_reason(key: str, value: str | None) -> None:
    record = decode_config_record(key.encode(), None if value is None else value.encode())
    assert isinstance(record, IgnoredRecord)
    assert record.key == key
    assert record.reason


def test_the_reason_for_ignoring_a_session_key_does_not_hold_the_key() -> None:
    record = decode_config_record(b"session-key", b'{"key":"c2VjcmV0","algorithm":"HmacSHA256"}')
    assert "c2VjcmV0" not in repr(record)


def test_a_config_value_that_is_not_json_is_no_record() -> None:
    assert isinstance(decode_config_record(b"connector-c", b"{properties"), Unreadable)
    assert isinstance(decode_config_record(b"unknown", b""), Unreadable)


def test_json_null_is_a_tombstone() -> None:
    assert decode_config_record(b"connector-c", b"null") == ConnectorConfigRecord("c", None)


def test_a_record_without_a_key_is_ignored() -> None:
    assert isinstance(decode_config_record(None, b"{}"), IgnoredRecord)


def test_the_state_of_old_workers_is_read_when_the_newer_field_is_no_string() -> None:
    expected = TargetStateRecord("c", TargetState.PAUSED)
    assert decode_config_record(b"target-state-c", b'{"state":"PAUSED"}') == expected
    assert decode_config_record(b"target-state-c", b'{"state":"PAUSED","state.v2":7}') == expected


def test_missing_and_odd_fields_of_a_restart_are_false() -> None:
    record = decode_config_record(b"restart-connector-c", b'{"only-failed":"yes"}')
    assert record == RestartRecord("c", include_tasks=False, only_failed=False)


RUNNING = Status(State.RUNNING, "h:1", 4, None, "1.0")
RUNNING_JSON = '{"state":"RUNNING","trace":null,"worker_id":"h:1","generation":4,"version":"1.0"}'


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (ConnectorStatusRecord("a-b", RUNNING), "status-connector-a-b", RUNNING_JSON),
        (TaskStatusRecord(TaskId("a-b", 3), RUNNING), "status-task-a-b-3", RUNNING_JSON),
        (TaskStatusRecord(TaskId("a-b", 3), None), "status-task-a-b-3", None),
        (
            TopicStatusRecord("t.x", "a:connector-b", 0, 9),
            "status-topic-t.x:connector-a:connector-b",
            '{"topic":{"name":"t.x","connector":"a:connector-b","task":0,"discoverTimestamp":9}}',
        ),
        (TopicStatusRecord("t", "c", None), "status-topic-t:connector-c", None),
    ],
)
def test_a_status_record_is_written_and_read_as_kafka_connect_does(
    record: StatusRecord, key: str, value: str | None
) -> None:
    data = None if value is None else value.encode()
    assert encode_status_record(record) == (key, data)
    assert decode_status_record(key.encode(), data) == record


def test_destroyed_is_written_as_a_tombstone() -> None:
    gone = Status(State.DESTROYED, "h:1", 4)
    assert encode_status_record(ConnectorStatusRecord("c", gone)) == ("status-connector-c", None)


def test_a_status_from_before_the_version_field_is_read() -> None:
    old = b'{"state":"FAILED","trace":"t","worker_id":"h:1","generation":4}'
    assert decode_status_record(b"status-connector-c", old) == ConnectorStatusRecord(
        "c", Status(State.FAILED, "h:1", 4, "t", None)
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status-connector-c", "{"),
        ("status-connector-c", "[]"),
        ("status-connector-c", "null"),
        ("status-connector-", RUNNING_JSON),
        ("status-connector-c", RUNNING_JSON.replace("RUNNING", "FLYING")),
        ("status-connector-c", RUNNING_JSON.replace('"RUNNING"', "[]")),
        ("status-connector-c", RUNNING_JSON.replace(":4,", ":4.5,")),
        ("status-connector-c", RUNNING_JSON.replace('"h:1"', "null")),
        ("status-task-c", RUNNING_JSON),
        ("status-task-c-x", None),
        ("status-topic-t", "{}"),
        ("status-topic-t:connector-", None),
        ("status-topic-t:connector-c", "{}"),
        ("status-topic-t:connector-c", '{"topic":{"name":"t","connector":"c","task":0}}'),
        ("other", RUNNING_JSON),
    ],
)
def test_a_status_record_of_the_wrong_shape_is_skipped(key: str, value: str | None) -> None:
    assert isinstance(decode_status_record(key.encode(), None if value is None else value.encode()), Unreadable)


def test_an_offset_key_keeps_the_order_and_type_of_its_properties() -> None:
    partition: dict[str, Primitive] = {"z": 1, "a": "ü/", "f": 1.5, "n": None, "b": False}
    key = encode_offset_key("c", partition)
    assert key == '["c",{"z":1,"a":"ü/","f":1.5,"n":null,"b":false}]'.encode()
    assert decode_offset_key(key) == ("c", partition)
    assert str(decode_offset_key(key)) == str(("c", partition))


OTHER_KEYS = (None, b"", b"{}", b'["c"]', b'["c",{},1]', b"[1,{}]", b'["c",null]', b'["c",{"a":[]}]')


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_an_offset_key_of_another_shape_is_skipped(key: bytes | None) -> None:
    assert isinstance(decode_offset_key(key), Unreadable)


def test_an_offset_is_an_object_or_a_tombstone() -> None:
    assert encode_offset_value({"position": 42}) == b'{"position":42}'
    assert encode_offset_value(None) is None
    assert decode_offset_value(b'{"position":42}') == {"position": 42}
    assert decode_offset_value(None) is None
    for value in (b"[]", b"7", b"{", b'{"a":{}}'):
        assert isinstance(decode_offset_value(value), Unreadable)


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"x", float("nan"), float("inf"), object()])
def test_only_finite_primitive_values_become_offsets(value: object) -> None:
    with pytest.raises(MalformedDataError):
        encode_offset_value({"k": value})  # type: ignore[dict-item]
    with pytest.raises(MalformedDataError):
        encode_offset_key("c", {"k": value})  # type: ignore[dict-item]


primitives = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)


@given(st.text(min_size=1), st.dictionaries(st.text(), primitives, max_size=4))
def test_decoding_inverts_encoding_of_offset_keys(connector: str, partition: dict[str, None]) -> None:
    decoded = decode_offset_key(encode_offset_key(connector, partition))
    assert isinstance(decoded, tuple)
    assert decoded == (connector, partition)
    assert encode_offset_key(*decoded) == encode_offset_key(connector, partition)


@given(
    st.sampled_from(["connector-", "target-state-", "task-", "commit-", "restart-connector-", "tasks-fencing-"]),
    st.text(max_size=5),
    st.recursive(primitives, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6),
)
def test_a_record_that_is_understood_survives_being_written(prefix: str, name: str, value: object) -> None:
    record = decode_config_record((prefix + name).encode(), compact_json.dumps(value))
    assert not isinstance(record, Unreadable)
    if not isinstance(record, IgnoredRecord):
        key, data = encode_config_record(record)
        assert decode_config_record(key.encode(), data) == record
