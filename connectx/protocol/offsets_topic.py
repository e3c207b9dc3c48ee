"""Keys and values of the offsets topic.

It decides which bytes name a source partition; an offset is found by these exact bytes, so the order of properties
is kept. It never decides which offset counts. Mirrors Kafka Connect's OffsetUtils and OffsetStorageWriter.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectx.errors.plugins import MalformedDataError
from connectx.model.decoding import WrongShape, decoder
from connectx.protocol import compact_json

Primitive = str | int | float | bool | None


def encode_offset_key(connector: str, partition: Mapping[str, Primitive] | None) -> bytes:
    """`["<connector>",{<partition>}]`, or null for the partition. MalformedDataError if it is not flat."""
    return compact_json.dumps([connector, None if partition is None else _checked(partition, "source partition")])


def encode_offset_value(source_offset: Mapping[str, Primitive] | None) -> bytes | None:
    """`{<source offset>}`; None deletes. MalformedDataError for what is not a flat map of primitive values."""
    return None if source_offset is None else compact_json.dumps(_checked(source_offset, "source offset"))


@decoder
def decode_offset_key(key: bytes | None) -> tuple[str, dict[str, Primitive]]:
    """Connector and source partition."""
    match None if key is None else compact_json.loads(key):
        case [str(connector), dict(partition)] if _is_flat(partition):
            return connector, partition
        case _:
            raise WrongShape("it is not a connector and a source partition")


@decoder
def decode_offset_value(value: bytes | None) -> dict[str, Primitive] | None:
    """The source offset, None for a tombstone and JSON `null`."""
    content = None if value is None else compact_json.loads(value)
    if content is not None and not (isinstance(content, dict) and _is_flat(content)):
        raise WrongShape("it is not a flat JSON object")
    return content


def _is_flat(values: Mapping[str, object]) -> bool:
    """As Kafka Connect writes them (OffsetUtils.validateFormat); integers have 64 bits."""
    return all(
        value is None or isinstance(value, str | float | bool) or compact_json.is_integer(value)
        for value in values.values()
    )


def _checked(values: Mapping[str, Primitive], what: str) -> dict[str, Primitive]:
    for name, value in values.items():
        if not isinstance(name, str):
            raise MalformedDataError(f"a {what}", f"its property {name!r} is not named by a string")
        if value is not None and not isinstance(value, str | int | float | bool):
            raise MalformedDataError(f"a {what}", f"its property {name!r} is a {type(value).__name__}, not a primitive")
        if value in (float("inf"), float("-inf")) or value != value:  # noqa: PLR0124
            raise MalformedDataError(f"a {what}", f"its property {name!r} is not a finite number")
    return dict(values)
