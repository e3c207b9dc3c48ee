"""State of the registry: subjects, versions, ids and settings, folded from the `_schemas` topic.

State changes only by `apply`, with records that were read back. A request yields records to write and its answer;
nothing here does I/O. Mirrors Confluent's KafkaSchemaRegistry and its in-memory store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from connectx.data.json_schema import nodes
from connectx.data.protobuf.files import plain_text
from connectx.data.protobuf.pools import descriptor_of
from connectx.errors.plugins import ConversionError
from connectx.model.decoding import WrongShape, reason_of, whole_number
from connectx.protocol import compact_json
from connectx.schema_registry import avro_compatibility, json_compatibility, protobuf_compatibility
from connectx.schema_registry.levels import Level
from connectx.schema_registry.records import (
    KINDS,
    LARGEST,
    MODES,
    KeyValue,
    Reference,
    StoredDeletion,
    StoredSetting,
    StoredVersion,
    Version,
    config_record,
    decode_record,
    delete_subject_record,
    mode_record,
    references_of,
    schema_key,
    schema_record,
)
from connectx.schema_registry.refusals import Refusal, RefusedError
from connectx.values import Value

_PARSERS: Final[Mapping[str, Callable[..., Any]]] = {
    "AVRO": avro_compatibility.parse,
    "JSON": nodes.parse,
    "PROTOBUF": descriptor_of,
}
_PROBLEMS: Final[Mapping[str, Callable[..., list[str]]]] = {
    "AVRO": avro_compatibility.problems,
    "JSON": json_compatibility.problems,
    "PROTOBUF": protobuf_compatibility.problems,
}


class Change(Value):
    """Records that a request writes, and its answer once they are read back."""

    answer: Any
    records: Sequence[KeyValue] = ()


@dataclass(slots=True)
class Catalog:
    """State of one registry. `default` is the compatibility where nothing is configured."""

    default: Level = Level.BACKWARD
    _versions: dict[str, dict[int, Version]] = field(default_factory=dict)
    _levels: dict[str | None, str] = field(default_factory=dict)
    _modes: dict[str | None, str] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take over one record.

        Raises:
            MalformedDataError: it cannot be read, and changes nothing. Confluent's registry leaves it out, too.
        """
        match decode_record.value("a record of the schemas topic", key, value):
            case StoredVersion(subject, number, None):
                self._versions.get(subject, {}).pop(number, None)
            case StoredVersion(subject, number, version):
                assert version is not None, "a deletion is handled above"
                self._versions.setdefault(subject, {})[number] = version
            case StoredSetting(is_mode, of, setting):
                _set(self._modes if is_mode else self._levels, of, setting)
            case StoredDeletion(subject, last):
                found = self._versions.get(subject, {})
                found |= {number: replace(one, deleted=True) for number, one in found.items() if number <= last}
            case None:
                pass

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        found = (name for name in self._versions if name.startswith(prefix) and self._of(name, deleted))
        return sorted(found)

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        found = [one.version for one in self._of(subject, deleted)]
        if not found:
            raise Refusal.SUBJECT_NOT_FOUND.error(subject)
        return found

    def version(self, subject: str, number: str, *, deleted: bool = False) -> Version:
        """A version of a subject; `number` may be `latest`, or -1 as Confluent's clients spell it."""
        found = self._of(subject, deleted)
        if not found:
            raise Refusal.SUBJECT_NOT_FOUND.error(subject)
        wanted = _number(number)
        if wanted is None:
            return found[-1]
        for one in found:
            if one.version == wanted:
                return one
        raise Refusal.VERSION_NOT_FOUND.error(wanted)

    def by_id(self, schema_id: int) -> list[Version]:
        """All versions with an id, deleted ones too: records that name it are still to be read."""
        found = [one for one in self.all(deleted=True) if one.schema_id == schema_id]
        if not found:
            raise Refusal.SCHEMA_ID_NOT_FOUND.error(schema_id)
        return found

    def all(self, prefix: str = "", *, deleted: bool = False) -> list[Version]:
        return [one for name in self.subjects(prefix, deleted=deleted) for one in self._of(name, deleted)]

    def referencing(self, subject: str, version: int) -> list[Version]:
        return [
            one for one in self.all() if any((ref.subject, ref.version) == (subject, version) for ref in one.references)
        ]

    def level(self, subject: str | None, *, inherited: bool = False) -> str:
        """Compatibility of a subject, or the global one."""
        if subject in self._levels:
            return self._levels[subject]
        if subject is not None and not inherited:
            raise Refusal.NO_COMPATIBILITY.error(subject)
        return self._levels.get(None, str(self.default))

    def mode(self, subject: str | None, *, inherited: bool = False) -> str:
        """Mode of a subject, or the global one."""
        if subject in self._modes:
            return self._modes[subject]
        if subject is not None and not inherited:
            raise Refusal.NO_MODE.error(subject)
        return self._modes.get(None, MODES[0])

    def find(self, subject: str, request: Mapping[str, Any], *, deleted: bool, normalize: bool) -> Version:
        """The version of a subject that has the schema of a request."""
        asked = self._asked(subject, request)
        found = self._of(subject, deleted)
        if not found:
            raise Refusal.SUBJECT_NOT_FOUND.error(subject)
        for one in reversed(found):
            if _same(one, asked, normalize):
                return one
        raise Refusal.SCHEMA_NOT_FOUND.error()

    def check(self, subject: str, request: Mapping[str, Any], number: str | None) -> list[str]:
        """Why the schema of a request is not compatible with a version, or with all that the level names (None)."""
        asked = self._asked(subject, request)
        found = self._of(subject, False)
        if number is None:
            return self._problems(asked, found)
        wanted = _number(number)
        if wanted is None:
            return self._problems(asked, found[-1:])
        if not found:
            raise Refusal.SUBJECT_NOT_FOUND.error(subject)
        return self._problems(asked, [self.version(subject, number)])

    def register(self, subject: str, request: Mapping[str, Any], *, normalize: bool = False) -> Change:
        """A new version of a subject, or the one that has the schema."""
        asked = self._asked(subject, request)
        live = self._of(subject, False)
        for one in reversed(live):
            if _same(one, asked, normalize):
                return Change(_registered(one))
        mode = self.mode(subject, inherited=True)
        given = request.get("id") or -1
        if mode.startswith("READONLY") or (mode != "IMPORT" and given > 0) or (mode == "IMPORT" and given <= 0):
            raise (Refusal.READ_ONLY if mode.startswith("READONLY") else Refusal.IMPORTING).error(subject)
        if mode != "IMPORT" and (found := self._problems(asked, live)):
            raise Refusal.INCOMPATIBLE.error(subject, ", ".join(found))
        ever = self._of(subject, True)
        number = int(request.get("version") or 0) if mode == "IMPORT" else 0
        made = replace(
            asked,
            version=number if number > 0 else (ever[-1].version if ever else 0) + 1,
            schema_id=given if given > 0 else self._id_for(asked, normalize),
        )
        if made.version > LARGEST or made.schema_id > LARGEST:
            raise Refusal.NO_NUMBER.error(subject)
        return Change(_registered(made), [schema_record(made)])

    def delete_subject(self, subject: str, *, permanent: bool) -> Change:
        """Delete all versions of a subject, softly or permanently."""
        self._check_writable(subject)
        ever, live = self._of(subject, True), self._of(subject, False)
        if not ever:
            raise Refusal.SUBJECT_NOT_FOUND.error(subject)
        for one in ever if permanent else live:
            self._check_unreferenced(one)
        if not permanent:
            if not live:
                raise Refusal.SUBJECT_DELETED.error(subject)
            numbers = [one.version for one in live]
            return Change(numbers, [delete_subject_record(subject, numbers[-1])])
        if live:
            raise Refusal.SUBJECT_NOT_DELETED.error(subject)
        gone = [(schema_key(subject, one.version), None) for one in ever]
        settings = [config_record(subject, None)] if subject in self._levels else []
        settings += [mode_record(subject, None)] if subject in self._modes else []
        return Change([one.version for one in ever], [*gone, *settings, delete_subject_record(subject, None)])

    def delete_version(self, subject: str, number: str, *, permanent: bool) -> Change:
        """Delete a version of a subject, softly or permanently."""
        self._check_writable(subject)
        found = self.version(subject, number, deleted=permanent or number not in ("latest", "-1"))
        self._check_unreferenced(found)
        if permanent:
            if not found.deleted:
                raise Refusal.VERSION_NOT_DELETED.error(subject, found.version)
            return Change(found.version, [(schema_key(subject, found.version), None)])
        if found.deleted:
            raise Refusal.VERSION_DELETED.error(subject, found.version)
        return Change(found.version, [schema_record(replace(found, deleted=True))])

    def set_level(self, subject: str | None, level: Any) -> Change:
        """Configure the compatibility of a subject, or the global one."""
        name = str(level).upper()
        if name not in Level.__members__:
            raise Refusal.INVALID_COMPATIBILITY.error()
        return Change({"compatibility": name}, [config_record(subject, name)])

    def remove_level(self, subject: str | None) -> Change:
        """Remove the compatibility of a subject, or the global one."""
        before = self.level(subject)
        if subject is not None and subject not in self._levels:
            raise Refusal.SUBJECT_NOT_FOUND.error(subject)
        return Change({"compatibilityLevel": before}, [config_record(subject, None)])

    def set_mode(self, subject: str | None, mode: Any, *, force: bool = False) -> Change:
        """Configure the mode of a subject, or the global one."""
        name = str(mode).upper()
        if name not in MODES:
            raise Refusal.INVALID_MODE.error()
        if name == "IMPORT" and not force and (self._of(subject, True) if subject else self.all(deleted=True)):
            raise Refusal.SUBJECTS_EXIST.error() if subject is None else Refusal.SUBJECT_EXISTS.error(subject)
        return Change({"mode": name}, [mode_record(subject, name)])

    def remove_mode(self, subject: str | None) -> Change:
        """Remove the mode of a subject, or the global one."""
        return Change({"mode": self.mode(subject)}, [mode_record(subject, None)])

    def _of(self, subject: str, deleted: bool) -> list[Version]:
        found = self._versions.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def _id_for(self, asked: Version, normalize: bool) -> int:
        """The id of the same schema in whatever subject, or the next one."""
        everything = self.all(deleted=True)
        known = next((one.schema_id for one in everything if _same(one, asked, normalize)), None)
        return known if known is not None else max((one.schema_id for one in everything), default=0) + 1

    def _asked(self, subject: str, request: Mapping[str, Any]) -> Version:
        """The schema of a request as a version without number and id."""
        kind, text = request.get("schemaType") or "AVRO", request.get("schema")
        if kind not in KINDS:
            raise Refusal.INVALID_SCHEMA.error(f"Invalid schema type {kind}. The known ones are {', '.join(KINDS)}")
        if not isinstance(text, str) or not text.strip():
            raise Refusal.INVALID_SCHEMA.error("Empty schema")
        try:
            references = references_of(request.get("references"))
        except (KeyError, TypeError, ValueError, OverflowError, WrongShape) as error:
            raise Refusal.INVALID_SCHEMA.error(f"Invalid references: {error!r}") from error
        try:
            made = Version(subject, 0, 0, _compact(text, kind), kind, references)
            self._parsed(made)
        except ModuleNotFoundError as error:
            raise Refusal.INVALID_SCHEMA.error(
                f"Schemas of type {kind} need a package that the registry does not have: {error.name}"
            ) from error
        return made

    def _parsed(self, version: Version) -> Any:
        """The schema of a version as its format's comparison takes it."""
        with _refusing():
            return _PARSERS[version.kind](version.text, self._texts(version.references))

    def _texts(self, references: Iterable[Reference]) -> list[tuple[str, str]]:
        """(name, text) of the schemas that are referred to, their own references first."""
        found: dict[tuple[str, int], tuple[str, str]] = {}
        seen: set[tuple[str, int]] = set()

        def collect(one: Reference) -> None:
            if (one.subject, one.version) in seen:  # also if records that others wrote refer to each other
                return
            seen.add((one.subject, one.version))
            number = "latest" if one.version == -1 else str(one.version)
            try:
                version = self.version(one.subject, number, deleted=True)
            except RefusedError as error:
                raise Refusal.INVALID_SCHEMA.error(
                    f"No schema reference found for subject {one.subject} and version {one.version}"
                ) from error
            for inner in version.references:
                collect(inner)
            found[one.subject, one.version] = one.name, version.text

        for one in references:
            collect(one)
        return list(found.values())

    def _problems(self, asked: Version, before: Sequence[Version]) -> list[str]:
        """What makes a schema incompatible with versions, latest last."""
        level = Level(self.level(asked.subject, inherited=True))
        if level is Level.NONE or not before:
            return []
        others = reversed(before) if level.is_transitive else before[-1:]
        new = self._parsed(asked)
        for old in others:
            if old.kind != asked.kind:
                return [
                    f"{{errorType:'TYPE_MISMATCH', description:'Incompatible because of different schema type', "
                    f"additionalInfo:'{old.kind}'}}"
                ]
            with _refusing():
                found = _PROBLEMS[asked.kind](level, new, self._parsed(old))
            if found:
                tail = (
                    f"{{oldSchemaVersion: {old.version}}}",
                    f"{{oldSchema: '{old.text}'}}",
                    f"{{validateFields: 'false', compatibility: '{level}'}}",
                )
                return [*found, *tail]
        return []

    def _check_writable(self, subject: str) -> None:
        mode = self.mode(subject, inherited=True)
        if mode.startswith("READONLY"):
            raise Refusal.READ_ONLY.error(subject)

    def _check_unreferenced(self, version: Version) -> None:
        if self.referencing(version.subject, version.version):
            raise Refusal.REFERENCE_EXISTS.error(version.subject, version.version)


@contextmanager
def _refusing() -> Iterator[None]:
    """Whatever two schemas of others provoke where they are parsed and compared makes them invalid."""
    try:
        yield
    except (RefusedError, ModuleNotFoundError):
        raise
    except Exception as error:
        raise Refusal.INVALID_SCHEMA.error(reason_of(error)) from error


def _registered(version: Version) -> dict[str, Any]:
    return {"id": version.schema_id, "version": version.version, **version.schema_json()}


def _set(settings: dict[str | None, str], subject: str | None, value: str | None) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value


def _number(text: str) -> int | None:
    """A version's number; None: the latest."""
    if text in ("latest", "-1"):
        return None
    number = whole_number(text)
    if number is None or not 0 < number <= LARGEST:
        raise Refusal.INVALID_VERSION.error(text)
    return number


def _compact(text: str, kind: str) -> str:
    """A schema without blanks, so that the layout of its text does not make another schema of it."""
    if kind == "PROTOBUF":
        try:
            return plain_text(text)
        except ConversionError as error:
            raise Refusal.INVALID_SCHEMA.error(error.message) from error
    try:
        return json.dumps(compact_json.loads(text.encode()), separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        if kind == "AVRO" and text.replace("_", "").isalnum():
            return json.dumps(text)  # a primitive type may come without quotes
        raise Refusal.INVALID_SCHEMA.error(f"{reason_of(error)}: {text[:100]}") from None


def _same(one: Version, asked: Version, normalize: bool) -> bool:
    if one.content == asked.content:
        return True
    if not normalize or one.kind != asked.kind or one.kind == "PROTOBUF" or one.references != asked.references:
        return False
    return bool(json.loads(one.text) == json.loads(asked.text))
