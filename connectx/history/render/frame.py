"""Events as tables: a DataFrame, and a script-free HTML table of the newest ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from connectx.data_frames import number_column, text_column, time_column
from connectx.extras import require
from connectx.model.events import Event
from connectx.views import Form, masked_text

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 10


def to_pandas(events: Sequence[Event]) -> pd.DataFrame:
    """One row per event; columns and types as in `EventLog.to_pandas`."""
    require("A data frame of events", "notebook", "pandas")
    import pandas as pd

    return pd.DataFrame(
        {
            "seq": pd.Series([event.seq for event in events], dtype="int64"),
            "time": time_column(event.time_ms for event in events),
            "worker": text_column(event.worker for event in events),
            "kind": text_column(event.kind.value for event in events),
            "connector": text_column(event.connector for event in events),
            "task": number_column(event.task for event in events),
            "generation": number_column(event.generation for event in events),
            "producer_epoch": number_column(event.producer_epoch for event in events),
            "cause": text_column(event.cause for event in events),
            "data": pd.Series([dict(event.data) for event in events], dtype=object),
        }
    )


def clock_time(time_ms: int) -> str:
    """`14:03:05.120` in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%M:%S.") + f"{time_ms % 1000:03d}"


def subject(event: Event) -> str:
    """What an event is about: `orders-1`, `orders`, or nothing."""
    if event.connector is None:
        return ""
    return event.connector if event.task is None else f"{event.connector}-{event.task}"


def to_html(events: Sequence[Event]) -> str:
    """The newest events as a card, with the number of all events and of dropped ones."""
    if not events:
        return Form("EventLog", {"": "The history is empty: nothing has happened yet."}).html
    dropped, shown = events[0].seq - 1, events[-_SHOWN:]
    newest = f"; the newest {len(shown)}" if len(shown) < len(events) else ""
    count = f"{len(events):,} events" + (f", {dropped:,} older ones dropped" if dropped else "") + newest
    facts = {"": f"{count}. cluster.events.to_pandas() has them all."}
    return Form("EventLog", facts, [[event_row(event) for event in shown]]).html


def event_row(event: Event) -> dict[str, object]:
    """One line of a table of events."""
    return {
        "seq": event.seq,
        "time (UTC)": clock_time(event.time_ms),
        "worker": event.worker,
        "kind": event.kind.value,
        "about": subject(event),
        "generation": event.generation,
        "cause": masked_text(event.cause),
    }
