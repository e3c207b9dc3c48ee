"""The public Connector over REST: verbs, waiting, and what it looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import connectx.api.connector
from connectx.api.connector import Connector
from connectx.core import verbs
from connectx.core.messages import Done, Refused, Reply
from connectx.core.replies import Config, ConnectorInfo, ConnectorState, ConnectorStatus
from connectx.core.verbs import Verb
from connectx.errors.plugins import ConfigError
from connectx.errors.rest import ConfigRejectedError, ConnectorFailedError, ConnectorNotFoundError, WaitTimeoutError
from connectx.rest.client import RestClient

Serve = Callable[..., Any]

MISSING = Refused(1, 404, "Connector orders not found")
CONFIG: Config = {"name": "orders", "connector.class": "FileStreamSource", "db.password": "geheim", "old": "1"}
INFO: ConnectorInfo = {"name": "orders", "config": CONFIG, "tasks": [], "type": "source"}
TRACE = "Traceback (most recent call last):\n  File ...\nOSError: <no> postgresql://u:geheim@h/db"


def status(connector: str, *tasks: str) -> Reply:
    def at(state: str) -> ConnectorState:
        shown: ConnectorState = {"state": state, "worker_id": "127.0.0.1:1", "version": None}
        return {**shown, "trace": TRACE} if state == "FAILED" else shown

    body: ConnectorStatus = {
        "name": "orders",
        "connector": at(connector),
        "tasks": [{"id": number, **at(state)} for number, state in enumerate(tasks)],
        "type": "source",
    }
    return Done(1, 200, body)


def in_turn(*replies: Reply) -> Callable[[str | None, Mapping[str, Any]], Reply]:
    """One reply after the other; the last one for ever."""
    left = list(replies)
    return lambda *_: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture
def attach(serve: Serve) -> Iterator[Callable[..., tuple[Connector, Any]]]:
    """A connector called orders on a worker with these answers."""
    clients: list[RestClient] = []

    def make(answers: Mapping[type[Verb], Any] | None = None, **known: Any) -> tuple[Connector, Any]:
        ready = {
            verbs.ConnectorConfig: Done(1, 200, CONFIG),
            verbs.ConnectorInfo: Done(1, 200, INFO),
            verbs.ConnectorStatus: status("RUNNING", "RUNNING"),
        }
        worker = serve({**ready, **(answers or {})})
        clients.append(RestClient([worker.url], retry_s=0))
        return Connector("orders", clients[-1], worker_name=lambda worker_id: f"at {worker_id}", **known), worker

    yield make
    for client in clients:
        client.close()


Attach = Callable[..., tuple[Connector, Any]]


def test_state_tasks_and_type_are_read_when_asked_for(attach: Attach) -> None:
    connector, worker = attach({verbs.ConnectorStatus: status("RUNNING", "RUNNING", "FAILED")})
    assert worker.core.asked == []
    assert (connector.state, connector.type) == ("RUNNING", "source")
    assert [(str(t.id), t.state, t.worker) for t in connector.tasks] == [
        ("orders-0", "RUNNING", "at 127.0.0.1:1"),
        ("orders-1", "FAILED", "at 127.0.0.1:1"),
    ]
    assert connector.tasks[1].trace == TRACE
    connector.tasks[1].restart()
    assert worker.core.asked[-1] == verbs.RestartTask("orders", 1)


def test_what_runs_on_a_dead_worker_is_lost_and_what_failed_there_has_failed(attach: Attach) -> None:
    recorded = "worker-1 was killed 1.2 s ago; its work moves in 2.1 s at the latest"
    answers = {verbs.ConnectorStatus: status("RUNNING", "PAUSED", "FAILED", "UNASSIGNED")}
    connector, _ = attach(answers, lost=lambda worker_id: recorded if worker_id == "127.0.0.1:1" else None)
    shown = connector.status()
    assert [part["state"] for part in (shown["connector"], *shown["tasks"])] == [
        *("LOST", "LOST", "FAILED", "UNASSIGNED"),
    ]
    assert (shown["connector"]["lost"], shown["tasks"][0]["lost"]) == (recorded, recorded)
    assert connector.tasks[0].why == recorded
    assert connector.row()["state"] == "◌ LOST"
    for form in (repr(connector), connector._repr_html_(), repr(connector.tasks[0])):
        assert recorded in form
    with pytest.raises(WaitTimeoutError, match="LOST"):
        attach({verbs.ConnectorStatus: status("RUNNING", "RUNNING")}, lost=lambda _: recorded)[0].wait(timeout=0)


def test_a_connector_that_nobody_has_started_yet_is_unassigned(attach: Attach) -> None:
    connector, worker = attach({verbs.ConnectorStatus: Refused(1, 404, "No status found for connector orders")})
    assert connector.status() == {
        "name": "orders",
        "connector": {"state": "UNASSIGNED", "worker_id": ""},
        "tasks": [],
        "type": "source",
    }
    worker.core.answers[verbs.ConnectorInfo] = MISSING
    with pytest.raises(ConnectorNotFoundError):
        connector.status()


def test_verbs_are_kafka_connects(attach: Attach) -> None:
    connector, worker = attach()
    connector.pause()
    connector.resume()
    connector.stop()
    connector.restart(include_tasks=True, only_failed=True)
    connector.reset_topics()
    assert worker.core.asked == [
        verbs.Pause("orders"),
        verbs.Resume("orders"),
        verbs.Stop("orders"),
        verbs.RestartConnector("orders", include_tasks=True, only_failed=True),
        verbs.ResetTopics("orders"),
    ]
    worker.core.answers[verbs.ConnectorInfo] = MISSING
    connector.delete()
    assert verbs.Delete in worker.core.verbs()


def test_config_is_a_mapping_that_changes_through_the_cluster(attach: Attach) -> None:
    changed: ConnectorInfo = {**INFO, "config": {**CONFIG, "new": "2"}}
    connector, worker = attach({verbs.PutConfig: Done(1, 200, changed)})
    config = connector.config
    assert (dict(config), config["db.password"]) == (CONFIG, "geheim")
    config.update({"new": "2", "old": None})
    put = worker.core.asked[-1].config
    assert put == {"name": "orders", "connector.class": "FileStreamSource", "db.password": "geheim", "new": "2"}
    assert config["new"] == "2"
    config.replace({"connector.class": "X"})
    assert worker.core.asked[-1].config == {"name": "orders", "connector.class": "X"}
    for form in (repr(config), config._repr_html_()):
        assert "geheim" not in form
        assert "FileStreamSource" in form


def test_validate_checks_the_configuration_with_the_changes(attach: Attach) -> None:
    connector, worker = attach()
    worker.services.problems = ["wrong"]
    assert connector.validate({"old": None, "n": "1"})["error_count"] == 1
    checked = {key: value for key, value in CONFIG.items() if key != "old"} | {"n": "1"}
    assert worker.services.calls == [("validate", checked)]
    with pytest.raises(ConfigRejectedError):
        connector.config.update({"n": "1"})


def test_offsets_are_read_and_altered(attach: Attach) -> None:
    permitted = Done(1, 200, {"type": "source", "config": {}})
    connector, worker = attach({verbs.Offsets: permitted, verbs.ModifyOffsets: permitted})
    offsets = connector.offsets.get()
    assert offsets == [{"partition": {"filename": "a"}, "offset": {"position": 7}}]
    assert "altered" in connector.offsets.alter(offsets)
    assert "reset" in connector.offsets.reset()
    assert "'position': 7" in repr(connector.offsets)
    assert "&#x27;position&#x27;: 7" in connector.offsets._repr_html_()
    worker.core.answers[verbs.Offsets] = MISSING
    assert repr(connector.offsets) == "Offsets of orders: Connector orders not found"


@pytest.mark.parametrize(
    ("wanted", "replies"),
    [
        ("RUNNING", [status("UNASSIGNED"), status("RUNNING"), status("RUNNING", "RUNNING", "UNASSIGNED")]),
        ("PAUSED", [status("RUNNING", "RUNNING"), status("PAUSED", "RUNNING")]),
        ("STOPPED", [status("STOPPED", "UNASSIGNED"), status("RUNNING")]),
        ("FAILED", [status("RUNNING", "RUNNING")]),
    ],
)
def test_wait_ends_when_the_connector_and_its_tasks_are_there(
    attach: Attach, wanted: str, replies: list[Reply]
) -> None:
    there = {
        "RUNNING": status("RUNNING", "RUNNING", "RUNNING"),
        "PAUSED": status("PAUSED", "PAUSED"),
        "STOPPED": status("STOPPED"),
        "FAILED": status("RUNNING", "RUNNING", "FAILED"),
    }[wanted]
    connector, worker = attach({verbs.ConnectorStatus: in_turn(*replies, there)})
    assert connector.wait(wanted, timeout=60) is connector
    assert worker.core.verbs().count(verbs.ConnectorStatus) == len(replies) + 1


def test_waiting_counts_tasks_that_no_worker_has_started_yet(attach: Attach) -> None:
    two: ConnectorInfo = {**INFO, "tasks": [{"connector": "orders", "task": task} for task in range(2)]}
    answers = {
        verbs.ConnectorInfo: Done(1, 200, two),
        verbs.ConnectorStatus: in_turn(status("RUNNING", "RUNNING"), status("RUNNING", "RUNNING", "RUNNING")),
    }
    connector, worker = attach(answers)
    connector.wait(timeout=60)
    assert worker.core.verbs().count(verbs.ConnectorStatus) == 2


def test_wait_that_takes_too_long_says_what_it_saw(attach: Attach) -> None:
    connector, _ = attach({verbs.ConnectorStatus: status("RUNNING", "RUNNING", "UNASSIGNED")})
    expected = "Connector orders is not RUNNING after 0 s: the connector is RUNNING, its tasks: 1 RUNNING, 1 UNASSIGNED"
    with pytest.raises(WaitTimeoutError, match=expected) as caught:
        connector.wait(timeout=0)
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(ConfigError, match=r"There is no state RUNING\. States are UNASSIGNED, RUNNING"):
        connector.wait("RUNING")


def test_wait_ends_early_when_a_failure_lasts(attach: Attach, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectx.api.connector, "_FAILED_FOR_S", 0.0)
    connector, _ = attach({verbs.ConnectorStatus: status("RUNNING", "FAILED")})
    with pytest.raises(ConnectorFailedError, match=r"task 0 is FAILED on at 127.0.0.1:1: OSError") as caught:
        connector.wait(timeout=60)
    assert caught.value.trace == TRACE
    assert "geheim" not in str(caught.value)
    monkeypatch.setattr(connectx.api.connector, "_FAILED_FOR_S", 60.0)
    with pytest.raises(ConnectorFailedError, match="OSError"):
        connector.wait(timeout=0)


def test_wait_forgives_a_failure_that_a_restart_repairs(attach: Attach) -> None:
    repaired = in_turn(status("RUNNING", "FAILED"), status("RUNNING", "RUNNING"))
    connector, worker = attach({verbs.ConnectorStatus: repaired})
    assert connector.wait(timeout=60) is connector
    assert worker.core.verbs().count(verbs.ConnectorStatus) == 2


def test_forms_tell_a_running_connector_with_a_failed_task_apart(attach: Attach) -> None:
    connector, _ = attach({verbs.ConnectorStatus: status("RUNNING", "RUNNING", "FAILED")})
    assert repr(connector).splitlines() == [
        "Connector orders (source): ● RUNNING on at 127.0.0.1:1",
        "task  state      worker          why",
        "0     ● RUNNING  at 127.0.0.1:1",
        "1     ✕ FAILED   at 127.0.0.1:1  OSError: <no> postgresql://u:[hidden]@h/db",
    ]
    assert connector.row() == {
        "connector": "orders",
        "type": "source",
        "state": "● RUNNING",
        "worker": "at 127.0.0.1:1",
        "tasks": "1 FAILED, 1 RUNNING",
    }
    for page in (connector._repr_html_(), connector.tasks[1]._repr_html_()):
        assert "geheim" not in page
        assert "<script" not in page
        assert "&lt;no&gt;" in page
    assert repr(connector.tasks[0]) == "Task orders-0: ● RUNNING on at 127.0.0.1:1"


def test_forms_of_a_connector_that_is_gone_say_so_and_never_raise(attach: Attach) -> None:
    connector, worker = attach({verbs.ConnectorStatus: MISSING, verbs.ConnectorInfo: MISSING})
    assert repr(connector) == "Connector orders: Connector orders not found"
    worker.server.abandon()
    assert "No worker answers" in repr(connector)
    assert "No worker answers" in connector._repr_html_()
    assert "No worker answers" in str(connector.row()["state"])
