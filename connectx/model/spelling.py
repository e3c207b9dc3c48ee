"""Finds misspelled keys of a configuration."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Final

_ALIKE: Final = 0.85  # a letter or two of a long key, or a missing .ms


def misspelled(given: Collection[str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Each given key that is not known and resembles a known key that is not given, with that key."""
    missing = [key for key in known if key not in given]
    for key in sorted(set(given) - set(known)):
        if meant := difflib.get_close_matches(key, missing, 1, _ALIKE):
            yield key, meant[0]
