"""Placeholders of config providers in texts: `${provider:[path:]key}` (Kafka's ConfigTransformer). Pure.

A scanner finds them in one pass, so that no text holds a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from connectx.values import Value


class Placeholder(Value):
    """One placeholder: its text, where it is, and what it names; `path` is empty if it names none."""

    text: str
    start: int
    end: int
    provider: str
    path: str
    key: str


def placeholders(text: str) -> Iterator[Placeholder]:
    """Find all, in order. The first closing brace ends one, and the provider ends at the first colon."""
    at = 0
    while (start := text.find("${", at)) >= 0 and (end := text.find("}", start)) >= 0:
        provider, colon, rest = text[start + 2 : end].partition(":")
        if colon:
            path, separator, key = rest.partition(":")
            yield Placeholder(
                text[start : end + 1], start, end + 1, provider, *((path, key) if separator else ("", rest))
            )
        at = end + 1


def has_placeholder(text: str) -> bool:
    """Whether there is at least one."""
    return next(placeholders(text), None) is not None


def replaced(text: str, value: Callable[[Placeholder], str]) -> str:
    """The text with the value of each placeholder in its place."""
    parts: list[str] = []
    at = 0
    for found in placeholders(text):
        parts += (text[at : found.start], value(found))
        at = found.end
    return "".join((*parts, text[at:]))
