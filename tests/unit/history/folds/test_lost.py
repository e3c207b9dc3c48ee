"""Work of a dead worker is lost until another has it, and waits no longer than the settings say."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.history.folds.lost import DELAY, SESSION, Grace, LostWork, Remains, lost_work
from connectx.history.log import EventLog
from connectx.model.events import EventKind
from connectx.model.ids import TaskId
from tests.support.histories import transition

GRACE = Grace(session_timeout_ms=3000, heartbeat_interval_ms=500, max_delay_ms=2000)


class History:
    """Events at times of our own; worker-1 has connector a and tasks a-0, b-0, worker-2 has b."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.log = EventLog(clock=lambda: self.now_ms)
        self.say(EventKind.REBALANCE_COMPLETED, connectors=["a"], tasks=["a-0", "b-0"])
        self.say(EventKind.REBALANCE_COMPLETED, worker="worker-2", connectors=["b"], tasks=[])

    def say(
        self,
        kind: EventKind,
        at_ms: int = 0,
        worker: str = "worker-1",
        connector: str | None = None,
        task: int | None = None,
        **data: Any,
    ) -> None:
        self.now_ms = at_ms
        self.log.append(transition(kind, connector, task, data=data), worker)

    def kill(self, at_ms: int = 1000) -> None:
        self.say(EventKind.FAULT_INJECTED, at_ms, fault="kill")

    @property
    def lost(self) -> LostWork | None:
        return lost_work(self.log, "worker-1", GRACE)


@pytest.fixture
def history() -> History:
    return History()


def test_a_worker_that_lives_has_lost_nothing(history: History) -> None:
    history.say(EventKind.FAULT_INJECTED, 500, fault="pause")
    assert history.lost is None


def test_until_the_group_notices_both_times_count(history: History) -> None:
    history.kill()
    assert history.lost == LostWork(
        "worker-1", "was killed", 1000, ("a",), (TaskId("a", 0), TaskId("b", 0)), 6500, (SESSION, DELAY)
    )


def test_a_worker_that_fails_has_lost_its_work_too(history: History) -> None:
    history.say(EventKind.WORKER_FAILED, 1000, error="broken")
    assert history.lost is not None
    assert history.lost.how == "failed"


def test_the_leaders_delay_is_exact_and_a_later_round_may_shorten_it(history: History) -> None:
    history.kill()
    history.say(EventKind.REBALANCE_DELAYED, 4000, "worker-2", lost=["a", "a-0", "b-0"], delay_ms=2000)
    assert history.lost is not None
    assert (history.lost.due_ms, history.lost.waits_for) == (6000, (DELAY,))
    history.say(EventKind.REBALANCE_DELAYED, 5000, "worker-2", lost=["a", "a-0", "b-0"], delay_ms=1000)
    assert history.lost.due_ms == 6000


def test_a_delay_that_is_about_other_work_says_nothing(history: History) -> None:
    history.kill()
    history.say(EventKind.REBALANCE_DELAYED, 4000, "worker-2", lost=["c-0"], delay_ms=9000)
    assert history.lost is not None
    assert history.lost.due_ms == 6500


def test_a_goodbye_said_for_it_ends_the_wait_for_its_session(history: History) -> None:
    history.kill()
    history.say(EventKind.MEMBER_REMOVED, 1010, group="g", members=["m"])
    assert history.lost is not None
    assert (history.lost.due_ms, history.lost.waits_for) == (3510, (DELAY,))


def test_work_that_the_leader_gave_to_others_waits_for_nothing(history: History) -> None:
    history.kill()
    members = {"http://2/": {"assigned": ["a", "a-0", "b-0"], "revoked": [], "owns": []}}
    history.say(EventKind.ASSIGNMENT_COMPUTED, 4000, "worker-2", members=members, lost=[])
    assert history.lost is not None
    assert history.lost.waits_for == ()
    assert history.lost.sentence(4100) == "worker-1 was killed 3.1 s ago; its work is being handed over"


def test_work_that_runs_elsewhere_is_not_lost_any_more(history: History) -> None:
    history.kill()
    history.say(EventKind.CONNECTOR_STATE, 6000, "worker-2", "a", state="RUNNING")
    history.say(EventKind.TASK_STATE, 6000, "worker-2", "a", 0, state="RUNNING")
    assert history.lost is not None
    assert (history.lost.connectors, history.lost.tasks) == ((), (TaskId("b", 0),))
    history.say(EventKind.TASK_STATE, 6100, "worker-2", "b", 0, state="FAILED")
    assert history.lost is None


def test_what_the_dead_worker_still_says_moves_nothing(history: History) -> None:
    history.kill()
    history.say(EventKind.TASK_STATE, 1100, "worker-1", "a", 0, state="RUNNING")
    assert history.lost is not None
    assert TaskId("a", 0) in history.lost.tasks


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (EventKind.CONNECTOR_DELETED, {}),
        (EventKind.TASKS_CONFIGURED, {"tasks": 0}),
        (EventKind.TARGET_STATE_CHANGED, {"target_state": "STOPPED"}),
    ],
)
def test_work_that_is_not_wanted_any_more_is_not_lost(history: History, kind: EventKind, data: dict[str, Any]) -> None:
    history.kill()
    history.say(kind, 2000, "worker-2", "a", **data)
    assert history.lost is not None
    assert history.lost.tasks == (TaskId("b", 0),)


def test_it_is_told_in_a_sentence_with_the_settings_that_hold_it_back(history: History) -> None:
    history.kill()
    lost = history.lost
    assert lost is not None
    assert lost.sentence(2200) == (
        "worker-1 was killed 1.2 s ago; its work moves in 4.3 s at the latest (session.timeout.ms, then "
        "scheduled.rebalance.max.delay.ms)"
    )
    assert lost.sentence(7000) == "worker-1 was killed 6.0 s ago; its work is being handed over"
    assert lost.sentence(2000, any_left=False) == (
        "worker-1 was killed 1.0 s ago; no worker is left to take over: cluster.add_worker()"
    )


def test_without_a_delay_only_the_session_counts(history: History) -> None:
    history.kill()
    lost = lost_work(history.log, "worker-1", Grace(3000, 500, 0))
    assert lost is not None
    assert (lost.due_ms, lost.waits_for) == (4500, (SESSION,))


@pytest.mark.parametrize("events_a_look", [1, 2, 3, 100])
def test_looks_that_read_only_what_is_new_find_what_one_look_at_everything_finds(
    history: History, events_a_look: int
) -> None:
    history.say(EventKind.REBALANCE_COMPLETED, connectors=["a"], tasks=["a-0", "b-0", "c-0"])
    history.say(EventKind.OFFSETS_COMMITTED, connector="a", task=0)
    history.kill()
    history.say(EventKind.MEMBER_REMOVED, 1100, group="connectx")
    history.say(EventKind.OFFSETS_COMMITTED, 1150, worker="worker-2", connector="b", task=1)
    history.say(EventKind.REBALANCE_DELAYED, 1200, worker="worker-2", lost=["a", "a-0", "b-0", "c-0"], delay_ms=2000)
    history.say(EventKind.ASSIGNMENT_COMPUTED, 3200, worker="worker-2", members={"u": {"assigned": ["a", "a-0"]}})
    history.say(EventKind.CONNECTOR_STATE, 3300, worker="worker-2", connector="a", state="RUNNING")
    history.say(EventKind.TASK_STATE, 3300, worker="worker-2", connector="a", task=0, state="RUNNING")
    history.say(EventKind.TARGET_STATE_CHANGED, 3400, worker="worker-2", connector="b", target_state="STOPPED")
    history.say(EventKind.CONNECTOR_DELETED, 3500, worker="worker-2", connector="c")
    history.say(EventKind.OFFSETS_COMMITTED, 3600, worker="worker-2", connector="a", task=0)
    events, remains, found = list(history.log), Remains("worker-1", GRACE), []
    for start in range(0, len(events), events_a_look):
        remains = remains.then(events[start : start + events_a_look])
        assert remains.work == lost_work(events[: start + events_a_look], "worker-1", GRACE)
        found.append(remains.work)
    assert any(found) == (events_a_look < 100)
    assert (remains.work, remains.is_over, remains.events) == (None, True, ())


def test_a_look_keeps_only_what_counts(history: History) -> None:
    for number in range(50):
        history.say(EventKind.REBALANCE_COMPLETED, connectors=[], tasks=[f"a-{number}"])
        history.say(EventKind.OFFSETS_COMMITTED, connector="a", task=number)
    history.kill()
    for number in range(50):
        history.say(EventKind.OFFSETS_COMMITTED, 1100, worker="worker-2", connector="b", task=number)
    remains = Remains("worker-1", GRACE).then(tuple(history.log))
    assert [event.kind for event in remains.events] == [EventKind.REBALANCE_COMPLETED, EventKind.FAULT_INJECTED]
    assert remains.seq == history.log.last_seq
    assert remains.then(history.log.since(remains.seq)) is remains
    assert remains.work is not None
    assert remains.work.tasks == (TaskId("a", 49),)
