"""Whole clusters of pure cores in virtual time: what must come out when nothing but the named fault happens."""

from __future__ import annotations

from typing import cast

import pytest

from connectx.core import verbs
from connectx.core.messages import Done
from connectx.core.replies import ConnectorStatus
from connectx.model.config_records import TaskCommitRecord, TaskCountRecord
from connectx.model.events import EventKind
from connectx.model.ids import TaskId
from connectx.model.states import ExactlyOnceSupport
from tests.simulation.world import World

SOURCE = {"connector.class": "Source", "tasks.max": "2"}


def _create(world: World, name: str = "c", **config: str) -> None:
    reply = world.ask(verbs.Create, name, config={**SOURCE, "name": name, **config})
    assert reply.status == 201, (reply, world.story())


def test_three_workers_agree_on_one_leader_and_generation() -> None:
    world = World(3)
    world.settle()
    assert [w.core.context.group.is_leader for w in world.workers.values()].count(True) == 1


def test_a_created_connector_runs_each_task_once() -> None:
    world = World(3)
    world.settle()
    _create(world)
    world.settle()
    assert {task: len(owners) for task, owners in world.owners().items()} == {TaskId("c", 0): 1, TaskId("c", 1): 1}


@pytest.mark.rule("always.4")
def test_a_task_count_record_follows_the_latest_task_configs_before_a_source_task_begins() -> None:
    world = World(3)
    world.settle()
    _create(world)
    world.settle()
    kinds = [type(record) for _, record in world.broker.config_log]
    assert kinds.index(TaskCountRecord) > kinds.index(TaskCommitRecord)


@pytest.mark.rule("618.3.2")
def test_a_source_task_starts_in_the_order_of_kip_618() -> None:
    world = World(2)
    world.settle()
    _create(world)
    world.settle()
    world.run_for(1_000)
    steps: dict[tuple[str | None, int | None], list[str]] = {}
    for _, worker, recorded in world.history:
        if recorded.kind is EventKind.TASK_STEP:
            steps.setdefault((worker, recorded.task), []).append(recorded.data["step"])
    order = ["prepare", "request_fencing", "init_producer", "read_config_to_end", "begin", "read_offsets", "poll"]
    assert list(steps.values()) == [order, order], "one for each task"


@pytest.mark.rule("618.2.2", "618.7.2")
def test_a_reduced_task_count_fences_all_older_producers() -> None:
    world = World(2)
    world.settle()
    _create(world)
    world.settle()
    assert world.ask(verbs.PutConfig, "c", config={**SOURCE, "name": "c", "tasks.max": "1"}).status == 200
    world.run_until(lambda: len(world.fenced) == 1 and world.unsettled() is None)
    assert world.fenced == [("g-c-0", "g-c-1")]
    assert sorted(world.owners()) == [TaskId("c", 0)]


def test_work_of_a_killed_worker_moves_after_the_delay() -> None:
    world = World(3)
    world.settle()
    _create(world, **{"tasks.max": "3"})
    world.settle()
    victim = next(w for w in world.workers.values() if w.running and not w.core.context.group.is_leader)
    world.kill(victim.name)
    killed_ms = world.now_ms
    world.run_until(lambda: victim.core.context.group.generation < world.leader.core.context.group.generation)
    world.settle()
    assert {task: len(owners) for task, owners in world.owners().items()} == {TaskId("c", n): 1 for n in range(3)}
    assert world.now_ms - killed_ms >= 3_000


def test_a_killed_leader_is_replaced_and_its_successor_claims_the_config_topic() -> None:
    world = World(3)
    world.settle()
    _create(world)
    world.settle()
    world.kill(world.leader.name)
    world.run_until(lambda: any(w.core.context.group.is_leader for w in world.workers.values() if w.alive))
    world.settle()
    assert world.ask(verbs.PutConfig, "c", config={**SOURCE, "name": "c", "x": "1"}).status == 200


def test_a_newcomer_takes_its_share() -> None:
    world = World(2)
    world.settle()
    _create(world, **{"tasks.max": "6"})
    world.settle()
    newcomer = world.add_worker()
    world.run_until(lambda: len(newcomer.running) == 2 and world.unsettled() is None)
    assert sorted(len(w.running) for w in world.workers.values()) == [2, 2, 2]


def test_a_stopped_worker_hands_over_and_leaves() -> None:
    world = World(2)
    world.settle()
    _create(world)
    world.settle()
    leaver = next(w for w in world.workers.values() if not w.core.context.group.is_leader)
    world.stop(leaver.name)
    world.run_until(lambda: leaver.shut_down)
    world.settle()
    assert not leaver.running


def test_pause_resume_stop_and_delete() -> None:
    world = World(2)
    world.settle()
    _create(world)
    world.settle()
    assert world.ask(verbs.Pause, "c").status == 202
    world.run_until(lambda: _states(world) == {"PAUSED"})
    assert world.ask(verbs.Resume, "c").status == 202
    world.run_until(lambda: _states(world) == {"RUNNING"})
    assert world.ask(verbs.Stop, "c").status == 204
    world.run_until(lambda: _states(world) == {"STOPPED"} and world.unsettled() is None)
    assert world.ask(verbs.Delete, "c").status == 204
    world.run_until(lambda: world.leader.core.context.config.connectors() == () and world.unsettled() is None)
    world.run_until(lambda: world.leader.core.context.status.connector_status("c") is None)


def test_restart_with_tasks_restarts_everything_once() -> None:
    world = World(2)
    world.settle()
    _create(world)
    world.settle()
    before = {task: w.running[task] for w in world.workers.values() for task in w.running}
    reply = world.ask(verbs.RestartConnector, "c", include_tasks=True, only_failed=False)
    assert reply.status == 202
    world.run_for(1_000)
    after = {task: w.running[task] for w in world.workers.values() for task in w.running}
    assert sorted(before) == sorted(after)
    assert all(before[task] != after[task] for task in before)


def test_without_exactly_once_no_fencing_round_takes_place() -> None:
    world = World(2, exactly_once_source_support=ExactlyOnceSupport.DISABLED)
    world.settle()
    _create(world)
    world.settle()
    assert not any(isinstance(record, TaskCountRecord) for _, record in world.broker.config_log)


def test_the_same_world_gives_the_same_history() -> None:
    def history() -> list[object]:
        world = World(3)
        world.settle()
        _create(world)
        world.settle()
        return list(world.history)

    assert history() == history()


def test_a_paused_worker_that_wakes_as_a_zombie_gives_its_tasks_up() -> None:
    world = World(3)
    world.settle()
    _create(world, **{"tasks.max": "3"})
    world.settle()
    zombie = next(w for w in world.workers.values() if w.running and not w.core.context.group.is_leader)
    zombie.frozen = True
    others = [w for w in world.workers.values() if w is not zombie]
    world.run_until(lambda: sum(len(w.running) for w in others) == 3)
    zombie.wake()
    world.run_until(lambda: len(world.owners()) == 3 and all(len(o) == 1 for o in world.owners().values()))
    world.settle()
    assert any(t.kind is EventKind.MEMBER_LOST for t in zombie.history)


def _states(world: World) -> set[str]:
    reply = world.ask(verbs.ConnectorStatus, "c")
    assert isinstance(reply, Done)
    body = cast("ConnectorStatus", reply.body)
    states = {body["connector"]["state"]} | {task["state"] for task in body["tasks"]}
    return states if states != {"STOPPED", "UNASSIGNED"} else {"UNASSIGNED"}
