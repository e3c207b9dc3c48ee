"""Zombies of every kind (KIP-618, rule 7): each is fenced, and says by whom and since when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import pytest

import connectx as cx
from connectx.history.sentences.stories import stories
from connectx.model.events import EventKind
from tests.support.clusters import events, explained_fence, netloc, owner_of
from tests.support.flows import Rows
from tests.support.options import GATE
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.rule("618.7.4")

if TYPE_CHECKING:
    from connectx.api.workers import Worker
    from connectx.model.events import Event

MakeRows = Callable[[cx.Cluster], Rows]
Kind = Literal["pause", "stall", "out"]


def turn_into_zombie(cluster: cx.Cluster, worker: Worker, kind: Kind) -> Callable[[], None]:
    """Take the worker from its group while it lives; returns what brings it back."""
    if kind == "out":  # what it sends does not arrive: cut from Kafka one way
        worker.partition("out")
        return worker.heal
    (worker.pause if kind == "pause" else worker.stall)()
    return worker.resume


@pytest.mark.rule("618.7.1")
@pytest.mark.parametrize("kind", ["pause", "stall", pytest.param("out", marks=GATE)])
def test_a_zombie_is_fenced_and_says_by_whom_and_since_when(
    workers: cx.Cluster, make_rows: MakeRows, kind: Kind
) -> None:
    rows = make_rows(workers)
    rows.start()
    rows.wait_for_more(0)
    task, since = f"{rows.name}-0", workers.events.last_seq
    zombie = owner_of(workers, task)
    wake = turn_into_zombie(workers, zombie, kind)
    state: dict[str, Any] = {"connector": rows.name, "task": 0, "state": "RUNNING"}

    def takeover() -> tuple[Worker, Event] | None:
        """The other worker that has started the task and has it: the group may move it again before it starts."""
        started = events(workers, EventKind.TASK_STATE, since, **state)
        owners = (w for w in workers.workers if w.name != zombie.name and task in w.tasks)
        return next(((owner, event) for owner in owners for event in started if event.worker == owner.name), None)

    successor, running = until(takeover, "the successor's start")
    rows.wait_for_more(0)
    wake()
    recorded = explained_fence(workers, zombie.name, task, since)
    (fenced,) = events(workers, EventKind.PRODUCER_FENCED, since, worker=zombie.name, connector=rows.name, task=0)
    assert recorded.data["by"] == netloc(successor)
    assert (
        f"worker {netloc(successor)} took over {task} in generation {recorded.data['by_generation']}" in recorded.cause
    )
    assert f"(epoch {recorded.data['newer_epoch']}), RUNNING there since " in recorded.cause
    assert recorded.data["newer_epoch"] == fenced.data["newer_epoch"] > (fenced.producer_epoch or 0)
    assert abs(recorded.data["since_ms"] - running.time_ms) < 10_000, "Kafka's time of the status"
    workers.wait_stable(WAIT_S)
    owner_of(workers, task)
    rows.wait_for_more(0)
    rows.check_exactly_once()
    assert any(f"{successor.name} took over {task}" in str(story) for story in stories(workers.events.since(0)))
