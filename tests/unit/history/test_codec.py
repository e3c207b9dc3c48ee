"""Events as lines of JSON: each payload and each cause comes back, and so do histories of version 1."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

import pytest

from connectx.history.codec import event_from_json, event_to_json, plain
from connectx.model.cause_text import cause_text
from connectx.model.causes import (
    Cause,
    GroupRebalances,
    GroupRequestRefused,
    OutsideGroup,
    RecordedText,
    RefusedByKafka,
    SessionExpired,
    TakenOver,
    WorkerStarts,
    cause_from_json,
    cause_to_json,
)
from connectx.model.events import Event, EventKind, Sighting
from connectx.model.ids import TaskId
from connectx.model.json_values import from_json
from connectx.model.payloads import PAYLOADS, UNKNOWN, SourceRange, TaskStep, TransactionCommitted
from connectx.model.states import State

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


@pytest.mark.parametrize("kind", get_args(Cause), ids=lambda kind: kind.__name__)
def test_each_cause_comes_back_and_has_a_sentence_part(kind: type) -> None:
    cause = filled(kind)
    assert cause_from_json(json.loads(json.dumps(cause_to_json(cause)))) == cause
    text = cause_text(cause)
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


def of_version_1(kind: EventKind, cause: str = "", **data: Any) -> Event:
    line = {"seq": 1, "time_ms": 5, "worker": "worker-1", "kind": kind, "connector": "orders", "task": 1}
    return event_from_json({**line, "generation": 3, "producer_epoch": None, "cause": cause, "data": data})


@pytest.mark.parametrize(
    ("sentence", "cause"),
    [
        ("the worker starts", WorkerStarts()),
        ("the group is rebalancing", GroupRebalances()),
        ("Heartbeat was refused: UNKNOWN_MEMBER_ID", GroupRequestRefused("Heartbeat", "UNKNOWN_MEMBER_ID")),
        ("no heartbeat was answered for 3000 ms", SessionExpired(3_000)),
        ("it is no member of the group and does not answer: it was stopped, killed or cut off", OutsideGroup(False)),
        ("connector orders was created", RecordedText("connector orders was created")),
    ],
)
def test_a_sentence_of_version_1_that_views_decide_by_gets_its_type(sentence: str, cause: Cause) -> None:
    event = of_version_1(EventKind.REBALANCE_STARTED, sentence, reason=sentence)
    assert (event.why, event.cause) == (cause, sentence)


def test_a_reason_of_version_1_is_the_cause_and_stays_in_data() -> None:
    event = of_version_1(EventKind.RECORDS_SKIPPED, records=2, reason="refused by Kafka")
    assert event.why == RefusedByKafka()
    assert event.data == {"records": 2, "reason": "refused by Kafka"}


def test_null_and_unknown_keys_of_version_1_are_no_error() -> None:
    event = of_version_1(EventKind.TASK_STATE, state="RUNNING", trace=None, instance=2, mood="good")
    assert event.data == {"state": "RUNNING", "instance": 2}
    assert of_version_1(EventKind.OFFSETS_ALTERED, offsets=None).data == {"offsets": None}


def test_a_takeover_of_version_1_is_found_in_its_data() -> None:
    data = {"known": True, "by": "a:1", "by_generation": 7, "newer_epoch": 4, "state": "RUNNING", "since_ms": None}
    event = of_version_1(EventKind.FENCED_BY, "worker a:1 took over orders-1", **data)
    assert event.why == TakenOver("a:1", TaskId("orders", 1), 7, 4, State.RUNNING, None)


def test_fields_that_every_event_of_a_kind_has_are_required() -> None:
    required = {kind: [f.name for f in fields(of) if f.default is MISSING] for kind, of in PAYLOADS.items()}
    assert required[EventKind.TASK_STEP] == ["step"]
    with pytest.raises(KeyError, match="step"):
        of_version_1(EventKind.TASK_STEP)
