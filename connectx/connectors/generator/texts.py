"""Texts that match a regular expression, drawn by numbers: the same numbers give the same texts. Pure."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from re import _constants as sre
from re import _parser as sre_parser
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
        """One text for each row."""
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
