"""Rows of a schema, computed from their numbers. Pure.

Schemas are Avro's, with the annotations of Avro Random Generator (as Confluent's Datagen connector has them:
`arg.properties`: options, range, iteration, regex, length, odds), and one more: `references`, for relations between
tables. A value depends on the seed, the name of its field and the row's number alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from re import _constants as sre
from re import _parser as sre_parser
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.values import Value

_REPEATS_MAX: Final = 64
_ANY: Final = string.ascii_letters + string.digits
_CATEGORIES: Final = {
    sre.CATEGORY_DIGIT: string.digits,
    sre.CATEGORY_WORD: string.ascii_letters + string.digits + "_",
    sre.CATEGORY_SPACE: " ",
}

Draw = Callable[[str, int], Any]
"""(place, count): for each row a number below `count`, as an int64 array. Places differ, so that numbers do."""


class TextPattern:
    """A regular expression of literals, classes, groups, alternatives and repetitions.

    `*`, `+` and open `{n,}` repeat up to 8 times more than they must. Raises ValueError with the reason for a pattern
    with anything else, such as a backward reference, and for more than 64 repetitions.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._parsed = sre_parser.parse(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        self.pattern = pattern
        self._sequence(self._parsed, "", lambda place, count: np.zeros(1, np.int64), 1)

    def texts(self, rows: int, draw: Draw) -> pa.Array:
        return self._sequence(self._parsed, "", draw, rows)

    def _sequence(self, parts: Sequence[Any], place: str, draw: Draw, rows: int) -> pa.Array:
        made = [
            self._part(kind, argument, f"{place}.{number}", draw, rows) for number, (kind, argument) in enumerate(parts)
        ]
        return _joined(made, rows)

    def _part(self, kind: Any, argument: Any, place: str, draw: Draw, rows: int) -> pa.Array:
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, most, inner = argument
            most = least + 8 if most is sre.MAXREPEAT else most
            if most > _REPEATS_MAX:
                raise ValueError(f"{self.pattern!r} repeats more than {_REPEATS_MAX} times")
            counts = least + draw(f"{place}#", most - least + 1)
            texts = [self._sequence(inner, f"{place}[{number}]", draw, rows) for number in range(most)]
            return _joined([pc.if_else(pa.array(counts > number), text, "") for number, text in enumerate(texts)], rows)
        if kind is sre.SUBPATTERN:
            return self._sequence(argument[3], place, draw, rows)
        if kind is sre.BRANCH:
            options = [self._sequence(option, f"{place}|{n}", draw, rows) for n, option in enumerate(argument[1])]
            return pc.choose(pa.array(draw(place, len(options))), *options)
        if kind is sre.AT:
            return pa.repeat("", rows)
        characters = pa.array(list(self._characters(kind, argument)))
        return characters.take(pa.array(draw(place, len(characters))))

    def _characters(self, kind: Any, argument: Any) -> str:
        if kind is sre.LITERAL:
            return chr(argument)
        if kind is sre.ANY:
            return _ANY
        if kind is sre.IN and argument[0][0] is not sre.NEGATE:
            found = "".join(self._in_class(*item) for item in argument)
            return "".join(dict.fromkeys(found))
        if kind is sre.IN:
            excluded = "".join(self._in_class(*item) for item in argument[1:])
            if left := "".join(character for character in _ANY if character not in excluded):
                return left
        raise ValueError(f"{self.pattern!r} has a part that texts cannot be made for: {str(kind).lower()}")

    def _in_class(self, kind: Any, argument: Any) -> str:
        if kind is sre.RANGE:
            return "".join(map(chr, range(argument[0], argument[1] + 1)))
        if kind is sre.CATEGORY and argument in _CATEGORIES:
            return _CATEGORIES[argument]
        return self._characters(kind, argument)


def _joined(texts: Sequence[pa.Array], rows: int) -> pa.Array:
    if not texts:
        return pa.repeat("", rows)
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "")


_NUMBERS: Final = {"int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64()}
_KNOWN: Final = ("options", "range", "iteration", "regex", "length", "odds", "references")
_ITEMS_MAX: Final = 100
_HALF: Final = 0.5
_RESOLUTION: Final = 2**53


class SchemaProblem(ValueError):
    """What is wrong with a schema, after the name of the field that has it."""


class Draws(Value):
    """Numbers that look random, for some rows. `place` and `seed` select them.

    Attributes:
        rows: number of each row, int64.
    """

    rows: Any
    seed: int
    place: str

    def below(self, count: int, name: str = "") -> Any:
        """For each row a number in [0, count), int64."""
        return (self._mixed(name) % np.uint64(count)).astype(np.int64)

    def share(self, name: str = "") -> Any:
        """For each row a number in [0, 1), float64."""
        return (self._mixed(name) >> np.uint64(11)).astype(np.float64) / _RESOLUTION

    def at(self, place: str) -> Draws:
        """Other numbers for the same rows."""
        return Draws(self.rows, self.seed, place)

    def of(self, rows: Any) -> Draws:
        return Draws(rows, self.seed, self.place)

    def _mixed(self, name: str) -> Any:
        """SplitMix64 of the row's number and a hash of seed and place."""
        text = f"{self.seed}/{self.place}/{name}".encode()
        salt = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        with np.errstate(over="ignore"):
            mixed = self.rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
            return mixed ^ (mixed >> np.uint64(31))


class RowSchema:
    """A record schema, checked.

    Args:
        text: JSON.

    Raises:
        SchemaProblem: it is no such schema.
    """

    def __init__(self, text: str) -> None:
        try:
            schema = json.loads(text)
        except ValueError as error:
            raise SchemaProblem(f"it is no JSON: {error}") from error
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise SchemaProblem("it is not a schema of type record")
        self._schema = schema
        self.name = str(schema.get("name") or "")
        self.fields = tuple(field["name"] for field in _fields_of(schema, self.name))
        self.rows(np.arange(2), 0)

    def rows(self, numbers: Any, seed: int) -> pa.Table:
        """Rows with these numbers (int64 array)."""
        draws = Draws(numbers.astype(np.int64), seed, "")
        return pa.table({name: _values(kind, draws.at(name)) for name, kind in _kinds(self._schema, "")})


def _kinds(schema: Mapping[str, Any], place: str) -> list[tuple[str, Any]]:
    return [(field["name"], field["type"]) for field in _fields_of(schema, place)]


def _fields_of(schema: Mapping[str, Any], place: str) -> list[Mapping[str, Any]]:
    fields = schema.get("fields")
    if not isinstance(fields, list) or not fields:
        raise SchemaProblem(f"{place or 'the record'} has no fields")
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
            raise SchemaProblem(f"{place or 'the record'} has a field without name or type")
    names = [field["name"] for field in fields]
    if len(set(names)) < len(names):
        raise SchemaProblem(f"{place or 'the record'} has two fields of one name")
    return fields


def _values(given: Any, draws: Draws) -> pa.Array:
    """Values of one type for all rows."""
    if isinstance(given, list):
        return _of_union(given, draws)
    kind, properties = (given, {}) if isinstance(given, str) else (given.get("type"), given.get("arg.properties") or {})
    if isinstance(kind, (dict, list)):  # {"type": {"type": ..., "arg.properties": ...}}
        return _values(kind, draws)
    unknown = sorted(set(properties) - set(_KNOWN))
    if unknown:
        raise SchemaProblem(f"{draws.place}: {unknown[0]} is none of {', '.join(_KNOWN)}")
    if "references" in properties:
        draws = _referenced(properties["references"], draws)
    try:
        return _drawn(str(kind), given, properties, draws)
    except SchemaProblem:
        raise
    except (TypeError, ValueError, KeyError, OverflowError, pa.ArrowException) as error:
        raise SchemaProblem(f"{draws.place}: {error}") from error


def _drawn(kind: str, given: Any, properties: Mapping[str, Any], draws: Draws) -> pa.Array:
    if "options" in properties:
        return _option(properties["options"], _NUMBERS.get(kind, pa.string() if kind == "string" else None), draws)
    if "iteration" in properties:
        return _iteration(properties["iteration"], kind, draws)
    match kind:
        case "int" | "long":
            low, high = _range(properties, 0, 1_000_000)
            return pa.array(int(low) + draws.below(_width(int(low), int(high))), _NUMBERS[kind])
        case "float" | "double":
            low, high = _range(properties, 0.0, 10_000.0)
            return pa.array(low + draws.share() * _width(low, high), pa.float64()).cast(_NUMBERS[kind], safe=False)
        case "boolean":
            return pa.array(draws.share() < float(properties.get("odds", _HALF)))
        case "string":
            return _text(properties, draws)
        case "enum":
            return _option(given["symbols"], pa.string(), draws)
        case "array":
            return _array(given, properties, draws)
        case "record":
            made = [
                (name, _values(inner, draws.at(f"{draws.place}.{name}"))) for name, inner in _kinds(given, draws.place)
            ]
            return pa.StructArray.from_arrays([column for _, column in made], names=[name for name, _ in made])
        case _:  # a name that Avro does not know
            raise SchemaProblem(f"{draws.place}: the type {kind} cannot be generated")


def _of_union(given: list[Any], draws: Draws) -> pa.Array:
    """One type, or null, each with the same probability, as Avro Random Generator does."""
    others = [kind for kind in given if kind != "null"]
    if len(others) != 1:
        raise SchemaProblem(f"{draws.place}: of unions only those of null and one type can be generated")
    values = _values(others[0], draws)
    if len(given) == 1:
        return values
    return pc.if_else(pa.array(draws.share("null") < _HALF), pa.scalar(None, values.type), values)


def _referenced(reference: Any, draws: Draws) -> Draws:
    """Draws of a row of another table: the same definition of the field gives the value that it has there."""
    rows = reference.get("rows") if isinstance(reference, dict) else None
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise SchemaProblem(f"{draws.place}: references needs rows, how many rows of the other table there are")
    return draws.of(draws.below(rows, "references")).at(str(reference.get("field") or draws.place))


def _option(options: Any, kind: pa.DataType | None, draws: Draws) -> pa.Array:
    if not isinstance(options, list) or not options:
        raise ValueError("options must be a list of values")
    return pa.array(options, kind).take(pa.array(draws.below(len(options))))


def _iteration(iteration: Mapping[str, Any], kind: str, draws: Draws) -> pa.Array:
    start, step = iteration.get("start", 0), iteration.get("step", 1)
    numbers = draws.rows
    if (restart := iteration.get("restart")) is not None:
        numbers = numbers % _width(0, -(-(restart - start) // step))
    made = pa.array(start + step * numbers)
    return made.cast(pa.string()) if kind == "string" else made.cast(_NUMBERS[kind])


def _range(properties: Mapping[str, Any], low: float, high: float) -> tuple[float, float]:
    given = properties.get("range") or {}
    return given.get("min", low), given.get("max", high)


def _width(low: Any, high: Any) -> Any:
    if high <= low:
        raise ValueError(f"the range from {low} to {high} is empty")
    return high - low


def _text(properties: Mapping[str, Any], draws: Draws) -> pa.Array:
    least, most = _length(properties, 8, 9)
    pattern = properties.get("regex") or f"[a-z]{{{least},{most - 1}}}"
    return TextPattern(pattern).texts(len(draws.rows), lambda place, count: draws.below(count, place))


def _length(properties: Mapping[str, Any], least: int, most: int) -> tuple[int, int]:
    """From `least`, below `most`."""
    given = properties.get("length")
    if given is None:
        return least, most
    low, high = (given.get("min", 0), given["max"]) if isinstance(given, dict) else (given, given + 1)
    if not 0 <= low < high <= _ITEMS_MAX:
        raise ValueError(f"length must be from 0 to {_ITEMS_MAX - 1}")
    return low, high


def _array(given: Mapping[str, Any], properties: Mapping[str, Any], draws: Draws) -> pa.Array:
    least, most = _length(properties, 1, 4)
    counts = least + draws.below(most - least, "length")
    offsets = np.concatenate([[0], np.cumsum(counts)])
    rows = np.repeat(draws.rows, counts)
    within = np.arange(len(rows)) - np.repeat(offsets[:-1], counts)
    items = _values(given["items"], draws.of(rows * _ITEMS_MAX + within).at(f"{draws.place}[]"))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
