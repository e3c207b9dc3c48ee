"""What must always hold (numbers as in docs/kip-618.md), looked at while a simulated cluster runs.

Every check speaks of facts in the world: the config topic, producers, what runs where. A broken one stops the run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connectx.core.group_messages import SendSyncGroup
from connectx.core.lanes import BulkMode
from connectx.core.messages import (
    ConfigReadToEnd,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    FenceRequestAnswered,
    PrepareTask,
    ProducersFenced,
    SessionKeyCreated,
    TaskConfigsSent,
    TaskPrepared,
    TaskProducerReady,
    TaskStopped,
)
from connectx.model import payloads
from connectx.model.config_records import TaskCommitRecord
from connectx.model.events import Transition
from connectx.model.group import WorkSet
from connectx.model.payloads import StepName
from tests.simulation.broker_coordinator import Coordinator
from tests.simulation.connections import Client
from tests.simulation.data_checks import SinkChecks, SourceChecks
from tests.simulation.invariants import broken
from tests.simulation.producer_requests import is_fenced
from tests.simulation.sim_producer import SimProducer
from tests.simulation.sim_source import SimSource
from tests.simulation.sim_task import SimTask

if TYPE_CHECKING:
    from tests.simulation.sim_worker import SimWorker
    from tests.simulation.world import World

ONCE = (
    ConfigReadToEnd,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    FenceRequestAnswered,
    ProducersFenced,
    SessionKeyCreated,
    TaskConfigsSent,
    TaskPrepared,
    TaskProducerReady,
    TaskStopped,
)
"""Answers that count once: whatever comes again later is of the past."""

EXPECTED = ("in this test", "not found", "is not a source connector")
"""Traces of failures that are right."""

MOST_JOBS = 3
"""Jobs in a row that may fail before their task does, with `bulk.mode=always`."""


@dataclass
class Checks:
    """Invariants 1, 4, 5, 6 and 10; `data` and `sinks` look at 1, 2, 3 and 8."""

    world: World
    leaders: dict[int, str] = field(default_factory=dict)
    failed_jobs: defaultdict[tuple[str | None, int | None], list[str]] = field(
        default_factory=lambda: defaultdict(list)
    )
    data: SourceChecks = field(init=False)
    sinks: SinkChecks = field(init=False)

    def __post_init__(self) -> None:
        self.data, self.sinks = SourceChecks(self.world), SinkChecks(self.world)

    def on_assignments(self, sync: SendSyncGroup, coordinator: Coordinator) -> None:
        """5: an assignment names nothing twice, and nothing that another member goes on running."""
        awaited = ("COMPLETING", coordinator.leader, coordinator.generation)
        if (coordinator.state, sync.member_id, sync.generation) != awaited:
            return  # it comes too late
        result: Counter[object] = Counter()
        if any(assignment.error for assignment in sync.assignments.values()):
            return
        for member_id, assignment in sync.assignments.items():
            metadata = coordinator.metadata(coordinator.members[member_id])
            claims = WorkSet() if metadata.allocation is None else metadata.allocation.assigned
            kept = claims.minus(assignment.revoked).plus(assignment.assigned)
            result.update(kept.connectors)
            result.update(kept.tasks)
        twice = sorted(str(item) for item, count in result.items() if count > 1)
        if twice:
            broken(5, f"assigned twice: {twice}")

    def on_prepare(self, worker: SimWorker, effect: PrepareTask) -> None:
        """6: a task starts only from a complete set of task configs."""
        config = worker.core.context.config
        siblings = config.all_task_configs(effect.task.connector)
        sets = {(properties["set"], properties["of"]) for properties in siblings.values()}
        if len(sets) != 1 or {of for _, of in sets} != {str(len(siblings))}:
            broken(6, f"{effect.task} starts from a mixed set of task configs: {siblings}")
        if effect.task_config != siblings[effect.task]:
            broken(6, f"{effect.task} starts with another config than {siblings[effect.task]}")

    def on_begin(self, task: SimTask) -> None:
        """1 and 4: nobody else can commit for this task, nor for an older set of tasks; the count is recorded."""
        if not isinstance(task, SimSource) or not task.order.exactly_once or task.is_fenced:
            return
        connector, truth = task.order.task.connector, self.world.broker.config
        if truth.pending_fencing(connector):
            broken(4, f"{task.order.task} begins, and no task count record follows the latest task configs")
        if self.task_set(connector) != task.task_set:
            broken(4, f"{task.order.task} begins with older task configs than there are")
        for other in self.world.all_tasks():
            same = other.order.task == task.order.task
            older = other.task_set != task.task_set
            if other is not task and other.order.task.connector == connector and (same or older) and other.can_commit:
                broken(1, f"{task.order.task} begins, and {other.order.task} of {other.worker.name} can still commit")
        self.data.on_begin(task)

    def on_commit(self, client: Client) -> None:
        """1: a task that commits is the last one that has begun with its source partitions."""
        if isinstance(client, SimProducer) and isinstance(client.owner, SimSource):
            self.data.on_commit(client.owner)

    def on_producer_failed(self, producer: SimProducer) -> None:
        """9: a producer only ends when another one, a leader, a time-out or a late InitProducerId has fenced it."""
        if not producer.is_excused and not is_fenced(self.world.broker.transactions, producer):
            broken(9, f"a producer ends, which nothing has fenced: {producer.core.failure}")

    def task_set(self, connector: str) -> int:
        """The log offset of the newest commit record of a connector."""
        records = self.world.broker.config_log
        commits = (at for at, record in records if record == TaskCommitRecord(connector, getattr(record, "tasks", -1)))
        return max(commits, default=-1)

    def on_transition(self, transition: Transition) -> None:
        """Nothing fails for good but what a test made fail, what lost its connector, or a third job in a row."""
        failed_jobs = self.failed_jobs[transition.connector, transition.task]
        match transition.payload:
            case payloads.BulkFailed(error):
                failed_jobs.append(error)
            case payloads.TransactionCommitted() | payloads.OffsetsCommitted() | payloads.TaskStep(StepName.PREPARE):
                failed_jobs.clear()
        trace = transition.data.get("trace")
        if trace is None or any(reason in trace for reason in EXPECTED):
            return
        jobs_only = self.world.source_bulk is BulkMode.ALWAYS
        if not (jobs_only and len(failed_jobs) >= MOST_JOBS and trace == failed_jobs[-1]):
            broken(9, f"failed for good: {trace}")

    def after_step(self, worker: SimWorker) -> None:
        """5 and 10."""
        core = worker.core
        group = core.context.group
        if group.leader_id:
            known = self.leaders.setdefault(group.generation, group.leader_id)
            if known != group.leader_id:
                broken(5, f"two leaders in generation {group.generation}: {known} and {group.leader_id}")
        if found := core.check(worker.marks):
            broken(10, f"{worker.name}: {'; '.join(map(str, found))}")
