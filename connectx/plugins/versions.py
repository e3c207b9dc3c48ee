"""Versions of plugins and ranges of them (KIP-891), in Maven's notation: `1.2`, `[1.0,2.0)`, `(,1.0],[1.2,)`.

One version of each package is installed, so a range can only be met or not. A version without brackets is required
exactly. Mirrors PluginUtils.connectorVersionRequirement and Maven's ComparableVersion, as far as releases need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cmp_to_key
from itertools import zip_longest
from typing import Any, Final, TypeVar

from connectx.model.class_names import public_name
from connectx.version import KAFKA_VERSION

T = TypeVar("T")

_UNDEFINED: Final = "undefined"
_RANGES: Final = re.compile(r"([\[(])([^\[\](),]*)(?:(,)([^\[\](),]*))?([\])])(?:\s*,\s*(?=[\[(])|$)")
_TOKEN: Final = re.compile(r"[0-9]+|[a-z]+")
_RANKS: Final = {"alpha": 0, "a": 0, "beta": 1, "b": 1, "milestone": 2, "m": 2, "rc": 3, "cr": 3, "snapshot": 4}
_RELEASE: Final = (0, 5, "")
_RELEASE_NAMES: Final = ("ga", "final", "release")


def version_problem(cls: type, wanted: str | None) -> str | None:
    """Why a plugin is not of the wanted version or range; None if it is, or if any will do."""
    text = (wanted or "").strip()
    if not text or text == "latest":
        return None
    hard = text if text[0] in "[(" else f"[{text}]"
    pieces = list(_RANGES.finditer(hard))
    if not pieces or "".join(piece[0] for piece in pieces) != hard or any(map(_is_empty, pieces)):
        return f"Invalid version range: {text}"
    version = _version_of(cls)
    if version != _UNDEFINED and any(_holds(piece, version) for piece in pieces):
        return None
    return f"Plugin {public_name(cls)} has version {version} which does not match the required version range {hard}"


def newest_first(items: Iterable[T], version_of: Callable[[T], str]) -> list[T]:
    """Sort by versions; those of equal versions keep their order."""

    def compared(one: T, other: T) -> int:
        return _compared(version_of(other), version_of(one))

    return sorted(items, key=cmp_to_key(compared))


def _version_of(cls: type) -> str:
    """Its version; plugins that replace Kafka's own are of Kafka's."""
    own: str | None = getattr(cls, "version", None)
    return own or (KAFKA_VERSION if public_name(cls).startswith("org.apache.kafka.") else _UNDEFINED)


def _is_empty(piece: re.Match[str]) -> bool:
    """A single version needs brackets, and a name."""
    opens, low, comma, _, closes = piece.groups()
    return comma is None and (not low.strip() or opens + closes != "[]")


def _holds(piece: re.Match[str], version: str) -> bool:
    opens, low, comma, high, closes = piece.groups()
    high = low if comma is None else high
    above = not low.strip() or _compared(low, version) < (opens == "[")
    below = not high.strip() or _compared(version, high) < (closes == "]")
    return above and below


def _compared(one: str, other: str) -> int:
    """-1, 0 or 1."""
    for mine, its in zip_longest(_tokens(one), _tokens(other)):
        left, right = mine or _absent(its), its or _absent(mine)
        if left != right:
            return -1 if left < right else 1
    return 0


def _tokens(version: str) -> list[tuple[int, Any, str]]:
    """Numbers are above words; words that are no qualifiers are above a release, in the order of the alphabet."""
    return [
        _number(token)
        if token.isdecimal()
        else _RELEASE
        if token in _RELEASE_NAMES
        else (0, _RANKS.get(token, 6), "" if token in _RANKS else token)
        for token in _TOKEN.findall(version.lower())
    ]


def _number(digits: str) -> tuple[int, int, str]:
    """Numbers compare by their lengths, then by their digits: they may be longer than those that Python reads."""
    short = digits.lstrip("0")
    return 1, len(short), short


def _absent(beside: tuple[int, Any, str] | None) -> tuple[int, Any, str]:
    return (1, 0, "") if beside is not None and beside[0] else _RELEASE
