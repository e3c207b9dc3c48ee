"""Metrics of one worker, with Kafka Connect's names, in Prometheus's text format.

Decides what each name means here. Facts come from four places: transitions (counted as they pass, one or two for a
slice, never for a record), the live numbers of the tasks, the worker's place in the group, and its requests there. A
name is made from Kafka Connect's group and attribute as the usual rules of the JMX exporter make it:
`source-record-poll-total` of `source-task-metrics` is `kafka_connect_source_task_source_record_poll_total`. Attributes
that are rates are left to Prometheus's `rate()` of the totals; averages and maxima are since the start of the task or
worker. What begins with `connectx_` is no metric of Kafka Connect. Mirrors ConnectMetricsRegistry. Left out beside
rates: metrics that plugins register (KIP-877: plugins here have no such call), and the tag client-id (Prometheus's
`instance` names the worker).
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from connectx.core.replies import Expanded
from connectx.kafka.group import GroupRequests
from connectx.model import payloads
from connectx.model.clock import Clock
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.states import State
from connectx.model.summary import Summary
from connectx.runtime import metric_names
from connectx.runtime.tasks.plugin_names import TaskPlugins

Subject = tuple[str, int | None]
"""A task, or (None) the connector itself."""

_BEGUN: Final = (State.RUNNING, State.PAUSED)
_PREFIX: Final = "kafka_connect_"
_OF_WORKER: Final = (EventKind.LEADERSHIP_FENCED, EventKind.MEMBER_LOST)


class _Spans:
    """How long a task was in each state."""

    def __init__(self, begin_ms: int) -> None:
        self._begin_ms = self._since_ms = begin_ms
        self._state: State | None = None
        self._spent_ms: Counter[State | None] = Counter()

    def turn(self, state: State, now_ms: int) -> None:
        """It is in another state from now on."""
        self._spent_ms[self._state] += now_ms - self._since_ms
        self._state, self._since_ms = state, now_ms

    def share(self, state: State, now_ms: int) -> float:
        """Part of its time that it was in a state, 0 to 1."""
        spent_ms = self._spent_ms[state] + (now_ms - self._since_ms if self._state is state else 0)
        return spent_ms / (now_ms - self._begin_ms) if now_ms > self._begin_ms else float(self._state is state)


class WorkerMetrics(Collector):
    """Counts what happens in one worker; `exposition` shows it."""

    def __init__(
        self,
        view: Callable[[], Mapping[str, Any]],
        task_metrics: Callable[[], Mapping[TaskId, Mapping[str, object]]],
        heartbeat_ms: Callable[[], int | None],
        clock: Clock,
        requests: GroupRequests,
    ) -> None:
        self._requests = requests
        self._view = view
        self._task_metrics = task_metrics
        self._heartbeat_ms = heartbeat_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[tuple[EventKind, str, str]] = Counter()
        self._records: Counter[tuple[EventKind, str, str]] = Counter()
        self._states: dict[Subject, State] = {}
        self._spans: dict[Subject, _Spans] = {}
        self._begun: set[tuple[Subject, object]] = set()
        self._startups: Counter[str] = Counter()
        self._transactions: dict[TaskId, Summary] = {}
        self._rebalances = Summary()
        self._rebalanced_ms: int | None = None
        self._duplicated = 0
        self._lost = 0
        self._connectors: Mapping[str, Expanded] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def observe(self, transition: Transition) -> None:
        """Count one transition of this worker; from any thread. Waits only for a count or a page."""
        with self._lock:
            if transition.kind in metric_names.COUNTED:
                key = (
                    transition.kind,
                    transition.connector or "",
                    "" if transition.task is None else str(transition.task),
                )
                self._counts[key] += 1
                self._records[key] += getattr(transition.payload, "records", None) or 0
            match transition.payload:
                case payloads.TaskState(state, _, instance):
                    self._on_state(transition, state, instance)
                case payloads.ConnectorState(state):
                    self._on_state(transition, state, None)
                case payloads.TaskEnded(instance):
                    self._on_ended((transition.connector or "", transition.task), instance)
                case payloads.TransactionCommitted(records):
                    task = TaskId(transition.connector or "", transition.task or 0)
                    self._transactions.setdefault(task, Summary()).add(records)
                case payloads.RebalanceCompleted(took_ms=took_ms):
                    self._rebalanced_ms = self._clock()
                    self._rebalances.add(took_ms or 0)
                case payloads.AssignmentComputed() as computed:
                    self._on_assignment(computed)
                case _:  # has no metric but its count
                    pass

    def exposition(self, connectors: Mapping[str, Expanded]) -> bytes:
        """All metrics as text; `connectors` is what `GET /connectors?expand=info&expand=status` shows."""
        with self._lock:
            self._connectors = connectors
            return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client, within `exposition`."""
        yield from self._of_worker()
        yield from self._of_connectors()
        yield from self._of_group()
        yield from self._of_tasks()
        yield from self._of_plugins()
        yield from self._of_events()

    def _on_state(self, transition: Transition, state: State, instance: int | None) -> None:
        subject = transition.connector or "", transition.task
        begun = subject, instance
        kind = "connector" if transition.task is None else "task"
        if state in _BEGUN and begun not in self._begun:
            self._begun.add(begun)
            self._startups[f"{kind}-startup-success-total"] += 1
        elif state is State.FAILED and begun not in self._begun:
            self._startups[f"{kind}-startup-failure-total"] += 1
        if state in (State.UNASSIGNED, State.STOPPED, State.RESTARTING, State.FAILED):
            self._begun = {other for other in self._begun if other[0] != subject}
        if state is State.UNASSIGNED:
            self._states.pop(subject, None)
        else:
            self._states[subject] = state
        if state not in _BEGUN:  # its last report comes after its end
            self._spans.pop(subject, None)
        elif transition.task is not None:
            self._spans.setdefault(subject, _Spans(self._clock())).turn(state, self._clock())

    def _on_ended(self, subject: Subject, instance: object) -> None:
        if any(other == subject and number != instance for other, number in self._begun):
            return  # a zombie has ended: its successor runs here, too
        if self._states.get(subject) is not State.FAILED:
            self._states.pop(subject, None)
        self._spans.pop(subject, None)

    def _on_assignment(self, computed: payloads.AssignmentComputed) -> None:
        """The leader takes what two members claimed from both, so it is in the revoked work of both."""
        revoked = Counter(name for member in computed.members.values() for name in member.revoked)
        self._duplicated += sum(1 for holders in revoked.values() if holders > 1)
        self._lost = len(computed.lost)

    def _of_worker(self) -> Iterator[Metric]:
        view = self._view()
        counts: Counter[str] = Counter(self._startups)
        for kind in ("connector", "task"):
            succeeded, failed = counts[f"{kind}-startup-success-total"], counts[f"{kind}-startup-failure-total"]
            counts[f"{kind}-startup-attempts-total"] = succeeded + failed
        for name, described in metric_names.WORKER_COUNTS.items():
            yield _total(f"worker_{name}", described, counts[name])
        for kind, what in itertools.product(("connector", "task"), ("success", "failure")):
            attempts, number = counts[f"{kind}-startup-attempts-total"], counts[f"{kind}-startup-{what}-total"]
            name = f"worker_{kind}-startup-{what}-percentage"
            yield _gauge(name, f"Share of the starts of {kind}s, 0 to 1.", number / attempts if attempts else 0)
        yield _gauge("worker_connector-count", "Connectors that this worker runs.", len(view.get("connectors", ())))
        yield _gauge("worker_task-count", "Tasks that this worker runs.", len(view.get("tasks", ())))
        states = Counter((connector, state) for (connector, task), state in self._shown() if task is not None)
        for state in metric_names.TASK_STATES:
            name = f"worker_connector-{state.lower()}-task-count"
            family = GaugeMetricFamily(
                _name(name), f"Tasks of a connector here that are {state}.", labels=["connector"]
            )
            for connector in sorted({connector for connector, _ in states}):
                family.add_metric([connector], states[connector, State(state)] if state != "DESTROYED" else 0)
            yield family
        family = GaugeMetricFamily(_name("worker_connector-total-task-count"), "Its tasks here.", labels=["connector"])
        for connector in sorted({connector for connector, _ in states}):
            family.add_metric([connector], sum(n for (name, _), n in states.items() if name == connector))
        yield family

    def _of_connectors(self) -> Iterator[Metric]:
        """Texts are labels of a gauge that is 1."""
        connector = GaugeMetricFamily(_name("connector_status"), "1 for its state.", labels=["connector", "status"])
        task = GaugeMetricFamily(
            _name("connector-task_status"), "1 for its state here.", labels=["connector", "task", "status"]
        )
        about = GaugeMetricFamily(
            _name("connector_info"),
            "1; class, type and version.",
            labels=["connector", "connector_class", "connector_type", "connector_version"],
        )
        for (name, number), state in self._shown():
            if number is not None:
                task.add_metric([name, str(number), state.lower()], 1)
                continue
            connector.add_metric([name, state.lower()], 1)
            shown = self._connectors.get(name, {})
            info, status = shown.get("info"), shown.get("status")
            config = (info and info["config"]) or {}
            version = status and status["connector"].get("version")
            kind = info["type"] if info else ""
            about.add_metric([name, config.get("connector.class") or "", kind, version or ""], 1)
        yield from (connector, task, about)

    def _of_group(self) -> Iterator[Metric]:
        view = self._view()
        group = "worker-rebalance_"
        labels = [("leader-name", view.get("leader_url")), ("connect-protocol", view.get("protocol"))]
        for name, text in labels:
            family = GaugeMetricFamily(_name(group + name), "1 for what it is.", labels=[name.replace("-", "_")])
            family.add_metric([text or ""], 1)
            yield family
        yield _gauge(group + "epoch", "Generation of the group.", view.get("generation") or 0)
        yield _total(group + "completed-rebalances-total", "Rebalances that have ended.", self._rebalances.count)
        yield _gauge(group + "rebalancing", "1 while a rebalance is under way.", view.get("state") == "joining")
        yield _gauge(group + "rebalance-max-time-ms", "The longest rebalance.", self._rebalances.largest)
        yield _gauge(group + "rebalance-avg-time-ms", "Rebalances on average.", self._rebalances.average)
        since = float("inf") if self._rebalanced_ms is None else self._clock() - self._rebalanced_ms
        yield _gauge(group + "time-since-last-rebalance-ms", "Since the last one ended.", since)
        yield from self._of_coordinator()
        yield _gauge("coordinator_assigned-connectors", "Assigned connectors.", len(view.get("connectors", ())))
        yield _gauge("coordinator_assigned-tasks", "Assigned tasks.", len(view.get("tasks", ())))

    def _of_coordinator(self) -> Iterator[Metric]:
        """Metrics that Kafka's clients report for any group."""
        group, now_ms = "coordinator_", self._clock()
        heartbeat_ms, rebalanced_ms = self._heartbeat_ms(), self._rebalanced_ms
        if heartbeat_ms is not None:
            ago_s = max(0, now_ms - heartbeat_ms) / 1000
            yield _gauge(group + "last-heartbeat-seconds-ago", "Since a heartbeat was answered.", ago_s)
        if rebalanced_ms is not None:
            ago_s = (now_ms - rebalanced_ms) / 1000
            yield _gauge(group + "last-rebalance-seconds-ago", "Since a rebalance ended.", ago_s)
        yield _total(group + "rebalance-total", "Rebalances that have ended.", self._rebalances.count)
        yield _total(group + "rebalance-latency-total", "Time that rebalances took, ms.", self._rebalances.total)
        yield _gauge(group + "rebalance-latency-max", "The longest rebalance, ms.", self._rebalances.largest)
        yield _gauge(group + "rebalance-latency-avg", "Rebalances on average, ms.", self._rebalances.average)
        requests = self._requests
        failed = "Joins and syncs that failed or were refused."
        yield _total(group + "failed-rebalance-total", failed, requests.failed_rebalances)
        yield _total(group + "heartbeat-total", "Heartbeats that were answered.", requests.heartbeats.count)
        slowest = requests.heartbeats.largest
        yield _gauge(group + "heartbeat-response-time-max", "The longest wait for an answer, ms.", slowest)
        for name, times in (("join", requests.joins), ("sync", requests.syncs)):
            yield _total(f"{group}{name}-total", f"{name.title()}s of the group that succeeded.", times.count)
            yield _gauge(f"{group}{name}-time-max", "The longest, ms.", times.largest)
            yield _gauge(f"{group}{name}-time-avg", "On average, ms.", times.average)

    def _of_tasks(self) -> Iterator[Metric]:
        counted, assigned = sorted(self._task_metrics().items()), self._assigned()
        tasks = [(task, metrics) for task, metrics in counted if not metrics.get("ended")]
        known = [(task, metrics) for task, metrics in counted if not metrics.get("ended") or _subject(task) in assigned]
        sources = [(task, metrics) for task, metrics in tasks if "slices" in metrics]
        sinks = [(task, metrics) for task, metrics in tasks if "positions" in metrics]
        tables = (
            ([*sources, *sinks], metric_names.TASK_SPECS),
            (sources, metric_names.SOURCE_SPECS),
            (sinks, metric_names.SINK_SPECS),
            (known, metric_names.ERROR_SPECS),
        )
        for chosen, table in tables:
            for name, described, value in table:
                yield _of_each(name, described, ((_id(task), value(metrics)) for task, metrics in chosen))
        for name, state in (("running", State.RUNNING), ("pause", State.PAUSED)):
            spans = ((subject, spans.share(state, self._clock())) for subject, spans in sorted(self._spans.items()))
            ratios = (((connector, str(number)), share) for (connector, number), share in spans)
            yield _of_each(f"connector-task_{name}-ratio", f"Share of its time in which it was {state}.", ratios)
        sizes = sorted(self._transactions.items())
        size = "source-task_transaction-size-"
        yield _of_each(size + "min", "The smallest transaction.", ((_id(task), one.smallest) for task, one in sizes))
        yield _of_each(size + "max", "The largest transaction.", ((_id(task), one.largest) for task, one in sizes))
        yield _of_each(size + "avg", "Transactions on average.", ((_id(task), one.average) for task, one in sizes))
        zombies = [task for task, _ in tasks if _subject(task) not in assigned]
        yield _gauge("connectx_zombie_tasks", "Tasks whose threads run and which are not assigned here.", len(zombies))

    def _of_plugins(self) -> Iterator[Metric]:
        """Classes and versions of what runs here, as labels of a gauge that is 1 (Kafka Connect 4.1)."""
        labels = [text.replace("-", "_") for text in metric_names.PLUGIN_TEXTS]
        task_info = GaugeMetricFamily(
            _name("connector-task_info"),
            "1; classes and versions of its plugins.",
            labels=["connector", "task", *labels],
        )
        steps = {
            kind: GaugeMetricFamily(
                _name(f"connector-{kind}_info"),
                "1; class and version.",
                labels=["connector", "task", kind, f"{kind}_class", f"{kind}_version"],
            )
            for kind in ("transform", "predicate")
        }
        for task, metrics in sorted(self._task_metrics().items()):
            if isinstance(plugins := metrics.get("plugins"), TaskPlugins):
                task_info.add_metric([*_id(task), *(plugins.texts[text] for text in metric_names.PLUGIN_TEXTS)], 1)
                for kind, named in (("transform", plugins.transforms), ("predicate", plugins.predicates)):
                    for texts in named:
                        steps[kind].add_metric([*_id(task), *texts], 1)
        yield from (task_info, *steps.values())

    def _of_events(self) -> Iterator[Metric]:
        for kind, (name, described, of_records) in metric_names.COUNTED.items():
            counts = self._records if of_records else self._counts
            found = {key: count for key, count in counts.items() if key[0] is kind}
            if kind in _OF_WORKER:
                yield _total(name, described, sum(found.values()))
            else:
                ids = (((connector, task), count) for (_, connector, task), count in sorted(found.items()))
                yield _of_each(name, described, ids)
        duplicated = "Connectors and tasks that two members claimed, as the leader found."
        yield _total("connectx_duplicated_assignments_total", duplicated, self._duplicated)
        yield _gauge(
            "connectx_lost_work", "Connectors and tasks of lost workers, as the leader found last.", self._lost
        )

    def _shown(self) -> list[tuple[Subject, State]]:
        """States of what runs here, and of what failed and is still assigned here."""
        assigned = self._assigned()
        states = self._states.items()
        shown = [(subject, state) for subject, state in states if subject in assigned or state in _BEGUN]
        return sorted(shown, key=lambda entry: (entry[0][0], -1 if entry[0][1] is None else entry[0][1]))

    def _assigned(self) -> set[Subject]:
        view = self._view()
        tasks: set[Subject] = {(task["connector"], task["task"]) for task in view.get("tasks", ())}
        return tasks | {(connector, None) for connector in view.get("connectors", ())}


def _name(name: str) -> str:
    full = name if name.startswith("connectx_") else _PREFIX + name
    return full.replace("-", "_")


def _subject(task: TaskId) -> Subject:
    return task.connector, task.task


def _id(task: TaskId) -> tuple[str, str]:
    return task.connector, str(task.task)


def _of_each(name: str, described: str, numbers: Iterable[tuple[tuple[str, str], float | None]]) -> Metric:
    """A family with a number for each task for which it is known; a counter if it is a total."""
    is_total = "total-" in name or name.endswith(("-total", "_total"))
    make = CounterMetricFamily if is_total else GaugeMetricFamily
    family = make(_name(name).removesuffix("_total"), described, labels=["connector", "task"])
    for labels, number in numbers:
        if number is not None:
            family.add_metric(labels, number)
    return family


def _gauge(name: str, described: str, value: float) -> Metric:
    return GaugeMetricFamily(_name(name), described, value=float(value))


def _total(name: str, described: str, value: float) -> Metric:
    return CounterMetricFamily(_name(name).removesuffix("_total"), described, value=value)
