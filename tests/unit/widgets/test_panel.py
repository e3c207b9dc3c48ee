"""The pump of a panel, with a real history and no page: what it sends, and that a quiet cluster sends nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from connectx_widgets import panel as pump
from connectx_widgets.widget import ClusterPanel

from connectx.api.forms import with_panel
from connectx.history.log import EventLog
from connectx.model.events import EventKind
from tests.support.histories import small_cluster, transition


class Shown:
    """What a panel needs of a cluster."""

    has_faults = True

    def __init__(self) -> None:
        self.events = EventLog()
        self.workers: list[Any] = []
        self.calls: list[str] = []

    def overview(self) -> dict[str, object]:
        return {"generation": 3}

    def movement_reader(self) -> None:
        return None

    def __getitem__(self, name: str) -> Any:
        return SimpleNamespace(restart=lambda **named: self.calls.append("restart"))

    def kill(self, worker: str) -> None:
        self.calls.append(worker)
        raise ValueError("no such worker at http://me:s3cret@host/")


class Listening(ClusterPanel):
    """A panel whose messages are kept instead of sent."""

    def __init__(self, cluster: Shown) -> None:
        self.recorded: list[dict[str, Any]] = []
        self.news = threading.Condition()
        super().__init__(cluster)  # type: ignore[arg-type]

    def send(self, content: dict[str, Any], buffers: object = None) -> None:
        with self.news:
            self.recorded.append(content)
            self.news.notify_all()

    def wait(self, kind: str, since: int = 0) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((message for message in self.recorded[since:] if message["kind"] == kind), None)

        with self.news:
            assert self.news.wait_for(found, 10), self.recorded
            message = found()
        assert message is not None
        return message


@pytest.fixture
def cluster() -> Shown:
    made = Shown()
    for event in small_cluster().events:
        data = dict(event.data)
        recorded = transition(event.kind, event.connector, event.task, event.generation, data=data)
        made.events.append(recorded, event.worker)
    return made


@pytest.fixture
def panel(cluster: Shown) -> Iterator[Listening]:
    made = Listening(cluster)
    made.start()
    yield made
    made.close()


def test_a_page_finds_everything_in_the_snapshot(panel: Listening) -> None:
    assert panel.snapshot["whole"]
    kinds = {element["kind"] for element in panel.snapshot["elements"].values()}
    assert kinds == {"head", "row", "bar", "band", "connector", "task"}


def test_what_happens_is_sent_as_a_change_and_nothing_else_is(panel: Listening, cluster: Shown) -> None:
    before = len(panel.recorded)
    cluster.events.append(transition(EventKind.FAULT_INJECTED, data={"fault": "kill"}), "worker-2")
    change = panel.wait("change", before)
    assert "row:worker-1" not in change["set"]
    assert change["set"]["row:worker-2"]["state"] == "killed"
    assert change["base"] == change["seq"] - 1


def test_a_quiet_cluster_sends_nothing_but_an_answer(panel: Listening) -> None:
    before = len(panel.recorded)
    panel._on_message(None, {"kind": "hello"}, [])
    panel.wait("beat", before)
    assert [message["kind"] for message in panel.recorded[before:]] == ["beat"]


def test_everything_is_sent_again_when_a_page_asks(panel: Listening) -> None:
    panel._on_message(None, {"kind": "resync"}, [])
    assert panel.wait("all")["set"] == panel.snapshot["elements"]


def test_a_call_that_fails_says_what_was_called_and_why(panel: Listening, cluster: Shown) -> None:
    panel._on_message(None, {"kind": "call", "id": "1", "verb": "kill", "worker": "worker-9"}, [])
    result = panel.wait("result")
    assert (result["id"], result["text"], result["error"]) == (
        "1",
        'cluster.kill("worker-9")',
        "ValueError: no such worker at http://me:[hidden]@host/",
    )
    assert cluster.calls == ["worker-9"]


def test_a_call_on_a_connector_becomes_its_last_action(panel: Listening, cluster: Shown) -> None:
    before = len(panel.recorded)
    panel._on_message(
        None, {"kind": "call", "id": "1", "verb": "restart", "connector": "flights-in", "failed": True}, []
    )
    action = panel.wait("change", before)["patch"]["connector:flights-in"]["action"]
    assert (action["what"], action["error"], cluster.calls) == ("restart failed", False, ["restart"])


def test_a_beat_tells_when_workers_were_last_heard(cluster: Shown) -> None:
    cluster.workers = [SimpleNamespace(name="worker-1", task_metrics={}, state="running", heartbeat_ms=7, generation=1)]
    made = Listening(cluster)
    made.start()
    made._on_message(None, {"kind": "hello"}, [])
    assert made.wait("beat")["heartbeats"] == {"worker-1": 7}
    made.close()


def test_an_unknown_call_is_refused_in_the_panel(panel: Listening) -> None:
    panel._on_message(None, {"kind": "call", "id": "2", "verb": "close"}, [])
    assert "panels cannot do" in panel.wait("result")["error"]


def test_the_last_picture_holds_the_end_and_a_failing_panel_says_so(cluster: Shown) -> None:
    shown = Listening(cluster)
    shown.start()
    cluster.events.append(transition(EventKind.CLUSTER_STOPPED))
    shown.stop()
    assert shown.recorded[-1]["kind"] == "ended"
    assert shown.snapshot["ended"]
    open_bars = [e for e in shown._panel._elements.values() if e["kind"] == "bar" and e["parts"][-1]["to"] is None]
    assert open_bars == []
    shown.close()

    broken = Listening(cluster)
    broken.start()
    cluster.overview = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    cluster.events.append(transition(EventKind.FAULT_INJECTED, data={"fault": "kill"}), "worker-2")
    assert "ZeroDivisionError" in broken.wait("result")["error"]
    broken.close()


def test_a_panel_that_is_slow_while_its_cluster_is_closed_still_shows_the_end(
    cluster: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "_JOIN_S", 0.01)
    monkeypatch.setattr(pump, "MOVEMENTS_MS", 0)
    reader = SimpleNamespace(read_all=dict, close=lambda: None)
    cluster.movement_reader = lambda: reader  # type: ignore[method-assign, assignment]
    shown = Listening(cluster)
    shown.start()
    is_drawing, go_on, overview = threading.Event(), threading.Event(), cluster.overview

    def slow_overview() -> Any:
        is_drawing.set()
        assert go_on.wait(60)
        return overview()

    cluster.overview = slow_overview  # type: ignore[method-assign]
    cluster.events.append(transition(EventKind.FAULT_INJECTED, data={"fault": "kill"}), "worker-2")
    assert is_drawing.wait(60)
    shown.stop()
    go_on.set()
    shown.wait("ended")
    shown.close()


def test_what_cannot_show_the_panel_shows_the_clusters_own_forms(panel: Listening) -> None:
    shown = with_panel({"text/plain": "Cluster: ...", "text/html": "<table>"}, panel)
    assert shown.pop("application/vnd.jupyter.widget-view+json")["model_id"] == panel.model_id
    assert shown == {"text/plain": "Cluster: ...", "text/html": "<table>"}


@pytest.mark.filterwarnings("ignore:Widget.widgets is deprecated")  # the one name that ipywidgets 7 and 8 have
def test_ten_panels_one_after_the_other_leave_no_more_behind_than_one(cluster: Shown) -> None:
    import connectx_widgets
    from ipywidgets import Widget

    def left_after(count: int) -> tuple[int, int]:
        for _ in range(count):
            connectx_widgets.open_panel(cluster).stop()  # type: ignore[arg-type]
        return len(Widget.widgets), threading.active_count()

    once = left_after(1)
    assert left_after(9) == once


def test_a_job_or_a_commit_alone_sends_nothing_before_numbers_are_read_again(cluster: Shown) -> None:
    made = Listening(cluster)
    made._panel._follow(0.0)
    made._panel._update()
    data = {"records": 10}
    for kind in (EventKind.BULK_STARTED, EventKind.BULK_STAGED):
        cluster.events.append(transition(kind, "flights-in", 0), "worker-2")
    cluster.events.append(transition(EventKind.TRANSACTION_COMMITTED, "flights-in", 0, data=data), "worker-2")
    assert not made._panel._follow(0.0)
    assert not made._panel._update()
    assert made._panel._read_totals()
    assert made._panel._update()
    assert made.recorded[-1]["patch"]["connector:flights-in"]["committed"] == 10
    assert not made._panel._read_totals()
    made.close()
