"""Records, rows and dead letters as tables for a page, and one dead letter to correct. Plain JSON; only reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from connectx.api.peek import Record, short_text

if TYPE_CHECKING:
    from connectx.api.connect_cluster import ConnectCluster

ROWS = 20
LETTERS = 100
SEARCHED = 1_000
"""How many of the newest records or rows a filter reads."""


def peek(cluster: ConnectCluster, name: str, text: str) -> dict[str, Any]:
    """The newest rows of a topic, of a source's topic or of a sink's target that contain `text`, newest first.

    Returns a `title`, the `call` that shows the same, `columns` and `rows` of texts.
    """
    found = _matching(cluster.peek(name, SEARCHED if text else ROWS), text)[-ROWS:]
    return {"title": f"newest rows of {name}", "call": f'cluster.peek("{name}")', **_table(reversed(found))}


def letters(cluster: ConnectCluster, sink: str, text: str) -> dict[str, Any]:
    """The newest dead letters of a sink that contain `text`, as `peek`; `places` are their [partition, offset]."""
    found = _matching(cluster.dead_letters(sink, LETTERS), text)[::-1]
    places = [[letter.partition, letter.offset] for letter in found]
    call = f'cluster.dead_letters("{sink}")'
    return {"title": f"dead letters of {sink}", "call": call, "places": places, **_table(found)}


def letter(cluster: ConnectCluster, sink: str, partition: int, offset: int) -> dict[str, Any]:
    """The value of one dead letter as text to correct; None when it is no UTF-8."""
    [found] = cluster.dead_letters(sink, LETTERS).only(partition, offset)
    try:
        return {"value": (found.raw_value or b"").decode()}
    except UnicodeDecodeError:
        return {"value": None}


def _matching(items: Iterable[Any], text: str) -> list[Any]:
    wanted = text.lower()
    return [item for item in items if wanted in _searched(item).lower()]


def _searched(item: Any) -> str:
    if isinstance(item, Record):
        return f"{item.key} {item.value} {dict(item.headers)} {item.reason} {item.error}"
    return str(item)


def _table(items: Iterable[Any]) -> dict[str, Any]:
    lines: list[Mapping[str, object]] = [item.row() if isinstance(item, Record) else item for item in items]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    return {"columns": columns, "rows": [[short_text(line.get(name)) for name in columns] for line in lines]}
