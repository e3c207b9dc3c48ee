"""What happened: the transitions that a core reports, and the events of a history."""

from __future__ import annotations

from typing import Any

from connectx.model.causes import Cause
from connectx.model.json_values import record_to_json
from connectx.model.payloads import EventKind, Payload
from connectx.values import Value
from connectx.views import Form, Shown, brief, masked, masked_text

__all__ = ["Event", "EventKind", "Sighting", "Transition"]


class Sighting(Shown, Value):
    """How an event of an attached cluster was seen.

    `origin` is the source of the observation. It happened after `after_ms`, or was written at `written_ms` (Unix time),
    as far as that is known.
    """

    origin: str
    after_ms: int | None = None
    written_ms: int | None = None


class _Reported:
    """What a transition and its event show of their fields."""

    __slots__ = ()
    payload: Payload
    why: Cause | None
    seen: Sighting | None

    @property
    def kind(self) -> EventKind:
        return self.payload.kind

    @property
    def cause(self) -> str:
        """Why it happened, as a part of a sentence ("worker-1 left the group"); empty without a cause."""
        return "" if self.why is None else str(self.why)

    @property
    def data(self) -> dict[str, Any]:
        """The payload as JSON values, by the names in `connectx.model.payloads`."""
        data = record_to_json(self.payload)
        if self.payload.has_reason and self.why is not None:
            data["reason"] = self.cause
        return data if self.seen is None else {**record_to_json(self.seen), **data}


class Transition(_Reported, Value):
    """One change as the core reports it; the driver adds worker and time and makes it an `Event`.

    `producer_epoch` is that of the transaction that the change is about, or else of the producer's open or last one.
    `why` is the cause, None if the payload is sufficient; `seen` is set for attached clusters only.
    """

    payload: Payload
    connector: str | None = None
    task: int | None = None
    generation: int | None = None
    producer_epoch: int | None = None
    why: Cause | None = None
    seen: Sighting | None = None


class Event(_Reported, Shown, Value):
    """One line of the history.

    `seq` counts from 1 without gaps within a cluster's history, `time_ms` is wall-clock milliseconds since 1970 taken
    from one monotonic clock per process, `worker` is the worker's name (None for the cluster itself). `payload` holds
    what the kind of event records and `why` its cause, both typed; `data` and `cause` show them as JSON values and as a
    part of a sentence.
    """

    seq: int
    time_ms: int
    worker: str | None
    payload: Payload
    connector: str | None = None
    task: int | None = None
    generation: int | None = None
    producer_epoch: int | None = None
    why: Cause | None = None
    seen: Sighting | None = None

    def _shown(self) -> Form:
        about = self.connector if self.task is None else f"{self.connector}-{self.task}"
        facts = {
            "time": _clock_time(self.time_ms),
            "worker": self.worker,
            "about": about,
            "generation": self.generation,
            "producer epoch": self.producer_epoch,
            "cause": masked_text(self.cause),
            **{name: brief(value) for name, value in masked(self.data).items()},
        }
        shown = {name: value for name, value in facts.items() if value not in (None, "")}
        return Form(f"Event {self.seq}: {self.kind}", shown)


def _clock_time(time_ms: int) -> str:
    seconds, milliseconds = divmod(time_ms, 1000)
    hours, minutes = seconds // 3600 % 24, seconds // 60 % 60
    return f"{hours:02}:{minutes:02}:{seconds % 60:02}.{milliseconds:03} UTC"
