"""What the state of a connector does not show is said with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connectx.api.connector import Connector
from connectx.api.notes import Notes
from connectx.errors.rest import WaitTimeoutError
from connectx.history.log import EventLog
from connectx.model.events import EventKind
from tests.support.histories import transition


def test_notes_are_why_it_waits_what_it_tried_again_and_what_it_skipped_so_far() -> None:
    events = EventLog()
    notes = Notes(events)
    waiting: dict[str, dict[str, object]] = {
        "in-0": {"waits": "postgres://me:s3cret@db has no row.", "retries": 2},
        "in-2-0": {"waits": "no"},
    }
    said = {"waits": "postgres://me:[hidden]@db has no row.", "retries": 3}
    assert notes.of("in", [{"in-1": {"retries": 1}}, waiting]) == said
    for records, letters in ((5, 5), (2, 0)):
        data = {"records": records, "dead_letters": letters}
        events.append(transition(EventKind.RECORDS_SKIPPED, "out", 0, data=data), "worker-1")
    assert notes.of("out", [waiting]) == {"skipped": 7, "dead_letters": 5}
    retrying: dict[str, dict[str, object]] = {"out-0": {"retrying": "PostgreSQL cannot be reached.", "retries": 4}}
    said = {"waits": "PostgreSQL cannot be reached.", "retries": 4, "skipped": 7, "dead_letters": 5}
    assert notes.of("out", [retrying]) == said, "a sink that puts again"
    assert notes.of("other", [waiting]) == {}


def test_a_connector_has_its_notes_in_its_status_and_forms() -> None:
    state = {"state": "RUNNING", "worker_id": "w:1"}

    def status(name: str) -> dict[str, Any]:
        return {"name": name, "connector": dict(state), "tasks": [{"id": 0, **state}], "type": "source"}

    client: Any = SimpleNamespace(status=status)
    client.impatient = lambda: client
    notes = {"waits": "The file in.txt does not exist.", "retries": 1, "skipped": 7, "dead_letters": 5}
    connector = Connector("in", client, notes=lambda name: notes)
    assert connector.status()["connector"] == {**state, **notes}
    said = "RUNNING (waits: The file in.txt does not exist; 1 retry; 7 records skipped, 5 in the dead letter queue)"
    assert connector.row()["state"] == f"● {said}"
    assert said in repr(connector)
    assert Connector("in", client).row()["state"] == "● RUNNING"
    with pytest.raises(WaitTimeoutError, match=r"its tasks: 1 RUNNING \(waits: The file in.txt does not exist; "):
        connector.wait("STOPPED", timeout=0)
