"""Confluent's compatibility levels, and which schema each compares with which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from connectx.errors.plugins import ConversionError

_Schema = TypeVar("_Schema")


class Level(StrEnum):
    """Confluent's compatibility levels."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """True when all versions of a subject count, not only the latest."""
        return self.name.endswith("_TRANSITIVE")


def directions(level: Level, new: _Schema, old: _Schema) -> Iterator[tuple[_Schema, _Schema, str, str]]:
    """(writer, reader, name of the writer, name of the reader) of each comparison that a level asks for."""
    if level.startswith(("BACKWARD", "FULL")):
        yield old, new, "old", "new"
    if level.startswith(("FORWARD", "FULL")):
        yield new, old, "new", "old"


@dataclass(slots=True)
class Effort:
    """Limits the comparisons of two schemas: parts that refer to others twice on each level double them per level."""

    left: int = 100_000

    def spend(self) -> None:
        """Count one comparison.

        Raises:
            ConversionError: there were too many.
        """
        self.left -= 1
        if self.left < 0:
            raise ConversionError("The schemas refer to each other too often to be compared.")


def problems(
    level: Level, new: _Schema, old: _Schema, differences: Callable[[_Schema, _Schema], Iterable[tuple[str, str]]]
) -> list[str]:
    """Why a new schema is not compatible with an old one, in Confluent's words; empty when it is.

    `differences` has name and path of each change from its first schema to its second that is not compatible.
    """
    return [
        f"{{errorType:'{problem}', description:'at path {path} of the {update_name} schema'}}"
        for original, update, _, update_name in directions(level, new, old)
        for problem, path in differences(original, update)
    ]
