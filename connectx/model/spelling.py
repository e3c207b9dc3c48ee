"""Finds misspelled keys of a configuration."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

_ALIKE: Final = 0.85  # a letter or two of a long key, or a missing .ms


def misspelled(given: Collection[str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Each given key that is not known and resembles a known key that is not given, with that key.

    Keys below a known one do not count: a plugin may read `iceberg.catalog.uri` without defining it.
    """
    missing = [key for key in known if key not in given]
    for key in sorted(set(given) - set(known)):
        if any(key.startswith(f"{one}.") for one in known):
            continue
        if meant := difflib.get_close_matches(key, missing, 1, _ALIKE):
            yield key, meant[0]


def without_effect(given: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    """A sentence about each misspelled key of a connector's configuration."""
    return tuple(
        f"{key} has no effect: the connector does not know it. Did you mean {meant}?"
        for key, meant in misspelled(given, known)
    )


def known_keys(found: Mapping[str, Any]) -> list[str]:
    """The keys that a connector's class, its type and its plugins define, by the answer to its validation."""
    return [info["definition"]["name"] for info in found["configs"] if info["definition"] is not None]
