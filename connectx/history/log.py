"""The event log of a cluster, in order: `cluster.events`.

It decides the sequence number and the time of every event and how much is kept; it never interprets events (that is
`runs`, `stories` and the other views). It mirrors no Kafka class: Kafka Connect keeps no history.

Many threads append and read. This is the one place of the history with a lock: number and time of an event must be
given out together with its place in the log, and a reader needs both ends of it. A queue before the log would let an
event be read late that its writer has already acted on. Nothing runs under the lock but a few list operations.
Live views get no separate queue either: a subscription is a position in the log, so a slow or forgotten view
costs no memory and never slows a writer.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from connectx.errors.history import EventLogError, EventTimeoutError
from connectx.history.clock import system_clock
from connectx.history.codec import VersionError, event_from_json, event_to_json, plain
from connectx.model.clock import Clock
from connectx.model.decoding import reason_of
from connectx.model.events import Event, EventKind, Transition
from connectx.owned_files import owned_file
from connectx.protocol import compact_json
from connectx.views import Form, Listed, Shown

if TYPE_CHECKING:
    import pandas as pd

    from connectx.history.sequences import Rebalances, Stories


class EventLog:
    """The history of a cluster: an ordered, bounded, thread-safe log of `Event`.

    Behaves like a read-only sequence: `len`, iteration over a snapshot, indexing.

    Args:
        capacity: how many events are kept; older ones are dropped and counted in `dropped`.
        clock: dates events; by default the system's clock.
    """

    def __init__(self, capacity: int = 100_000, clock: Clock | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self._clock = clock or system_clock()
        self._events: deque[Event] = deque(maxlen=capacity)
        self._last_seq = 0
        self._changed = threading.Condition()

    def append(self, transition: Transition, worker: str | None = None) -> Event:
        """Number and date `transition` and keep it as an event of `worker`. Never blocks on readers."""
        t, payload = transition, plain(transition.payload)
        about = (t.connector, t.task, t.generation, t.producer_epoch, t.why, t.seen)
        with self._changed:
            event = Event(self._last_seq + 1, self._clock(), worker, payload, *about)
            self._keep(event)
            self._changed.notify_all()
        return event

    def _keep(self, event: Event) -> None:
        self._events.append(event)
        self._last_seq = event.seq

    @property
    def dropped(self) -> int:
        """Number of the oldest events that were dropped because the log was full."""
        with self._changed:
            return self._last_seq - len(self._events)

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest event, 0 when there is none."""
        with self._changed:
            return self._last_seq

    def since(self, seq: int) -> tuple[Event, ...]:
        """Events with a sequence number above `seq` that are still kept, oldest first."""
        with self._changed:
            return self._since(seq)

    def _since(self, seq: int) -> tuple[Event, ...]:
        count = min(self._last_seq - seq, len(self._events))
        return tuple(islice(reversed(self._events), max(count, 0)))[::-1]

    def subscribe(self, since: int | None = None) -> Subscription:
        """A position for a live view: after `since`, by default after the newest event. See `Subscription`."""
        return Subscription(self, self.last_seq if since is None else since)

    def find(self, kind: str, *, since: int = 0, **wanted: Any) -> Listed[Event]:
        """Events of a kind after `since` with these values, of fields or in `data`: `find("task_state", task=0)`.

        A set accepts any of its values: `find("task_state", state={"FAILED", "RUNNING"})`.
        """
        accepted = _of_kind(kind, wanted)
        return Listed([event for event in self.since(since) if accepted(event)], f"{kind} events")

    def wait(
        self, wanted: Callable[[Event], bool] | str, timeout_s: float = 60.0, *, since: int = 0, **values: Any
    ) -> Event:
        """The first event after `since` that is wanted, waiting for it up to `timeout_s` seconds.

        `wanted` is a function of an event, or a kind, with values as `find` takes them:
        `wait("producer_fenced", worker="worker-1")`.

        Raises:
            EventTimeoutError: no such event came in time.
        """
        predicate = _of_kind(wanted, values) if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + timeout_s
        while True:
            events = self._next(since, deadline)
            if not events:
                raise EventTimeoutError(
                    f"No matching event came within {timeout_s:g} s; the history has {len(self)} events.",
                    next_step="Look at the last events with cluster.events.to_pandas().tail().",
                )
            for event in events:
                if predicate(event):
                    return event
            since = events[-1].seq

    def _next(self, seq: int, deadline: float | None, ended: Callable[[], bool] = lambda: False) -> tuple[Event, ...]:
        """Events after `seq`, waiting for the first until `deadline` (monotonic seconds) or until `ended`."""
        with self._changed:
            timeout = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            self._changed.wait_for(lambda: self._last_seq > seq or ended(), timeout)
            return self._since(seq)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.since(0))

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        if isinstance(index, slice):
            return self.since(0)[index]
        with self._changed:
            return self._events[index]

    def to_pandas(self) -> pd.DataFrame:
        """One row per event.

        Columns: `seq` (int64), `time` (timestamp, UTC, milliseconds), `worker`, `kind`, `connector` (strings),
        `task`, `generation`, `producer_epoch` (nullable Int64), `cause` (string), `data` (dict).
        """
        from connectx.history.render.frame import to_pandas

        return to_pandas(self.since(0))

    def stories(self, since: int = 0) -> Stories:
        """Causes and consequences, one sentence for each cause after event `since`, in the order they began.

        Each has `sentence` (also as `str`), `kind`, `worker`, `time_ms` and `seq`.
        """
        from connectx.history.sequences import Stories

        return Stories.of(self.since(0), since)

    def rebalances(self, since: int = 0) -> Rebalances:
        """The rounds of the worker group, one per generation: those that began after event `since`."""
        from connectx.history.sequences import Rebalances

        return Rebalances.of(self.since(0), since)

    def to_jsonl(self, path: str | Path) -> Path:
        """Write the kept events to a file of its owner, one JSON object per line. Raises EventLogError if it cannot."""
        target = Path(path)
        try:
            with owned_file(target) as file:
                file.writelines(f"{event_to_json(event)}\n" for event in self.since(0))
        except OSError as error:
            raise EventLogError(
                f"The history could not be written to {target}: {error.strerror}.",
                next_step="Name a file in a folder that you may write to.",
            ) from error
        return target

    @classmethod
    def from_jsonl(cls, path: str | Path, capacity: int = 100_000) -> EventLog:
        """Read a file that `to_jsonl` wrote; sequence numbers, times and `dropped` are those of the original.

        Raises:
            EventLogError: no such file, or a line that is not an event; names the line.
        """
        source = Path(path)
        log = cls(capacity=capacity)
        try:
            with source.open(encoding="utf-8") as file:
                for number, line in enumerate(file, start=1):
                    log._keep(cls._parse(source, number, line, log._last_seq))
        except OSError as error:
            raise EventLogError(
                f"The history in {source} could not be read: {error.strerror}.",
                next_step="Name a file that to_jsonl wrote.",
            ) from error
        except UnicodeDecodeError as error:
            raise EventLogError(
                f"The history in {source} is not UTF-8 text.", next_step="Name a file that to_jsonl wrote."
            ) from error
        return log

    @staticmethod
    def _parse(source: Path, number: int, line: str, previous_seq: int) -> Event:
        try:
            event = event_from_json(compact_json.loads(line.rstrip("\n").encode()))
        except VersionError as error:
            raise EventLogError(
                f"Line {number} of {source} cannot be read: {error}.",
                next_step="Read the file with the version of connectx that wrote it.",
            ) from error
        except Exception as error:  # a line that anyone may have written
            detail = _detail(error)
            raise EventLogError(
                f"Line {number} of {source} is not an event: {detail}.",
                next_step="The file was cut or changed; delete the lines from there on to read what is before.",
            ) from error
        if previous_seq and event.seq != previous_seq + 1:
            raise EventLogError(
                f"Line {number} of {source} has sequence number {event.seq} where {previous_seq + 1} must be.",
                next_step="Lines were lost or reordered; sort them or delete the lines from there on.",
            )
        return event

    def __repr__(self) -> str:
        events = self.since(0)
        last = f", last {events[-1].kind.value}" if events else ""
        dropped = f", {events[0].seq - 1} dropped" if events and events[0].seq > 1 else ""
        return f"<EventLog: {len(events)} events{dropped}{last}>"

    def _repr_html_(self) -> str:
        from connectx.history.render.frame import to_html

        return to_html(self.since(0))


_FIELDS = ("worker", "connector", "task", "generation", "producer_epoch", "cause")


def _of_kind(kind: str, wanted: Mapping[str, Any]) -> Callable[[Event], bool]:
    """Accepts events of a kind; ValueError for a kind that is none, which would never come."""
    known = EventKind(kind)

    def accepted(event: Event) -> bool:
        values = (
            (getattr(event, key) if key in _FIELDS else event.data.get(key), value) for key, value in wanted.items()
        )
        return event.kind is known and all(
            found in value if isinstance(value, set | frozenset) else found == value for found, value in values
        )

    return accepted


def _detail(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} in column {error.colno}"
    if isinstance(error, KeyError):
        return f"the key {error} is missing"
    return str(error) if isinstance(error, ValueError | TypeError) else reason_of(error)


class Subscription(Shown):
    """A reader's own position in a log: an iterator over events as they come, for one thread.

    Memory is bounded because nothing is stored here: a reader that is late by more than the log's capacity
    misses events, and `dropped` counts them.
    """

    def __init__(self, log: EventLog, seq: int) -> None:
        self._log = log
        self._closed = False
        self.seq = seq
        self.dropped = 0

    def get(self, timeout_s: float | None = None) -> tuple[Event, ...]:
        """All events since the last call, waiting for one up to `timeout_s` seconds (None: without limit).

        Empty when the time is over or the subscription was closed.
        """
        if self._closed:
            return ()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        events = self._log._next(self.seq, deadline, lambda: self._closed)
        if self._closed or not events:
            return ()
        self.dropped += events[0].seq - self.seq - 1
        self.seq = events[-1].seq
        return events

    def _shown(self) -> Form:
        facts = {"after event": self.seq, "missed": self.dropped, "closed": "yes" if self._closed else "no"}
        return Form("Subscription", facts)

    def close(self) -> None:
        """End the iteration, also from another thread."""
        self._closed = True
        self._log._wake()

    def __iter__(self) -> Iterator[Event]:
        while not self._closed:
            yield from self.get()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
