"""Confluent's compatibility levels, and which schema each compares with which."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TypeVar

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
