"""Sequences with text and HTML forms, as `cluster.events.stories()` returns them.

Decides only the layout as text and HTML; what a story or a rebalance is, is decided by `stories` and `rebalances`.
Times are seconds since the first event after `since`, as on the axis of `cluster.timeline(since)`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from connectx.history.folds.rebalances import Rebalance, rebalances
from connectx.history.sentences.stories import Story, stories
from connectx.history.wording import duration, listing
from connectx.model.events import Event
from connectx.views import html_card, html_table, text_table


def _start_ms(events: Iterable[Event], since: int) -> int:
    return next((event.time_ms for event in events if event.seq > since), 0)


def _seconds(time_ms: int, start_ms: int) -> str:
    return f"{(time_ms - start_ms) / 1000:.1f} s"


class Stories(tuple[Story, ...]):
    """Stories in the order in which they began; each has `sentence`, `kind`, `worker` and `time_ms`."""

    _start_ms: int

    @classmethod
    def of(cls, events: Sequence[Event], since: int) -> Stories:
        """Those of a history that began after event number `since`."""
        made = cls(story for story in stories(events) if story.seq > since)
        made._start_ms = _start_ms(events, since)
        return made

    def _lines(self) -> list[str]:
        return [f"{_seconds(story.time_ms, self._start_ms)}: {story.sentence}." for story in self]

    def __repr__(self) -> str:
        return "\n".join(self._lines()) or "No stories so far."

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(line)}</li>" for line in self._lines())
        return html_card("Stories", {}, f"<ul>{lines}</ul>" if lines else "<p>No stories so far.</p>")


class Rebalances(tuple[Rebalance, ...]):
    """Rounds of the worker group by generation; each has `generation`, `why`, `members`, `lost`, `delay_ms`, ..."""

    _start_ms: int

    @classmethod
    def of(cls, events: Sequence[Event], since: int) -> Rebalances:
        """Those of a history that began after event number `since`."""
        made = cls(round_ for round_ in rebalances(events) if round_.seq > since)
        made._start_ms = _start_ms(events, since)
        return made

    def rows(self) -> list[dict[str, str]]:
        """One row per generation: when, how long, why, who leads, who is in it, what was missing and waits."""
        return [_row(round_, self._start_ms) for round_ in self]

    def __repr__(self) -> str:
        return text_table(self.rows()) or "No rebalance so far."

    def _repr_html_(self) -> str:
        return html_card("Rebalances", {}, html_table(self.rows()) or "<p>No rebalance so far.</p>")


def _row(round_: Rebalance, start_ms: int) -> dict[str, str]:
    waits = f"{listing(round_.lost)}, waits {duration(round_.delay_ms)}" if round_.lost and round_.delay_ms else ""
    return {
        "generation": "joining" if round_.generation is None else str(round_.generation),
        "began at": _seconds(round_.start_ms, start_ms),
        "took": "" if round_.end_ms is None else duration(round_.end_ms - round_.start_ms),
        "why": round_.why,
        "leader": round_.leader or "",
        "members": ", ".join(round_.members),
        "work without a worker": waits,
    }


REBALANCE_COLUMNS = tuple(_row(Rebalance(None, 0, None, 0, "", None, (), (), 0), 0))
"""Names of the columns of `Rebalances.rows`."""
