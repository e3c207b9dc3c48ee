"""Keys and values of the offsets topic.

It decides which bytes name a source partition; an offset is found by these exact bytes, so the order of properties
is kept. It never decides which offset counts. Mirrors Kafka Connect's OffsetUtils and OffsetStorageWriter.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectx.errors.plugins import MalformedDataError
from connectx.protocol import compact_json

Primitive = str | int | float | bool | None


def encode_offset_key(connector: str, partition: Mapping[str, Primitive]) -> bytes:
    """`["<connector>",{<partition>}]`. MalformedDataError for what is not a flat map of primitive values."""
    return compact_json.dumps([connector, _checked(partition, "source partition")])


def encode_offset_value(source_offset: Mapping[str, Primitive] | None) -> bytes | None:
    """`{<source offset>}`; None deletes. MalformedDataError for what is not a flat map of primitive values."""
    return None if source_offset is None else compact_json.dumps(_checked(source_offset, "source offset"))


def decode_offset_key(key: bytes | None) -> tuple[str, dict[str, Primitive]] | None:
    """Connector and source partition; None for a key of another shape, which readers skip."""
    try:
        content = None if key is None else compact_json.loads(key)
    except ValueError:
        return None
    match content:
        case [str(connector), dict(partition)]:
            return connector, partition
        case _:
            return None


def decode_offset_value(value: bytes | None) -> dict[str, Primitive] | None:
    """The source offset, None for a tombstone. MalformedDataError for anything but a JSON object or null."""
    try:
        content = None if value is None else compact_json.loads(value)
    except ValueError as error:
        raise MalformedDataError("an offset record", f"it is not JSON ({error})") from error
    if content is not None and not isinstance(content, dict):
        raise MalformedDataError("an offset record", "it is not a JSON object")
    return content


def _checked(values: Mapping[str, Primitive], what: str) -> dict[str, Primitive]:
    for name, value in values.items():
        if not isinstance(name, str):
            raise MalformedDataError(f"a {what}", f"its property {name!r} is not named by a string")
        if value is not None and not isinstance(value, str | int | float | bool):
            raise MalformedDataError(f"a {what}", f"its property {name!r} is a {type(value).__name__}, not a primitive")
        if value in (float("inf"), float("-inf")) or value != value:  # noqa: PLR0124
            raise MalformedDataError(f"a {what}", f"its property {name!r} is not a finite number")
    return dict(values)
