"""JSON Schemas as graphs of nodes, each a number, an object, a union and so on.

Follows the classes that Confluent's JsonSchema works on: a schema with several meanings, such as a type and an enum, is
an `allOf` of them, several types are an `anyOf`, and a schema without keywords is empty. References are resolved, so
that a recursive schema is a graph with a circle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from connectx.errors.plugins import ConversionError

_OBJECT: Final = frozenset(
    (
        "properties",
        "required",
        "additionalProperties",
        "minProperties",
        "maxProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
    )
)
_ARRAY: Final = frozenset(
    ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains")
)
_STRING: Final = frozenset(("minLength", "maxLength", "pattern", "format"))
_NUMBER: Final = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_IMPLIED: Final = (("object", _OBJECT), ("array", _ARRAY), ("string", _STRING), ("number", _NUMBER))
_CRITERIA: Final = ("allOf", "anyOf", "oneOf")
_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
_ROOT: Final = "urn:connectx:schema"


@dataclass(slots=True, eq=False)
class Node:
    """A schema with one meaning.

    Attributes:
        kind: object, array, string, number, boolean, null, enum, const, combined, not, empty or false.
        keywords: the schema as JSON.
        is_integer: of a number: only whole ones.
        criterion: of a combined schema: allOf, anyOf or oneOf; `parts` are its schemas.
        parts: also the schema of a `not`, and the schemas of an array's first items.
        properties: of an object.
        additional: schema of further properties or items; None: anything; of kind `false`: none.
        items: schema of all items of an array; None: anything.
        patterns: of an object: schemas of properties whose names match.
        dependencies: of an object: schemas that hold where it has a property.
    """

    kind: str
    keywords: Mapping[str, Any]
    is_integer: bool = False
    criterion: str = ""
    parts: list[Node] = field(default_factory=list)
    properties: dict[str, Node] = field(default_factory=dict)
    additional: Node | None = None
    items: Node | None = None
    patterns: dict[str, Node] = field(default_factory=dict)
    dependencies: dict[str, Node] = field(default_factory=dict)

    @property
    def required(self) -> frozenset[str]:
        """Names of properties that must be there."""
        return frozenset(self.keywords.get("required") or ())

    @property
    def branches(self) -> list[Node]:
        """Schemas of a union without null, otherwise the node itself."""
        if self.kind != "combined" or self.criterion == "allOf":
            return [self]
        return [part for part in self.parts if part.kind != "null"]


def parse(text: str, references: Sequence[tuple[str, str]] = ()) -> Node:
    """The graph of a schema.

    Args:
        references: (name, text) of the schemas that it refers to by name.

    Raises:
        ConversionError: not a JSON Schema, or a reference cannot be resolved.
    """
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    def resource(given: Any) -> Any:
        return Resource.from_contents(given, default_specification=DRAFT7)

    try:
        contents = json.loads(text)
        registry: Any = Registry().with_resources([(name, resource(json.loads(one))) for name, one in references])
        root = resource(contents)
        registry = registry.with_resource(_ROOT, root).crawl()
        return _Parser().parsed(contents, registry.resolver(root.id() or _ROOT))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:  # also a reference to itself
        raise ConversionError(f"Not a valid JSON Schema: {error!r}.") from error


@dataclass(slots=True)
class _Parser:
    """Nodes of references that were resolved so far."""

    known: dict[int, Node] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)

    def parsed(self, schema: Any, resolver: Any) -> Node:
        """The node of a part. A part that is being parsed is in `known`, so that circles end."""
        if isinstance(schema, bool):
            return Node("empty" if schema else "false", {})
        if id(schema) in self.known:
            return self.known[id(schema)]
        if "$ref" in schema:
            found = _looked_up(schema["$ref"], resolver)
            self.kept.append(found)
            return self.parsed(found.contents, found.resolver)
        if "$id" in schema and isinstance(schema["$id"], str) and not schema["$id"].startswith("#"):
            from referencing.jsonschema import DRAFT7

            resolver = resolver.in_subresource(DRAFT7.create_resource(schema))
        made = Node("empty", schema)
        self.known[id(schema)] = made
        meanings = self._meanings(schema, resolver)
        if len(meanings) == 1:
            for name in Node.__slots__:
                setattr(made, name, getattr(meanings[0], name))
        elif meanings:
            made.kind, made.criterion, made.parts = "combined", "allOf", meanings
        return made

    def _meanings(self, schema: Mapping[str, Any], resolver: Any) -> list[Node]:
        found = []
        if "enum" in schema:
            found.append(Node("enum", schema))
        if "const" in schema:
            found.append(Node("const", schema))
        for criterion in _CRITERIA:
            if criterion in schema:
                parts = [self.parsed(one, resolver) for one in schema[criterion]]
                found.append(Node("combined", schema, criterion=criterion, parts=parts))
        if "not" in schema:
            found.append(Node("not", schema, parts=[self.parsed(schema["not"], resolver)]))
        kinds = schema.get("type")
        if isinstance(kinds, list) and len(kinds) != 1:
            parts = [self._typed(kind, schema, resolver) for kind in kinds]
            found.append(Node("combined", schema, criterion="anyOf", parts=parts))
        elif kinds is not None:
            found.append(self._typed(kinds[0] if isinstance(kinds, list) else kinds, schema, resolver))
        else:
            found += [self._typed(kind, schema, resolver) for kind, words in _IMPLIED if words & schema.keys()]
        return found

    def _typed(self, kind: str, schema: Mapping[str, Any], resolver: Any) -> Node:
        if kind not in _TYPES:
            raise ValueError(f"unknown type {kind!r}")
        made = Node("number" if kind == "integer" else kind, schema, is_integer=kind == "integer")
        if kind == "object":
            made.properties = self._named(schema.get("properties"), resolver)
            made.patterns = self._named(schema.get("patternProperties"), resolver)
            made.additional = self._additional(schema.get("additionalProperties"), resolver)
            depending = {**schema.get("dependencies", {}), **schema.get("dependentSchemas", {})}
            schemas = {name: one for name, one in depending.items() if not isinstance(one, list)}
            made.dependencies = self._named(schemas, resolver)
        if kind == "array":
            items = schema.get("items")
            is_new = "prefixItems" in schema
            first = schema["prefixItems"] if is_new else items if isinstance(items, list) else ()
            made.parts = [self.parsed(one, resolver) for one in first]
            made.additional = self._additional(items if is_new else schema.get("additionalItems"), resolver)
            if items is not None and not first:
                made.items = self.parsed(items, resolver)
        return made

    def _named(self, schemas: Mapping[str, Any] | None, resolver: Any) -> dict[str, Node]:
        return {name: self.parsed(one, resolver) for name, one in (schemas or {}).items()}

    def _additional(self, schema: Any, resolver: Any) -> Node | None:
        return None if schema is None or schema is True else self.parsed(schema, resolver)


def _looked_up(reference: str, resolver: Any) -> Any:
    from referencing.exceptions import Unresolvable

    try:
        return resolver.lookup(reference)
    except Unresolvable as error:
        raise ConversionError(f"The JSON Schema refers to {reference!r}, which cannot be resolved.") from error
