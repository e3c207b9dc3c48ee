"""Compatibility of two Avro schemas, by Avro's schema resolution.

Mirrors Avro's SchemaCompatibility and the messages of Confluent's AvroSchema, so that clients see the same words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from connectx.schema_registry.levels import Effort, Level, directions
from connectx.schema_registry.refusals import Refusal

_PROMOTED: Final = {
    "int": {"int"},
    "long": {"int", "long"},
    "float": {"int", "long", "float"},
    "double": {"int", "long", "float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"bytes", "string"},
}
"""Kinds of writers that a reader takes."""
_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(slots=True, eq=False)
class Node:
    """A part of a schema. Names are resolved, so that a recursive schema is a graph with a circle."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: list[NodeField] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    has_default: bool = False
    size: int = 0

    @property
    def simple_name(self) -> str:
        """Name without its namespace."""
        return self.name.rpartition(".")[2]


@dataclass(slots=True, eq=False)
class NodeField:
    name: str
    aliases: tuple[str, ...]
    type: Node
    has_default: bool


def parse(text: str, references: Iterable[tuple[str, str]] = ()) -> Node:
    """The graph of a schema; `references` are (name, text) of schemas that it names, their own references first.

    Raises:
        RefusedError: 42201, not a valid Avro schema.
    """
    import fastavro

    try:
        known: dict[str, Any] = {}
        names: dict[str, Node] = {}
        for _, one in references:
            fastavro.parse_schema(json.loads(one), known)
            _node(json.loads(one), "", names)
        fastavro.parse_schema(json.loads(text), known)
        return _node(json.loads(text), "", names)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal.INVALID_SCHEMA.error(f"{type(error).__name__}: {error}") from error
    except Exception as error:  # fastavro's own errors derive from Exception alone
        raise Refusal.INVALID_SCHEMA.error(str(error)) from error


def _node(schema: Any, namespace: str, names: dict[str, Node]) -> Node:
    if isinstance(schema, str):
        return Node(schema) if schema in _PRIMITIVE else _named(schema, namespace, names)
    if isinstance(schema, list):
        return Node("union", parts=[_node(part, namespace, names) for part in schema])
    kind = schema["type"]
    if not isinstance(kind, str):
        return _node(kind, namespace, names)
    if kind in ("array", "map"):
        return Node(kind, parts=[_node(schema["items" if kind == "array" else "values"], namespace, names)])
    if kind not in ("record", "error", "enum", "fixed"):
        return Node(kind) if kind in _PRIMITIVE else _named(kind, namespace, names)
    name = _full(str(schema["name"]), str(schema.get("namespace", namespace) or ""))
    inner = name.rpartition(".")[0]
    made = Node(
        "record" if kind == "error" else kind,
        name,
        tuple(_full(one, inner) for one in schema.get("aliases", ())),
        symbols=tuple(schema["symbols"]) if kind == "enum" else (),
        has_default="default" in schema,
        size=int(schema.get("size", 0)),
    )
    names[name] = made
    for one in schema["fields"] if made.kind == "record" else ():
        aliases = tuple(one.get("aliases", ()))
        made.fields.append(NodeField(one["name"], aliases, _node(one["type"], inner, names), "default" in one))
    return made


def _named(name: str, namespace: str, names: Mapping[str, Node]) -> Node:
    full = _full(name, namespace)
    return names[full] if full in names else names[name]


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def problems(level: Level, new: Node, old: Node) -> list[str]:
    """Why a new schema is not compatible with an old one at a level, in Confluent's words; empty when it is."""
    return [
        problem
        for writer, reader, writer_name, reader_name in directions(level, new, old)
        for problem in _Check(reader_name, writer_name).all_problems(reader, writer)
    ]


@dataclass(slots=True)
class _Check:
    """One direction: which of the two schemas reads, and which has written."""

    reader: str
    writer: str
    _effort: Effort = field(default_factory=Effort)
    _met: set[tuple[int, int]] = field(default_factory=set)
    _found: list[str] = field(default_factory=list)

    def all_problems(self, reader: Node, writer: Node) -> list[str]:
        self._compare(reader, writer, "")
        return self._found

    def _compare(self, reader: Node, writer: Node, path: str) -> None:
        if (id(reader), id(writer)) in self._met:
            return
        self._effort.spend()
        self._met.add((id(reader), id(writer)))
        if writer.kind == "union":
            for number, branch in enumerate(writer.parts):
                if reader.kind == "union":
                    self._compare(reader, branch, f"{path}/{number}")
                elif not self._reads(reader, branch):
                    self._missing_branch(reader, branch, path)
            return
        if reader.kind == "union":
            alike = [one for one in reader.parts if one.kind == writer.kind and _same_name(one, writer)]
            if alike:
                self._compare(alike[0], writer, path)
            elif not any(self._reads(branch, writer) for branch in reader.parts):
                self._missing_branch(reader, writer, path)
            return
        if reader.kind != writer.kind:
            if writer.kind not in _PROMOTED.get(reader.kind, ()):
                self._add(
                    "TYPE_MISMATCH",
                    f"The type (path '{path or '/'}') of a field in the {self.reader} schema does not match with the "
                    f"{self.writer} schema",
                    f"reader type: {_shown(reader).upper()} not compatible with writer type: {_shown(writer).upper()}",
                )
            return
        self._compare_alike(reader, writer, path)

    def _compare_alike(self, reader: Node, writer: Node, path: str) -> None:
        if reader.name and not _same_name(reader, writer):
            self._add(
                "NAME_MISMATCH",
                f"The name of the schema has changed (path '{path}/name')",
                f"expected: {writer.name}",
            )
        if reader.kind == "fixed" and reader.size != writer.size:
            self._add(
                "FIXED_SIZE_MISMATCH",
                f"The size of FIXED type field at path '{path}/size' in the {self.reader} schema does not match with "
                f"the {self.writer} schema",
                f"expected: {writer.size}, found: {reader.size}",
            )
        missing = [one for one in writer.symbols if one not in reader.symbols]
        if reader.kind == "enum" and missing and not reader.has_default:
            self._add(
                "MISSING_ENUM_SYMBOLS",
                f"The {self.reader} schema is missing enum symbols '{path}/symbols' in the {self.writer} schema",
                f"[{', '.join(missing)}]",
            )
        names = {"array": "items", "map": "values"}
        for part, other in zip(reader.parts, writer.parts, strict=False):
            self._compare(part, other, f"{path}/{names[reader.kind]}")
        for number, one in enumerate(reader.fields):
            written = next((other for other in writer.fields if other.name in (one.name, *one.aliases)), None)
            if written is not None:
                self._compare(one.type, written.type, f"{path}/fields/{number}/type")
            elif not one.has_default:
                self._add(
                    "READER_FIELD_MISSING_DEFAULT_VALUE",
                    f"The field '{one.name}' at path '{path}/fields/{number}' in the {self.reader} schema has no "
                    f"default value and is missing in the {self.writer} schema",
                    one.name,
                )

    def _missing_branch(self, reader: Node, writer: Node, path: str) -> None:
        self._add(
            "MISSING_UNION_BRANCH",
            f"The {self.reader} schema is missing a type inside a union field at path '{path or '/'}' in the "
            f"{self.writer} schema",
            f"reader union lacking writer type: {_shown(writer).upper()}",
        )

    def _reads(self, reader: Node, writer: Node) -> bool:
        """Whether there is no problem, without noting any."""
        inner = _Check(self.reader, self.writer, self._effort, set(self._met))
        return not inner.all_problems(reader, writer)

    def _add(self, kind: str, description: str, info: str) -> None:
        self._found.append(f"{{errorType:'{kind}', description:'{description}', additionalInfo:'{info}'}}")


def _same_name(reader: Node, writer: Node) -> bool:
    """Avro compares names without namespaces, and a reader's aliases in full."""
    return reader.simple_name == writer.simple_name or writer.name in reader.aliases


def _shown(node: Node) -> str:
    return node.name or (f"[{', '.join(map(_shown, node.parts))}]" if node.kind == "union" else node.kind)
