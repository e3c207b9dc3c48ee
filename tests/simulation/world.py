"""Whole clusters of pure cores in virtual time: workers, a model broker, latencies and faults.

Everything happens in the order of virtual time; ties go by the order of scheduling, so a run is the same every time.
Without a chooser there are no faults but those that a test asks for, and every message takes 2 ms.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from connectx.core.lanes import BulkMode
from connectx.core.messages import (
    Done,
    Forwarded,
    Refused,
    Reply,
    ShutdownRequested,
    StatusRecordRead,
    Stimulus,
    WorkerStarted,
)
from connectx.core.producer import messages as msg
from connectx.core.settings import CoreSettings
from connectx.core.verbs import Verb
from connectx.model.config_records import ConfigRecord
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.states import ConnectorType
from connectx.model.status_records import StatusRecord
from tests.simulation import producer_requests
from tests.simulation.broker import CONFIG_TOPIC, Broker
from tests.simulation.broker_coordinator import Answers
from tests.simulation.checks import ONCE, Checks
from tests.simulation.chooser import Chooser, Replay, happens, one_of
from tests.simulation.connections import DELIVERIES, Connection, Packet
from tests.simulation.cores import RecordedCores
from tests.simulation.invariants import broken
from tests.simulation.peace import unsettled
from tests.simulation.sim_consumer import SimConsumer
from tests.simulation.sim_leader import CLUSTER_ID
from tests.simulation.sim_sink import FEED, TOPICS, Target
from tests.simulation.sim_source import OFFSETS_TOPIC, PARTITIONS, TOPIC_PARTITIONS, topic_of
from tests.simulation.sim_task import SimTask
from tests.simulation.sim_worker import SimWorker
from tests.support.histories import transition
from tests.support.worker_script import worker_of

LATENCY_MS = 2
MOST_EVENTS = 40_000  # a run has about 3,000
START_MS = 1_000_000
NAMES = ("a", "b-1", "c")  # connectors that there may be
EXISTING = {CONFIG_TOPIC: 1, OFFSETS_TOPIC: 1} | {topic_of(name): TOPIC_PARTITIONS for name in NAMES} | TOPICS
STOP_MS = (50, 400, 3_000, 7_000)  # the last one is longer than any graceful time


def connector_type_of(config: Mapping[str, str | None]) -> ConnectorType:
    """The worlds' connectors are sinks when their class says so."""
    return ConnectorType.SINK if "Sink" in (config.get("connector.class") or "") else ConnectorType.SOURCE


class World:
    """N workers and a broker in virtual time, starting at 1,000,000 ms.

    Shares of what goes wrong are per mille: `slow` messages, `lossy` answers, requests that are `stuck` until their
    connection is cut, `slow_stops` of connectors and tasks, `slow_data` polls and puts, `wild_timers` that come early
    or late, `repeats` of answers to a core. `protocol` is that of transactions.
    """

    recording_bytes = 0  # of each core; `tests.simulation.trails` sets it

    def __init__(self, workers: int, chooser: Chooser | None = None, protocol: int = 2, **settings: Any) -> None:
        self.now_ms = START_MS
        self.cores = RecordedCores(self.recording_bytes)
        self.chooser: Chooser = chooser or Replay(())
        self.calm = chooser is None
        self.slow = self.lossy = self.stuck = self.slow_stops = self.slow_data = self.wild_timers = self.repeats = 0
        self.torn_writes = self.failing_puts = 0
        self.boundary_ms = 0  # transaction.boundary=interval when it is not 0
        self.transaction_timeout_ms = 60_000
        self.bulk_mode = BulkMode.NEVER
        self.spark_cores = 8
        self.at_least_once_sinks = False
        self.source_bulk = BulkMode.NEVER
        self.executors_reach_kafka = True
        self.slices_have_tables = False  # records of a slice are in two tables, which are sent one after the other
        self.broker = Broker()
        self.broker.transactions.transaction_version = protocol
        for topic, partitions in EXISTING.items():
            for partition in range(partitions):
                self.broker.log(topic, partition)
        self.broker_down = False
        self.targets: dict[str, Target] = {}
        self.produced: dict[str, list[int]] = {name: [0] * PARTITIONS for name in NAMES}
        self.clients: dict[str, SimConsumer] = {}
        self.checks = Checks(self)
        self.fenced: list[tuple[str, ...]] = []
        self.history: list[tuple[int, str | None, Transition]] = []
        self.workers: dict[str, SimWorker] = {}
        short = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500, "scheduled_rebalance_max_delay_ms": 3_000}
        self.config = worker_of(**(short | settings))
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._scheduled = self.happened = 0
        self._requests = 0
        for _ in range(workers):
            self.add_worker()
        self._tick()

    def happens(self, per_mille: int) -> bool:
        return not self.calm and happens(self.chooser, per_mille)

    def latency_ms(self) -> int:
        return one_of(self.chooser, (20, 200, 1_500)) if self.happens(self.slow) else LATENCY_MS

    def reply_ms(self) -> int:
        """A reply on its way; also what lies between two requests of one transaction."""
        return one_of(self.chooser, (20, 200, 1_500)) if self.happens(self.slow) else 0

    def stop_ms(self) -> int:
        return one_of(self.chooser, STOP_MS) if self.happens(self.slow_stops) else LATENCY_MS

    def poll_ms(self) -> int:
        """A poll of a source; a slow one may be longer than any graceful time."""
        return one_of(self.chooser, (500, 3_000, 9_000)) if self.happens(self.slow_data) else 20

    def put_ms(self) -> int:
        return one_of(self.chooser, (500, 3_000, 9_000)) if self.happens(self.slow_data) else 5

    def job_ms(self) -> int:
        """How long executors take."""
        return one_of(self.chooser, (500, 3_000, 20_000)) if self.happens(self.slow_data) else 50

    def timer_ms(self, delay_ms: int) -> int:
        """When a timer really fires: clocks differ, and threads are late."""
        if delay_ms > 0 and self.happens(self.wild_timers):
            return one_of(self.chooser, (delay_ms + 5, delay_ms + 700, delay_ms * 9 // 10, delay_ms + 4_000))
        return max(0, delay_ms)

    def loses_reply(self) -> bool:
        return self.happens(self.lossy)

    def is_stuck(self) -> bool:
        return self.happens(self.stuck)

    def deliveries(self) -> int:
        """How often a request arrives whose connection was cut."""
        return 0 if self.calm else one_of(self.chooser, DELIVERIES)

    def markers_ms(self) -> int:
        """Until the markers of a transaction that has ended are written."""
        return one_of(self.chooser, (15, 200, 1_500)) if self.happens(self.slow) else 1

    def lands(self) -> bool:
        """True when what was sent by somebody who is gone still arrives."""
        return not self.calm and self.chooser.pick(2) == 1

    def fails_put(self) -> bool:
        return self.happens(self.failing_puts)

    def torn(self, records: int) -> int:
        """How many records of an ordinary write arrive."""
        if records > 1 and self.happens(self.torn_writes):
            return one_of(self.chooser, range(1, records))
        return records

    @property
    def exactly_once(self) -> bool:
        """True when source tasks use transactions."""
        return self.config.exactly_once_source_enabled

    def is_sink(self, config: Mapping[str, str | None]) -> bool:
        return connector_type_of(config) is ConnectorType.SINK

    def is_exactly_once_sink(self, connector: str) -> bool:
        return not self.at_least_once_sinks

    def made(self, connector: str, partition: int) -> int:
        """How many records a source partition has."""
        return self.produced[connector][partition]

    def produce(self, records: int = 3) -> None:
        """All source partitions and the feed topic grow."""
        for name in NAMES:
            self.produced[name] = [made + records for made in self.produced[name]]
        for partition in range(TOPICS[FEED]):
            self.broker.append(FEED, partition, range(records))
        self.data_came()

    def data_came(self) -> None:
        """Whoever waits for records looks for them."""
        for task in self.all_tasks():
            if task.busy:
                task.records_came()

    def note(self, worker: SimWorker | None, transition: Transition) -> None:
        """A line of the history."""
        if worker is not None:
            worker.history.append(transition)
        self.checks.on_transition(transition)
        self.history.append((self.now_ms, worker.name if worker else None, transition))

    def note_fault(self, fault: str, worker: SimWorker | None = None, **data: Any) -> None:
        self.note(worker, transition(EventKind.FAULT_INJECTED, data={"fault": fault, **data}))

    def add_worker(self) -> SimWorker:
        number = len(self.workers) + 1
        core_settings = CoreSettings(
            url=f"http://127.0.0.1:{8080 + number}/",
            worker=self.config,
            connector_type_of=connector_type_of,
            check_signature=lambda *_: None,
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
        worker.cut_all()
        worker.abandon_producers()
        for task in worker.tasks.values():
            task.dead = True
        worker.tasks.clear()
        waiting, worker.waiting = worker.waiting, {}
        for request_id, answer in waiting.items():
            answer(Refused(request_id, 503, "connection reset"))

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

    def ask(
        self, verb: Callable[..., Verb], *args: Any, worker: SimWorker | None = None, **named: Any
    ) -> Done | Refused:
        """Ask a worker (by default the leader) and run the world until the answer is there."""
        replies: list[Done | Refused] = []
        self.send(worker or self.leader, verb(*args, **named), replies.append)
        self.run_until(lambda: bool(replies))
        return replies[0]

    def send(self, worker: SimWorker, verb: Verb, answer: Callable[[Done | Refused], None]) -> None:
        """Ask a worker; its answer may come from another one, two hops away at most."""

        def hop(hops: int) -> Callable[[Reply], None]:
            def take(reply: Reply) -> None:
                target = self.worker_at(reply.worker_url) if isinstance(reply, Forwarded) else None
                if target is not None and hops < 2:
                    target.ask(verb, hop(hops + 1))
                else:
                    answer(Refused(0, 409, "moved") if isinstance(reply, Forwarded) else reply)

            return take

        worker.ask(verb, hop(0))

    def arrive(self, connection: Connection, packet: Packet, *, is_late: bool) -> msg.Answer:
        """A producer's request reaches Kafka, on time or late."""
        self.broker.set_time(self.now_ms)
        arrival = producer_requests.arrive(self.broker.transactions, connection, packet, is_late=is_late)
        if arrival.is_commit:
            self.checks.on_commit(connection.client)
        if (name := arrival.ended) is not None:
            self.at(self.markers_ms(), lambda: self.write_markers(name))
        elif isinstance(packet.request, msg.Produce) and packet.request.transactional_id is None:
            self.data_came()
        return arrival.answer

    def write_markers(self, transactional_id: str) -> None:
        """What a transaction has written can be read, or never will be."""
        if not self.broker.transactions.write_markers(transactional_id):
            return
        if transactional_id == CLUSTER_ID:
            self.config_moved()
        else:
            self.checks.data.look()
            self.data_came()

    def hand_out(self, answers: Answers) -> None:
        """The coordinator's replies go to those who asked."""
        for name, reply in answers:
            client = self.workers.get(name) or self.clients[name]
            client.hear(reply)

    def publish_config(self, records: tuple[ConfigRecord, ...]) -> None:
        self.broker.append(CONFIG_TOPIC, 0, records)
        self.config_moved()

    def config_moved(self) -> None:
        """There may be more to read in the config topic."""
        for worker in self.living:
            self.at(self.latency_ms(), worker.catch_up)

    def publish_status(self, record: StatusRecord) -> None:
        self.broker.status_log.append(record)
        for worker in self.living:
            worker.deliver(StatusRecordRead(record), "status")

    def at(self, delay_ms: int, action: Callable[[], object]) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._scheduled, action))

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def after_step(self, worker: SimWorker, stimulus: Stimulus) -> None:
        self.checks.after_step(worker)
        if isinstance(stimulus, ONCE) and self.happens(self.repeats):
            self.at(one_of(self.chooser, (0, 10, 1_000)), lambda: self.repeat(worker, stimulus))

    def repeat(self, worker: SimWorker, stimulus: Stimulus) -> None:
        """7: an answer that comes once more, to a copy of the worker's core, changes nothing."""
        step = copy.deepcopy(worker.core).handle(stimulus, self.now_ms)
        if step.transitions or step.effects:
            broken(7, f"{stimulus} came twice and changed something: {step}")

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 120_000, look_ms: int = 0) -> None:
        """Until it holds, looked at after each event or every `look_ms`."""
        deadline_ms = self.now_ms + limit_ms
        while not condition():
            if self.now_ms > deadline_ms:
                broken(9, self.unsettled() or "what was waited for did not come")
            if look_ms:
                self.run_for(look_ms)
            else:
                self._next()

    def run_for(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self._next()
        self.now_ms = end_ms

    def _next(self) -> None:
        """Let the next event happen."""
        self.now_ms, _, action = heapq.heappop(self._events)
        self.happened += 1
        if self.happened > MOST_EVENTS:
            broken(9, "there is no end of events")
        action()

    def settle(self, limit_ms: int = 60_000) -> None:
        """Run until every living worker is settled in one generation, everything runs once, and it stays so."""
        deadline_ms = self.now_ms + limit_ms
        while True:
            self.run_until(lambda: self.unsettled() is None, deadline_ms - self.now_ms, 100)
            before = self.broker.next_offset, self.broker.coordinator.generation
            self.run_for(500)
            if self.unsettled() is None and before == (self.broker.next_offset, self.broker.coordinator.generation):
                return

    def unsettled(self) -> str | None:
        """What is not as it should be in the end, None when all is well."""
        return unsettled(self)

    def story(self) -> str:
        """The whole history, for a failed assertion."""
        lines = [
            f"{at_ms - START_MS:>7} {name} {t.kind.value} {t.connector or ''}"
            f"{'' if t.task is None else '-' + str(t.task)} {t.cause} {dict(t.data)}"
            for at_ms, name, t in self.history
        ]
        return "\n".join([*lines, f"now {self.now_ms - START_MS}: {self.unsettled()}"])

    def _tick(self) -> None:
        self.broker.set_time(self.now_ms)
        for transactional_id in self.broker.transactions.expire():
            self.at(self.markers_ms(), partial(self.write_markers, transactional_id))
        for group in list(self.broker.groups.values()):
            self.hand_out(group.expire())
        for worker in self.living:
            worker.catch_up()
        self.at(100, self._tick)
