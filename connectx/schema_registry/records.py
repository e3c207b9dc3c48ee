"""Records of the `_schemas` topic, as Confluent's registry writes and reads them: JSON keys and values."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import field
from typing import Any, Final

from connectx.model.decoding import WrongShape, decoder
from connectx.protocol import compact_json
from connectx.schema_registry.levels import Level
from connectx.values import Value

KeyValue = tuple[str, bytes | None]

KINDS: Final = ("AVRO", "JSON", "PROTOBUF")
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
LARGEST: Final = 2**31 - 1
"""Of versions and ids."""

_SCHEMA_MAGIC: Final = 1


class Reference(Value):
    """A name in a schema and the version of a subject that defines it."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        """As in REST and in the topic."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


class Version(Value):
    """A version of a subject. `text` is the schema; `kind` is AVRO, JSON or PROTOBUF."""

    subject: str
    version: int
    schema_id: int
    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()
    deleted: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)
    """What a registry of another version has written beside these."""

    @property
    def content(self) -> tuple[str, str, tuple[Reference, ...]]:
        """What has one id, in whatever subjects."""
        return self.kind, self.text, self.references

    def schema_json(self) -> dict[str, Any]:
        """The schema as in answers: `schemaType` and `references` only where they are not the default."""
        found: dict[str, Any] = {} if self.kind == "AVRO" else {"schemaType": self.kind}
        if self.references:
            found["references"] = [one.to_json() for one in self.references]
        return found | {"schema": self.text}

    def to_json(self) -> dict[str, Any]:
        return {"subject": self.subject, "version": self.version, "id": self.schema_id, **self.schema_json()}


def schema_record(version: Version) -> KeyValue:
    """The record of a version, deleted or not."""
    value = {**self_json(version), "deleted": version.deleted}
    return schema_key(version.subject, version.version), _bytes(value)


def self_json(version: Version) -> dict[str, Any]:
    """A version with what another registry has written beside it."""
    return {**version.to_json(), **version.others}


def schema_key(subject: str, version: int) -> str:
    return _text({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": _SCHEMA_MAGIC})


def config_record(subject: str | None, level: str | None) -> KeyValue:
    """The record of a subject's compatibility, or the global one; None removes it."""
    return _setting("CONFIG", subject, None if level is None else {"compatibilityLevel": level})


def mode_record(subject: str | None, mode: str | None) -> KeyValue:
    """The record of a subject's mode, or the global one; None removes it."""
    return _setting("MODE", subject, None if mode is None else {"mode": mode})


def delete_subject_record(subject: str, version: int | None) -> KeyValue:
    """The record that deletes a subject's versions up to one softly; None: the subject is permanently deleted."""
    key = _text({"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0})
    return key, None if version is None else _bytes({"subject": subject, "version": version})


def _setting(keytype: str, subject: str | None, value: dict[str, str] | None) -> KeyValue:
    of_subject = {} if subject is None else {"subject": subject}
    key = _text({"keytype": keytype, **of_subject, "magic": 0})
    return key, None if value is None else _bytes({**of_subject, **value})


class StoredVersion(Value):
    """A version is stored, or permanently deleted."""

    subject: str
    number: int
    version: Version | None


class StoredSetting(Value):
    """The compatibility or the mode of a subject, or the global one; no value: it is removed."""

    is_mode: bool
    subject: str | None
    value: str | None


class StoredDeletion(Value):
    """Versions of a subject up to a number are softly deleted."""

    subject: str
    number: int


@decoder
def decode_record(key: bytes | None, value: bytes | None) -> StoredVersion | StoredSetting | StoredDeletion | None:
    """What a record stores; None for a kind of record that connectx does not use."""
    known = compact_json.loads(key or b"null")
    content = None if value is None else compact_json.loads(value)
    if not isinstance(known, dict) or not (content is None or isinstance(content, dict)):
        raise WrongShape("its key or its value is not a JSON object")
    subject = known.get("subject")
    if not (subject is None or isinstance(subject, str)):
        raise WrongShape("its subject is not a string")
    match known.get("keytype"):
        case "SCHEMA":
            version = None if content is None else _version(content)
            where = known if version is None else content or {}
            return StoredVersion(str(where["subject"]), _number(where["version"]), version)
        case "CONFIG":
            return StoredSetting(False, subject, _one_of(content, "compatibilityLevel", Level.__members__))
        case "MODE":
            return StoredSetting(True, subject, _one_of(content, "mode", MODES))
        case "DELETE_SUBJECT" if content is not None:
            return StoredDeletion(str(subject), _number(content["version"]))
        case _:
            return None


def _one_of(content: Mapping[str, Any] | None, name: str, known: Container[str]) -> str | None:
    value = None if content is None else content.get(name)
    if value is not None and value not in known:
        raise WrongShape(f"its {name} is not known")
    return None if value is None else str(value)


def _number(given: Any) -> int:
    number = int(given)
    if not -1 <= number <= LARGEST:
        raise WrongShape("a number is out of range")
    return number


def _version(value: Mapping[str, Any]) -> Version:
    kind = str(value.get("schemaType") or "AVRO")
    if kind not in KINDS:
        raise WrongShape("its schemaType is not known")
    known = {"subject", "version", "id", "schema", "schemaType", "references", "deleted"}
    return Version(
        str(value["subject"]),
        _number(value["version"]),
        _number(value["id"]),
        str(value["schema"]),
        kind,
        references_of(value.get("references")),
        bool(value.get("deleted", False)),
        {key: one for key, one in value.items() if key not in known},
    )


def references_of(given: Any) -> tuple[Reference, ...]:
    """References as they are spelled in JSON.

    Raises:
        KeyError, TypeError, ValueError, OverflowError, WrongShape: they are of another shape.
    """
    return tuple(Reference(str(one["name"]), str(one["subject"]), _number(one["version"])) for one in given or ())


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _bytes(content: Mapping[str, Any]) -> bytes:
    return _text(content).encode()
