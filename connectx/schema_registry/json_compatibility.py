"""Compatibility of two JSON Schemas: whether documents of one are valid under the other.

Follows the differences that Confluent's JsonSchema names, with its `STRICT` policy: a change is compatible when every
document that the original allows is allowed by the update. Not compared: `contains` and its bounds, `if` with `then`
and `else`, `format`, `propertyNames`, the schemas of `patternProperties`, and unevaluated properties and items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from connectx.data.json_schema.nodes import Node
from connectx.model.patterns import compiled
from connectx.schema_registry import levels
from connectx.schema_registry.levels import Effort, Level

_UPPER: Final = {
    "string": (("maxLength", "MAX_LENGTH"),),
    "number": (("maximum", "MAXIMUM"), ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM")),
    "object": (("maxProperties", "MAX_PROPERTIES"),),
    "array": (("maxItems", "MAX_ITEMS"),),
}
_LOWER: Final = {
    "string": (("minLength", "MIN_LENGTH"),),
    "number": (("minimum", "MINIMUM"), ("exclusiveMinimum", "EXCLUSIVE_MINIMUM")),
    "object": (("minProperties", "MIN_PROPERTIES"),),
    "array": (("minItems", "MIN_ITEMS"),),
}


def problems(level: Level, new: Node, old: Node) -> list[str]:
    """Why a new schema is not compatible with an old one at a level; empty when it is."""
    return levels.problems(level, new, old, lambda original, update: _Comparison().differences(original, update))


@dataclass(slots=True)
class _Comparison:
    """One direction. `within` are the pairs that are being compared: in a circle they count as compatible."""

    within: list[tuple[Node, Node]] = field(default_factory=list)
    effort: Effort = field(default_factory=Effort)

    def differences(self, original: Node, update: Node, path: str = "#") -> list[tuple[str, str]]:
        """(name, path) of every change that is not compatible."""
        if any(one is original and other is update for one, other in self.within):
            return []
        self.effort.spend()
        self.within.append((original, update))
        try:
            return list(self._differences(original, update, path))
        finally:
            self.within.pop()

    def _are_compatible(self, original: Node, update: Node) -> bool:
        return not self.differences(original, update)

    def _differences(self, original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
        if original.kind != "combined" and update.kind == "combined":
            sums = len(update.parts) == 1 or update.criterion != "allOf"
            if sums and any(self._are_compatible(original, part) for part in update.parts):
                return
        if original.kind == "combined" and update.kind != "combined":
            products = len(original.parts) == 1 or original.criterion == "allOf"
            if products and any(self._are_compatible(part, update) for part in original.parts):
                return
        if original.kind != update.kind:
            both_bytes = all(one.keywords.get("connect.type") == "bytes" for one in (original, update))
            if original.kind != "false" and update.kind != "empty" and not both_bytes:
                yield "TYPE_CHANGED", path
            return
        yield from _bounds(original, update, path)
        compare: Callable[[Node, Node, str], Iterator[tuple[str, str]]] | None = {
            "string": _strings,
            "number": _numbers,
            "enum": _enums,
            "const": _consts,
            "combined": self._combined,
            "not": self._nots,
            "object": self._objects,
            "array": self._arrays,
        }.get(original.kind)
        if compare is not None:
            yield from compare(original, update, path)

    def _nots(self, original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
        if not self._are_compatible(update.parts[0], original.parts[0]):
            yield "NOT_TYPE_EXTENDED", f"{path}/not"

    def _combined(self, original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
        before, after = _distinct(original.parts), _distinct(update.parts)
        singles = len(original.parts) == 1, len(update.parts) == 1
        extended = (
            update.criterion == "anyOf"
            or all(singles)
            or (singles[0] and update.criterion == "oneOf")
            or (singles[1] and original.criterion == "allOf")
        )
        if original.criterion != update.criterion and not extended:
            yield "COMBINED_TYPE_CHANGED", path
            return
        sizes = len(before), len(after)
        if sizes[0] < sizes[1] and update.criterion == "allOf":
            yield "PRODUCT_TYPE_EXTENDED", path
        if sizes[0] > sizes[1] and original.criterion != "allOf":
            yield "SUM_TYPE_NARROWED", path
        fitting = [[number for number, part in enumerate(after) if self._are_compatible(one, part)] for one in before]
        if _largest_matching(fitting) < min(sizes):
            yield "COMBINED_TYPE_SUBSCHEMAS_CHANGED", path

    def _objects(self, original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
        for name in original.properties.keys() & update.required - original.required:
            if name in update.properties and not _has_default(update.properties[name]):
                yield "REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}"
        for name in sorted(original.properties.keys() | update.properties.keys()):
            yield from self._property(name, original, update, f"{path}/properties/{name}")
        yield from self._dependencies(original, update, f"{path}/dependencies")
        yield from self._additional(original, update, f"{path}/additionalProperties", "ADDITIONAL_PROPERTIES")

    def _property(self, name: str, original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
        before, after = original.properties.get(name), update.properties.get(name)
        if before is not None and after is not None:
            yield from self.differences(before, after, path)
        elif before is not None:
            if _is_open(update):
                return
            covering = _covering(update, name)
            if covering is None:
                if before.kind != "false":
                    yield "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path
            elif found := self.differences(before, covering, path):
                yield from found
                yield "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path
        elif after is not None:
            yield from self._added(name, after, original, update, path)

    def _added(self, name: str, after: Node, original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
        required, default = name in update.required, _has_default(after)
        if _is_open(original):
            if after.kind != "empty":
                kind = ("REQUIRED_PROPERTY_WITH_DEFAULT" if default else "REQUIRED_PROPERTY") if required else None
                yield f"{kind or 'OPTIONAL_PROPERTY'}_ADDED_TO_OPEN_CONTENT_MODEL", path
            return
        covering = _covering(original, name)
        if covering is not None and (found := self.differences(covering, after, path)):
            yield from found
            yield "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path
        if required and not default:
            yield "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path

    def _dependencies(self, original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
        before, after = _dependencies(original), _dependencies(update)
        for name, names in after.items():
            if name not in before:
                yield "DEPENDENCY_ARRAY_ADDED", f"{path}/{name}"
            elif not set(names) <= set(before[name]):
                change = "EXTENDED" if set(before[name]) < set(names) else "CHANGED"
                yield f"DEPENDENCY_ARRAY_{change}", f"{path}/{name}"
        for name, schema in update.dependencies.items():
            if name in original.dependencies:
                yield from self.differences(original.dependencies[name], schema, f"{path}/{name}")
            else:
                yield "DEPENDENCY_SCHEMA_ADDED", f"{path}/{name}"

    def _additional(self, original: Node, update: Node, path: str, name: str) -> Iterator[tuple[str, str]]:
        before, after = original.additional, update.additional
        closed = (before is not None and before.kind == "false"), (after is not None and after.kind == "false")
        if closed[0] != closed[1]:
            if closed[1]:
                yield f"{name}_REMOVED", path
        elif before is None and after is not None:
            yield f"{name}_NARROWED", path
        elif before is not None and after is not None:
            yield from self.differences(before, after, path)

    def _arrays(self, original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
        if original.items is not None and update.items is not None:
            yield from self.differences(original.items, update.items, f"{path}/items")
        elif update.items is not None:
            yield "SCHEMA_ADDED", f"{path}/items"
        for number in range(max(len(original.parts), len(update.parts))):
            yield from self._item(number, original, update, f"{path}/items/{number}")
        yield from self._additional(original, update, f"{path}/additionalItems", "ADDITIONAL_ITEMS")
        if update.keywords.get("uniqueItems") and not original.keywords.get("uniqueItems"):
            yield "UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems"

    def _item(self, number: int, original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
        before = original.parts[number] if number < len(original.parts) else None
        after = update.parts[number] if number < len(update.parts) else None
        if before is not None and after is not None:
            yield from self.differences(before, after, path)
        elif before is not None and update.additional is not None:
            if update.additional.kind == "false":
                if before.kind != "false":
                    yield "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path
            elif found := self.differences(before, update.additional, path):
                yield from found
                yield "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path
        elif after is not None and original.additional is None:
            if after.kind != "empty":
                yield "ITEM_ADDED_TO_OPEN_CONTENT_MODEL", path
        elif after is not None and original.additional is not None:
            found = [] if original.additional.kind == "false" else self.differences(original.additional, after, path)
            yield from found
            if found:
                yield "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path


def _bounds(original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
    for bounds, changed, is_narrower in ((_UPPER, "DECREASED", float.__lt__), (_LOWER, "INCREASED", float.__gt__)):
        for keyword, name in bounds.get(original.kind, ()):
            before, after = _number(original, keyword), _number(update, keyword)
            if after is None:
                continue
            if before is None:
                yield f"{name}_ADDED", f"{path}/{keyword}"
            elif is_narrower(after, before):
                yield f"{name}_{changed}", f"{path}/{keyword}"


def _dependencies(node: Node) -> dict[str, list[str]]:
    """Names of properties that an object needs where it has another, by the name of the other."""
    given = {**node.keywords.get("dependencies", {}), **node.keywords.get("dependentRequired", {})}
    return {name: names for name, names in given.items() if isinstance(names, list)}


def _strings(original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
    before, after = original.keywords.get("pattern"), update.keywords.get("pattern")
    if after is not None and before != after:
        yield ("PATTERN_ADDED" if before is None else "PATTERN_CHANGED"), f"{path}/pattern"


def _numbers(original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
    before, after = original.keywords.get("multipleOf"), update.keywords.get("multipleOf")
    if after is not None and before is None:
        yield "MULTIPLE_OF_ADDED", f"{path}/multipleOf"
    elif after is not None and before != after:
        larger, smaller = Decimal(str(after)), Decimal(str(before))
        if smaller and larger % smaller == 0:
            yield "MULTIPLE_OF_EXPANDED", f"{path}/multipleOf"
        elif not larger or smaller % larger != 0:
            yield "MULTIPLE_OF_CHANGED", f"{path}/multipleOf"
    if update.is_integer and not original.is_integer:
        yield "TYPE_NARROWED", path


def _enums(original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
    before, after = original.keywords["enum"], update.keywords["enum"]
    if any(one not in after for one in before):
        narrowed = all(one in before for one in after)
        yield ("ENUM_ARRAY_NARROWED" if narrowed else "ENUM_ARRAY_CHANGED"), f"{path}/enum"


def _consts(original: Node, update: Node, path: str) -> Iterator[tuple[str, str]]:
    if original.keywords["const"] != update.keywords["const"]:
        yield "ENUM_ARRAY_CHANGED", f"{path}/const"


def _number(node: Node, keyword: str) -> float | None:
    """A bound; None without one, and for the true and false of older drafts."""
    value = node.keywords.get(keyword)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _has_default(node: Node) -> bool:
    return "default" in node.keywords


def _is_open(node: Node) -> bool:
    """True where an object may have any further property."""
    return node.additional is None and not node.patterns


def _covering(node: Node, name: str) -> Node | None:
    """The schema of a property that an object does not name; None where it may not have it."""
    for pattern, schema in node.patterns.items():
        if compiled(pattern).is_in(name):
            return schema
    return None if node.additional is None or node.additional.kind == "false" else node.additional


def _distinct(parts: Sequence[Node]) -> list[Node]:
    """Schemas of a union without those that are there twice."""
    found: list[Node] = []
    for part in parts:
        same = ((one.kind, one.is_integer, one.keywords) for one in found)
        if (part.kind, part.is_integer, part.keywords) not in same:
            found.append(part)
    return found


def _largest_matching(fitting: Sequence[Sequence[int]]) -> int:
    """Most pairs of a left and a right number of which none is in two pairs (augmenting paths)."""
    taken: dict[int, int] = {}

    def place(left: int, tried: set[int]) -> bool:
        for right in fitting[left]:
            if right in tried:
                continue
            tried.add(right)
            if right not in taken or place(taken[right], tried):
                taken[right] = left
                return True
        return False

    return sum(place(left, set()) for left in range(len(fitting)))
