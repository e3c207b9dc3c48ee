"""State of cores that are dataclasses, for recordings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any


class FieldState:
    """A core whose state is its fields: those by which two cores are compared, except its settings."""

    __slots__ = ()

    def state(self) -> dict[str, Any]:
        """Return all that changes in the core, by field. The values are the core's own: do not change them."""
        return {name: getattr(self, name) for name in self._state_names()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the `state` of another core, with its values; KeyError if a field is missing."""
        for name in self._state_names():
            setattr(self, name, state[name])

    def _state_names(self) -> Iterator[str]:
        return (item.name for item in fields(self) if item.compare and item.name != "settings")  # type: ignore[arg-type]
