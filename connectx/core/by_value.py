"""Cores that are not dataclasses compare by value, so that tests and simulations see whether two decide alike."""

from __future__ import annotations


class ByValue:
    """Objects of one class are equal if all their attributes are."""

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]
