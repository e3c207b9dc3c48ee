"""What Debezium's events do to the rows of a table, for a check. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from connectx.connectors.cdc.events import CREATE, DELETE, READ, TRUNCATE, UPDATE
from connectx.connectors.cdc.positions import Position
from connectx.connectors.shared.unavailable import is_placeholder
from connectx.model.source_offsets import SourceOffset
from connectx.plugins.stored import RowChange


def row_change(key: Any, value: Any, placeholder: str) -> RowChange | None:
    """What an event does; None for a tombstone, a heartbeat and other records.

    A change has the place of its WAL record. Rows that one WAL record inserts have different keys; without a key they
    may be equal, so that their places are not known. A row is read once by a snapshot, over all restarts of the task.

    Args:
        placeholder: unavailable.value.placeholder.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("source"), Mapping):
        return None
    source, op = value["source"], value.get("op")
    before, lsn = json.loads(source.get("sequence") or "[null, null]")
    order = None if before is None or op == READ else (int(before), int(lsn))
    if op == TRUNCATE:
        return RowChange(clears=True, order=order)
    if op not in (CREATE, UPDATE, DELETE, READ):
        return None
    after, kept = value.get("after"), ()
    if after is not None:
        kept = tuple(name for name, given in after.items() if is_placeholder(given, placeholder))
        after = {name: given for name, given in after.items() if name not in kept}
    if key is None:
        return RowChange(before=value.get("before"), after=after, order=order)
    return RowChange(key=key, after=after, kept=kept, place=(op, source.get("lsn")), order=order)


def is_reached(offset: SourceOffset, lsn: int) -> bool:
    """Whether all transactions that end before an LSN were sent by the time of a source offset."""
    position = Position.of(offset)
    return position is not None and position.snapshot is None and position.xid is None and position.lsn >= lsn
