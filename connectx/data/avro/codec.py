"""Avro bodies, without header, to Arrow columns and back: by pyruhvro, or by fastavro for what pyruhvro cannot.

pyruhvro reads and writes whole columns, and knows neither bytes nor fixed. A body that cannot be read is found by
halves, so that one bad record costs the others nothing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from connectx.data.avro.shapes import combined_type, encoded_of, values_of
from connectx.data.avro.types import AvroType, encoded_schema, kinds, refuse_free_items, value_type
from connectx.data.converter import Decoded
from connectx.data.parts import read_by_halves
from connectx.errors.plugins import ConversionError

_SLOW: Final = frozenset({"bytes", "fixed", "union", "null"})
"""Kinds that pyruhvro does not have, or not as Connect needs them."""
_ALIKE: Final = ({"int", "long"}, {"float", "double"})
"""Branches whose values fastavro gives without saying which branch they are of."""
_FIELD: Final = "value"
_PANIC: Final = "PanicException"

_Read = Callable[[list[bytes]], pa.Array]


class AvroCodec:
    """Reads and writes bodies of one schema.

    A body of type bytes alone is the bytes themselves, as Confluent's serializers write it.

    Args:
        native: use pyruhvro, whose native code reads whole columns of others' bytes, for the types that it has.

    Raises:
        ConversionError: no Arrow type can hold the values.
    """

    def __init__(self, avro: AvroType, *, native: bool = True) -> None:
        self._avro = avro
        self._kind = value_type(avro)
        _refuse_ambiguous(avro)
        refuse_free_items(avro)
        found = kinds(avro)
        # Any schema may be the field of a record without changing the encoding.
        record = {"type": "record", "name": "connectx", "fields": [{"name": _FIELD, "type": encoded_schema(avro)}]}
        self._text = json.dumps(record)
        self._raw = avro.kind == "bytes"
        self._fast = native and not found & _SLOW and not _has_empty_record(avro)
        self._parsed: Any = None

    @property
    def type(self) -> pa.DataType:
        return self._kind

    def read(self, bodies: pa.Array) -> Decoded:
        return read_by_halves(bodies, lambda part: values_of(self._decoded(part.to_pylist()), self._avro), self._kind)

    def write(self, values: pa.Array) -> pa.Array:
        """Bodies (binary) of values without null.

        Raises:
            ConversionError: a type or value that the schema does not take.
        """
        encoded = encoded_of(values, self._avro)
        if self._raw:
            return encoded
        if not self._fast:
            return self._written_singly(encoded)
        import pyruhvro

        kind = pa.field(_FIELD, encoded.type, False)
        batch = pa.record_batch([encoded], schema=pa.schema([kind]))
        return pa.concat_arrays(_guarded(lambda: pyruhvro.serialize_record_batch(batch, self._text, 1)))

    def _decoded(self, bodies: list[bytes]) -> pa.Array:
        if self._raw:
            return pa.array(bodies, pa.binary())
        if not self._fast:
            return self._read_singly(bodies)
        import pyruhvro

        return _guarded(lambda: pyruhvro.deserialize_array(bodies, self._text)).column(0)

    def _schema(self) -> Any:
        if self._parsed is None:
            import fastavro

            self._parsed = fastavro.parse_schema(json.loads(self._text))
        return self._parsed

    def _read_singly(self, bodies: list[bytes]) -> pa.Array:
        import fastavro

        schema, kind, found = self._schema(), combined_type(self._avro), []
        try:
            for body in bodies:
                read: Any = fastavro.schemaless_reader(io.BytesIO(body), schema, None, return_named_type=True)
                found.append(_plain(read[_FIELD], self._avro))
        except (EOFError, ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
            raise ConversionError(f"The record does not match its Avro schema: {_reason(error)}.") from error
        return pa.array(found, kind)

    def _written_singly(self, encoded: pa.Array) -> pa.Array:
        import fastavro

        schema, written = self._schema(), []
        for value in encoded.to_pylist():
            body = io.BytesIO()
            fastavro.schemaless_writer(body, schema, {_FIELD: _with_dicts(value, encoded.type)})
            written.append(body.getvalue())
        return pa.array(written, pa.binary())


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    """Turn the pairs of maps into dictionaries, as fastavro takes them. pyarrow 19 cannot do so itself."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _with_dicts(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _with_dicts(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_with_dicts(item, kind.value_type) for item in value]
    return value


def _guarded(call: Callable[[], Any]) -> Any:
    """What pyruhvro returns. It raises ValueError, or panics, which derives from BaseException alone."""
    try:
        return call()
    except ValueError as error:
        raise ConversionError(f"The record does not match its Avro schema: {_reason(error)}.") from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise ConversionError(f"pyruhvro cannot convert these values: {_reason(error)}.") from error


def _reason(error: BaseException) -> str:
    return str(error).rstrip(".") or type(error).__name__


def _plain(value: Any, avro: AvroType) -> Any:
    """A value of fastavro in the shape of `combined_type`: names of types removed, unions as structs."""
    if isinstance(value, tuple):
        name, inner = value
        if avro.kind != "union":
            return _plain(inner, avro)
        branch = next(one for one in avro.branches if one.name == name)
        return _of_union(_plain(inner, branch), branch, avro)
    match avro.kind:
        case "union":
            if value is None:
                return None
            branch = avro.only or next(one for one in avro.branches if _fits(value, one))
            return _of_union(_plain(value, branch), branch, avro)
        case "record":
            assert isinstance(value, Mapping)
            return {one.name: _plain(value[one.name], one.type) for one in avro.fields}
        case "array":
            return [_plain(one, avro.parts[0]) for one in value]
        case "map":
            return [(key, _plain(one, avro.parts[0])) for key, one in value.items()]
        case _:  # scalars
            return value


def _of_union(value: Any, branch: AvroType, union: AvroType) -> Any:
    return value if union.only is not None else {branch.label: value}


def _fits(value: Any, branch: AvroType) -> bool:
    """Whether a value without a name is of a branch."""
    if isinstance(value, bool):
        return branch.kind == "boolean"
    wanted: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "long": (int,),
        "float": (float,),
        "double": (float,),
        "string": (str,),
        "bytes": (bytes,),
        "array": (list,),
        "map": (dict,),
    }
    return isinstance(value, wanted.get(branch.kind, ()))


def _refuse_ambiguous(avro: AvroType) -> None:
    """Named types differ by their names; of other types only the values are known."""
    branches = {one.kind for one in avro.branches}
    for alike in _ALIKE:
        if alike <= branches:
            raise ConversionError(
                f"A union of {' and '.join(sorted(alike))} cannot be read: their values cannot be distinguished.",
                next_step="Read the topic with ByteArrayConverter, or change the schema.",
            )
    for part in (*avro.parts, *(one.type for one in avro.fields)):
        _refuse_ambiguous(part)


def _has_empty_record(avro: AvroType) -> bool:
    if avro.kind == "record" and not avro.fields:
        return True
    return any(map(_has_empty_record, (*avro.parts, *(one.type for one in avro.fields))))
