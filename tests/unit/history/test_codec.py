"""Events as lines of JSON: each payload and each cause comes back."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

import pytest

from connectx.history.codec import VersionError, event_from_json, event_to_json, plain
from connectx.model.causes import CAUSES, SessionExpired, WorkerStarts, cause_from_json, cause_to_json
from connectx.model.events import Event, EventKind, Sighting
from connectx.model.json_values import from_json
from connectx.model.payloads import PAYLOADS, UNKNOWN, OffsetsAltered, SourceRange, TaskStep, TransactionCommitted

VALUES: dict[Any, Any] = {
    **{str: "x", int: 7, bool: True, float: 2.5, "TaskId": "orders-1"},
    **{"State": "FAILED", "TargetState": "PAUSED", "StepName": "poll"},
}


def example(kind: Any) -> Any:
    """Return a JSON value of a type."""
    args = [arg for arg in get_args(kind) if arg is not type(None)]
    name = getattr(kind, "__name__", str(kind))
    if kind in VALUES or name in VALUES:
        return VALUES.get(kind, VALUES.get(name))
    if kind is Any:
        return {"any": [1, None]}
    if name == "tuple":
        return [example(args[0])]
    if name == "Mapping":
        return {"key": example(args[1])}
    if args:
        return example(args[0])
    return {item.name.rstrip("_"): example(get_type_hints(kind)[item.name]) for item in fields(kind)}


def filled(kind: type) -> Any:
    """Return a value whose fields are all set."""
    hints = get_type_hints(kind)
    return from_json(kind, {item.name: example(hints[item.name]) for item in fields(kind)})


def read(line: str) -> Event:
    return event_from_json(json.loads(line))


@pytest.mark.parametrize("kind", PAYLOADS.values(), ids=lambda kind: kind.__name__)
def test_each_payload_comes_back_from_a_line(kind: type) -> None:
    event = Event(1, 5, "worker-1", filled(kind), "orders", 1, 3, 4, WorkerStarts(), None)
    assert read(event_to_json(event)) == event
    assert plain(event.payload) == event.payload


@pytest.mark.parametrize("kind", CAUSES.values(), ids=lambda kind: kind.__name__)
def test_each_cause_comes_back_and_has_a_sentence_part(kind: type) -> None:
    cause = filled(kind)
    assert cause_from_json(json.loads(json.dumps(cause_to_json(cause)))) == cause
    text = str(cause)
    assert text
    assert not text.endswith(".")


def test_each_kind_of_event_has_a_payload_of_its_own() -> None:
    assert list(PAYLOADS) == list(EventKind)
    assert len(set(PAYLOADS.values())) == len(EventKind)


def test_a_line_shows_the_cause_in_words_and_with_its_type() -> None:
    event = Event(1, 5, "worker-1", filled(TaskStep), "orders", 1, why=SessionExpired(3_000))
    line = json.loads(event_to_json(event))
    assert (line["version"], line["cause"]) == (2, "no heartbeat was answered for 3000 ms")
    assert line["why"] == {"type": "SessionExpired", "session_timeout_ms": 3000}


def test_a_commit_from_the_begin_differs_from_one_whose_begin_is_unknown() -> None:
    for start in (None, UNKNOWN, {"position": 3}):
        committed = TransactionCommitted(1, (SourceRange({"file": "in"}, {"position": 9}, start),))
        assert plain(committed) == committed


def test_how_an_event_was_seen_comes_back() -> None:
    event = Event(1, 5, "a:1", filled(TaskStep), "orders", 1, seen=Sighting("status topic", written_ms=4))
    assert event.data["written_ms"] == 4
    assert read(event_to_json(event)) == event


def test_a_line_of_another_version_is_refused() -> None:
    line = json.loads(event_to_json(Event(1, 5, "worker-1", filled(TaskStep))))
    del line["version"]  # as lines of version 1
    with pytest.raises(VersionError, match="its version is None, and this connectx reads version 2"):
        event_from_json(line)


def test_fields_that_every_event_of_a_kind_has_are_required() -> None:
    required = {kind: [f.name for f in fields(of) if f.default is MISSING] for kind, of in PAYLOADS.items()}
    assert required[EventKind.TASK_STEP] == ["step"]
    line = json.loads(event_to_json(Event(1, 5, "worker-1", filled(TaskStep))))
    with pytest.raises(KeyError, match="step"):
        event_from_json({**line, "data": {}})


def test_values_that_are_null_and_keys_that_are_not_known() -> None:
    line = json.loads(event_to_json(Event(1, 5, "worker-1", OffsetsAltered(None))))
    assert event_from_json(line).data == {"offsets": None}
    assert event_from_json({**line, "data": {**line["data"], "mood": "good"}}).data == {"offsets": None}
