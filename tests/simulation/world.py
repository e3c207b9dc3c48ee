"""Whole clusters of pure cores in virtual time: workers, a model broker, latencies and faults.

Everything happens in the order of virtual time; ties go by the order of scheduling, so a run is the same every time.
Without a `random` generator there are no faults but those that a test asks for, and every message takes 2 ms.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from connectx.core.context import CoreSettings
from connectx.core.membership import MembershipSettings
from connectx.core.messages import (
    Reply,
    ShutdownRequested,
    StatusRecordRead,
    Stimulus,
    WorkerStarted,
)
from connectx.core.requests import Verb
from connectx.core.status_log import StatusLog
from connectx.model.config_records import ConfigRecord
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.model.states import ConnectorType, ExactlyOnceSupport, State, TargetState
from connectx.model.status_records import StatusRecord
from tests.simulation.broker import Broker
from tests.simulation.broker_coordinator import Answers
from tests.simulation.checks import ONCE, Checks
from tests.simulation.sim_worker import SimTask, SimWorker

LATENCY_MS = 2
START_MS = 1_000_000
STOP_MS = (50, 400, 3_000, 7_000)  # the last one is longer than any graceful time

SHOWN = {
    TargetState.STARTED: (State.RUNNING, State.RUNNING),
    TargetState.PAUSED: (State.PAUSED, State.PAUSED),
    TargetState.STOPPED: (State.STOPPED, State.UNASSIGNED),
}
"""Target state to the states that connector and tasks must come to show."""


def connector_type_of(config: Mapping[str, str | None]) -> ConnectorType:
    """The worlds' connectors are sinks when their class says so."""
    return ConnectorType.SINK if "Sink" in (config.get("connector.class") or "") else ConnectorType.SOURCE


class World:
    """N workers and a broker in virtual time, starting at 1,000,000 ms."""

    def __init__(self, workers: int, random: Random | None = None, **settings: Any) -> None:
        self.now_ms = START_MS
        self.random = random
        self.calm = random is None
        self.slow = 0.0  # share of messages that take longer
        self.lossy = 0.0  # share of answers that are lost
        self.slow_stops = 0.0  # share of connectors and tasks that take longer to stop
        self.broker = Broker()
        self.broker_down = False
        self.checks = Checks(self)
        self.fenced: list[tuple[str, ...]] = []
        self.history: list[tuple[int, str, Transition]] = []
        self.workers: dict[str, SimWorker] = {}
        self.settings = {"exactly_once": ExactlyOnceSupport.ENABLED, "scheduled_rebalance_max_delay_ms": 3_000}
        self.settings |= settings
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._requests = 0
        for _ in range(workers):
            self.add_worker()
        self._tick()

    # ---------------------------------------------------------------------------------------------------- chance

    def latency_ms(self) -> int:
        if self.calm or self.random is None or self.random.random() >= self.slow:
            return LATENCY_MS
        return self.random.choice((20, 200, 1_500))

    def stop_ms(self) -> int:
        if self.calm or self.random is None or self.random.random() >= self.slow_stops:
            return LATENCY_MS
        return self.random.choice(STOP_MS)

    def loses_reply(self) -> bool:
        return not self.calm and self.random is not None and self.random.random() < self.lossy

    # --------------------------------------------------------------------------------------------------- workers

    def add_worker(self, **settings: Any) -> SimWorker:
        number = len(self.workers) + 1
        core_settings = CoreSettings(
            url=f"http://127.0.0.1:{8080 + number}/",
            group_id="g",
            membership=MembershipSettings(session_timeout_ms=3_000, heartbeat_interval_ms=500),
            connector_type_of=connector_type_of,
            check_signature=lambda *_: None,
            **(self.settings | settings),
        )
        worker = SimWorker(self, f"worker-{number}", core_settings)
        self.workers[worker.name] = worker
        for status in self.broker.status_log:
            worker.handle(StatusRecordRead(status))
        self.at(0, worker.catch_up)
        worker.deliver(WorkerStarted(), delay_ms=1)
        return worker

    def kill(self, name: str) -> None:
        """It is gone with its tasks, and nothing that it was asked is answered."""
        worker = self.workers[name]
        worker.alive = False
        worker.tasks.clear()
        waiting, worker.waiting = worker.waiting, {}
        for request_id, answer in waiting.items():
            answer(Reply(request_id, 503, "connection reset"))

    def stop(self, name: str) -> None:
        self.workers[name].handle(ShutdownRequested())

    @property
    def living(self) -> list[SimWorker]:
        return [worker for worker in self.workers.values() if worker.alive]

    @property
    def leader(self) -> SimWorker:
        return next(worker for worker in self.living if worker.core.context.group.is_leader)

    def worker_at(self, url: str) -> SimWorker | None:
        """The living worker with that URL."""
        return next((worker for worker in self.living if worker.core.context.settings.url == url), None)

    def all_tasks(self) -> list[SimTask]:
        """Runners of all workers, zombies included."""
        return [task for worker in self.workers.values() for task in worker.tasks.values()]

    def owners(self) -> dict[TaskId, list[str]]:
        """Names of the workers that run each task."""
        owners: dict[TaskId, list[str]] = {}
        for worker in self.workers.values():
            for task in worker.running:
                owners.setdefault(task, []).append(worker.name)
        return owners

    def ask(self, verb: Verb, connector: str | None = None, worker: SimWorker | None = None, **args: Any) -> Reply:
        """Ask a worker (by default the leader) and run the world until the answer is there."""
        replies: list[Reply] = []
        self.send(worker or self.leader, verb, connector, args, replies.append)
        self.run_until(lambda: bool(replies))
        return replies[0]

    def send(
        self, worker: SimWorker, verb: Verb, connector: str | None, args: Any, answer: Callable[[Reply], None]
    ) -> None:
        """Ask a worker; its answer may come from another one, two hops away at most."""

        def hop(hops: int) -> Callable[[Reply], None]:
            def take(reply: Reply) -> None:
                target = None if reply.forward_to is None else self.worker_at(reply.forward_to)
                if target is not None and hops < 2:
                    target.ask(verb, connector, args, hop(hops + 1))
                else:
                    answer(reply if reply.forward_to is None else Reply(0, 409, "moved"))

            return take

        worker.ask(verb, connector, args, hop(0))

    def hand_out(self, answers: Answers) -> None:
        """The coordinator's replies go to those who asked."""
        for name, reply in answers:
            self.workers[name].hear(reply)

    # ---------------------------------------------------------------------------------------------------- topics

    def publish_config(self, records: tuple[ConfigRecord, ...], *, transactional: bool) -> None:
        self.broker.append(records, transactional=transactional)
        for worker in self.living:
            self.at(self.latency_ms(), worker.catch_up)

    def publish_status(self, record: StatusRecord) -> None:
        self.broker.status_log.append(record)
        for worker in self.living:
            worker.deliver(StatusRecordRead(record), "status")

    # ------------------------------------------------------------------------------------------------------ time

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._scheduled, action))

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def after_step(self, worker: SimWorker, stimulus: Stimulus) -> None:
        self.checks.after_step(worker)
        if not self.calm and isinstance(stimulus, ONCE) and self.random is not None and self.random.random() < 0.05:
            self.at(self.random.choice((0, 10, 1_000)), lambda: self.repeat(worker, stimulus))

    def repeat(self, worker: SimWorker, stimulus: Stimulus) -> None:
        """7: an answer that comes once more, to a copy of the worker's core, changes nothing."""
        step = copy.deepcopy(worker.core).handle(stimulus, self.now_ms)
        assert (step.transitions, step.effects) == ([], []), f"{stimulus} came twice and changed something"

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 120_000) -> None:
        deadline_ms = self.now_ms + limit_ms
        while not condition():
            assert self._events, "nothing will happen any more"
            at_ms, _, action = heapq.heappop(self._events)
            assert at_ms <= deadline_ms, self.story()
            self.now_ms = at_ms
            action()

    def run_for(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._events)
            action()
        self.now_ms = end_ms

    def settle(self, limit_ms: int = 60_000) -> None:
        """Run until every living worker is settled in one generation, everything runs once, and it stays so."""
        deadline_ms = self.now_ms + limit_ms
        while True:
            self.run_until(lambda: self.unsettled() is None, deadline_ms - self.now_ms)
            before = self.broker.next_offset, self.broker.coordinator.generation
            self.run_for(500)
            if self.unsettled() is None and before == (self.broker.next_offset, self.broker.coordinator.generation):
                return

    def unsettled(self) -> str | None:
        """What is not as it should be in the end, None when all is well."""
        views = [worker.core.context for worker in self.living]
        if not all(view.group.settled for view in views):
            return "a worker is not settled"
        if {view.group.generation for view in views} != {self.broker.coordinator.generation}:
            return "workers are in different generations"
        truth = self.broker.config
        wanted = {task: 1 for connector in truth.connectors() for task in truth.tasks(connector)}
        if {task: len(names) for task, names in self.owners().items()} != wanted:
            return f"tasks do not run as configured: {self.owners()}"
        if sorted(c for view in views for c in view.group.work.connectors) != list(truth.connectors()):
            return "connectors are not assigned once each"
        return self.wrong_tasks() or self.wrong_status()

    def wrong_tasks(self) -> str | None:
        """Tasks that were not made from their connector's configuration, or do not run with theirs."""
        truth = self.broker.config
        for connector in truth.connectors():
            config = truth.connector_config(connector) or {}
            made_from = {properties["set"] for properties in truth.all_task_configs(connector).values()}
            if truth.target_state(connector) is TargetState.STARTED and made_from != {str(config)}:
                return f"{connector} has tasks of an older configuration"
        for task in self.all_tasks():
            if task.running and not task.stopping and task.order.task_config != truth.task_config(task.order.task):
                return f"{task.order.task} runs with an older configuration"
        return None

    def wrong_status(self) -> str | None:
        """A status that is missing, wrong or left over, None when all are right; for worlds where nothing fails."""
        truth, statuses = self.broker.config, StatusLog()
        for record in self.broker.status_log:
            statuses.apply(record)
        shown_connectors = {*statuses.connectors(), *statuses.topic_connectors()}
        if (left_over := sorted(shown_connectors - set(truth.connectors()))) != []:
            return f"statuses are left over: {left_over}"
        for connector in truth.connectors():
            of_connector, of_task = SHOWN[truth.target_state(connector) or TargetState.STARTED]
            shown = statuses.connector_status(connector)
            if shown is None or shown.state is not of_connector:
                return f"{connector} shows {shown}"
            of_tasks = {task: status.state for task, status in statuses.task_statuses(connector).items()}
            if of_tasks != dict.fromkeys(truth.tasks(connector), of_task):
                return f"tasks of {connector} show {of_tasks}"
        return None

    def story(self) -> str:
        """The whole history, for a failed assertion."""
        lines = [
            f"{at_ms - START_MS:>7} {name} {t.kind.value} {t.connector or ''}"
            f"{'' if t.task is None else '-' + str(t.task)} {t.cause} {dict(t.data)}"
            for at_ms, name, t in self.history
        ]
        return "\n".join([*lines, f"now {self.now_ms - START_MS}: {self.unsettled()}"])

    def _tick(self) -> None:
        self.broker.expire_transactions(self.now_ms)
        self.hand_out(self.broker.coordinator.expire())
        for task in self.all_tasks():
            task.try_to_commit()
        self.at(100, self._tick)
