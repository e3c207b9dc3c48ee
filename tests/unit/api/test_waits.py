"""Waiting for the commits of a connector."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from connectx.api.waits import wait_committed
from connectx.errors.rest import WaitTimeoutError
from connectx.history.log import EventLog
from connectx.model.events import EventKind
from tests.support.histories import transition

FOREVER_S = 30.0


def commit(
    events: EventLog, records: int, position: int = 0, connector: str = "lines", worker: str = "worker-1"
) -> None:
    data = {"records": records, "offsets": [{"partition": {}, "offset": {"position": position}}]}
    events.append(transition(EventKind.TRANSACTION_COMMITTED, connector, 0, data=data), worker)


def wait(events: EventLog, records: int = 0, timeout_s: float = FOREVER_S, **options: Any) -> int:
    wanted = {"offset": None, "worker": None, "since": 0, **options}
    return wait_committed(events, "lines", records, timeout_s=timeout_s, **wanted).seq


@pytest.fixture
def events() -> EventLog:
    made = EventLog()
    commit(made, 500, connector="other")
    commit(made, 30, 300)
    commit(made, 70, 1000, worker="worker-2")
    made.append(
        transition(EventKind.OFFSETS_COMMITTED, "lines", 0, data={"records": 1, "offsets": {"lines-0": 100}}),
        "worker-1",
    )
    return made


def test_the_commit_that_reaches_what_is_wanted_is_returned(events: EventLog) -> None:
    assert wait(events) == 2
    assert wait(events, 30) == 2
    assert wait(events, 31) == 3
    assert wait(events, 101) == 4
    assert wait(events, offset={"position": 1000}) == 3
    assert wait(events, 101, offset={"position": 300}) == 4
    assert wait(events, worker="worker-2") == 3
    assert wait(events, since=3) == 4


def test_a_commit_that_comes_later_is_waited_for(events: EventLog) -> None:
    timer = threading.Timer(0.05, commit, (events, 1, 2000))
    timer.start()
    assert wait(events, offset={"position": 2000}) == 5
    timer.join()


def test_a_wait_that_ends_says_how_far_the_connector_came(events: EventLog) -> None:
    with pytest.raises(WaitTimeoutError, match="Connector lines has committed 101 of 102 records within 0 s"):
        wait(events, 102, 0.0)
    with pytest.raises(WaitTimeoutError, match=r"101 records, and not the offset \{'position': 7\} within"):
        wait(events, timeout_s=0.0, offset={"position": 7})


def test_a_wait_that_ends_names_the_failure_of_the_task(events: EventLog) -> None:
    failed = {"state": "FAILED", "trace": "Traceback\nFileNotFoundError: no in.txt"}
    events.append(transition(EventKind.TASK_STATE, "lines", 0, data=failed), "worker-1")
    with pytest.raises(WaitTimeoutError, match=r"within 0 s: lines-0 failed: .*no in.txt\. Repair the cause"):
        wait(events, 102, 0.0)


def test_a_wait_that_ends_names_what_a_running_task_waits_for(events: EventLog) -> None:
    reason = "No Kafka broker at lost:9092 answered."
    with pytest.raises(WaitTimeoutError, match=r"within 0 s: a task waits: No Kafka broker at lost:9092 answered\. "):
        wait(events, 102, 0.0, waits=lambda: reason)
