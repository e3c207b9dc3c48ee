"""Why a record is not JSON of the expected type: for error messages, looked at only where reading has failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

NO_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def why_not(record: bytes, target: DataType, *, in_envelope: bool = False) -> str:
    """What is wrong, in one sentence without the data itself; `in_envelope`: the value is the field `payload`."""
    try:
        document = json.loads(record.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return why_no_json(record, error)
    if in_envelope and not (isinstance(document, dict) and {"schema", "payload"} <= document.keys()):
        return NO_ENVELOPE
    value = document["payload"] if in_envelope else document
    return _mismatch(value, target, "the value") or f"it is not JSON of type {target.simpleString()}"


def why_no_json(record: bytes, error: Exception) -> str:
    """What an error of Python's decoder or parser says about a record."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8: {error.reason} at byte {error.start}"
    if isinstance(error, RecursionError):
        return "it is not JSON: it is nested too deeply"
    return f"it is not JSON: {error}" if record.strip() else "it is empty"


def _mismatch(found: Any, target: DataType, path: str) -> str | None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if found is None:
        return None
    if isinstance(target, (StructType, MapType)):
        if not isinstance(found, dict):
            return f"{path} should be an object, found {_kind(found)}"
        inner = (
            [
                (found.get(f.name), f.dataType, f.name if path == "the value" else f"{path}.{f.name}")
                for f in target.fields
            ]
            if isinstance(target, StructType)
            else [(value, target.valueType, f"{path}.{key}") for key, value in found.items()]
        )
    elif isinstance(target, ArrayType):
        if not isinstance(found, list):
            return f"{path} should be an array, found {_kind(found)}"
        inner = [(value, target.elementType, f"{path}[{index}]") for index, value in enumerate(found)]
    else:
        return _scalar_mismatch(found, target, path)
    return next((problem for item in inner if (problem := _mismatch(*item))), None)


def _scalar_mismatch(found: Any, target: DataType, path: str) -> str | None:
    name = target.typeName()
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if name in _BITS:
        if not is_number or isinstance(found, float):
            return f"{path} should be an integer, found {_kind(found)}"
        limit = 1 << (_BITS[name] - 1)
        return None if -limit <= found < limit else f"{path} does not fit {target.simpleString()}"
    if name in ("float", "double") and not is_number and found not in ("NaN", "Infinity", "-Infinity"):
        return f"{path} should be a number, found {_kind(found)}"
    if name == "boolean" and not isinstance(found, bool):
        return f"{path} should be a boolean, found {_kind(found)}"
    if name == "binary" and not isinstance(found, str):
        return f"{path} should be base64 text, found {_kind(found)}"
    return None


def _kind(found: Any) -> str:
    names = {
        bool: "a boolean",
        int: "an integer",
        float: "a fraction",
        str: "text",
        list: "an array",
        dict: "an object",
    }
    return names.get(type(found), "null")
