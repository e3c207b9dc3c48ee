"""The steps of the demo: what it starts, when it injects faults, and what it writes at the end.

Everything it starts lives within one block and one temporary folder, and ends with them, whatever happens.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from connectx.demo.database import database
from connectx.demo.flights import TABLE, TOPIC, source_config, unpack
from connectx.demo.interrupts import uninterrupted
from connectx.demo.measures import Measures, Reader, measure_file, measure_table, measure_topic
from connectx.demo.screen import Screen
from connectx.demo.verdict import Kill, Outcome, judge
from connectx.demo.watch import SINK, SOURCE, SOURCE_TASK, Watch
from connectx.errors.base import ConnectxError
from connectx.errors.demo import DemoError
from connectx.history.folds.failovers import failovers
from connectx.history.render.report import report_page, save_page, write_report
from connectx.history.sentences.stories import stories
from connectx.history.wording import duration, plural
from connectx.model.worker_keys import WorkerKeys
from connectx.views import gist

if TYPE_CHECKING:
    from connectx.api.cluster import Cluster

WORKERS = 3
_KILL_SOURCE_AT, _ADD_WORKER_AT, _KILL_SINK_AT = 0.20, 0.40, 0.55
_STUCK_S = 60.0
_LOOK_S = 0.5


def run(screen: Screen, report: Path, rows: int | None = None) -> Outcome:
    """Run the demo and write its report.

    Raises:
        ConnectxError: something could not be started, or a task failed for another reason than the demo's faults.
    """
    begin, begin_ms = time.monotonic(), time.time_ns() // 1_000_000
    require_writable(report)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(temporary_folder()))
        screen.report("Unpacking the flights and measuring the file")
        path = unpack(folder, rows)
        in_file = measure_file(path)
        screen.report("Starting PostgreSQL")
        uri = stack.enter_context(database(folder))
        cluster = stack.enter_context(_cluster(screen))
        screen.report(_settings(cluster))
        flow = _Flow(cluster, screen, uri, stack.enter_context(Reader(uri)), path, in_file)
        try:
            flow.create()
            flow.watch()
        except ConnectxError:
            write_report(cluster.events, report, title="connectx demo: flights, ended early", samples=cluster.samples())
            raise
        screen.report("Measuring the topic and the table from outside")
        in_topic = measure_topic(cluster.bootstrap_servers, TOPIC)
        flow.await_rows(in_topic.rows)
        in_table = measure_table(uri, TABLE)
        events = list(cluster.events)
        outcome = judge(events, in_file, in_topic, in_table, flow.kills, time.monotonic() - begin)
        verdict = outcome.verdict()
        screen.finish(verdict, stories(events), begin_ms)
        page = report_page(
            events,
            title="connectx demo: flights",
            lead=f"{in_file.rows:,} flights from a CSV file through Kafka into PostgreSQL, while workers were killed.",
            shown=_shown(cluster, outcome),
            verdict=verdict,
            samples=cluster.samples(),
            footer="Written by `connectx demo`. Rows are workers, bars are tasks; hover over a shape for its sentence.",
        )
        save_page(page, report)
    return outcome


def require_writable(report: Path) -> None:
    """Raise an error now, not after all measurements, if the report cannot be written."""
    if (
        not report.parent.is_dir()
        or report.is_dir()
        or not os.access(report if report.exists() else report.parent, os.W_OK)
    ):
        raise DemoError(
            f"The report cannot be written to {report}.",
            next_step="Name a file in a folder that you may write to with --report.",
        )


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder that is removed at the end, also when Ctrl-C comes then."""
    folder = tempfile.TemporaryDirectory(prefix="connectx-demo-")
    try:
        yield folder.name
    finally:
        with uninterrupted():
            folder.cleanup()


@contextmanager
def _cluster(screen: Screen) -> Iterator[Cluster]:
    from connectx.api.cluster import Cluster

    screen.report(f"Starting Kafka, Spark and {WORKERS} workers")
    cluster = Cluster(workers=WORKERS, progress=screen.progress)
    try:
        yield cluster
    finally:
        screen.report("Stopping everything")
        with uninterrupted():
            cluster.close()


def _settings(cluster: Cluster) -> str:
    config = cluster.config
    return (
        f"Settings are short so that one can watch: session.timeout.ms={config.session_timeout_ms}, "
        f"scheduled.rebalance.max.delay.ms={config.scheduled_rebalance_max_delay_ms} "
        "(Kafka Connect's defaults: 10000 and 300000)"
    )


def _shown(cluster: Cluster, outcome: Outcome) -> dict[str, str]:
    config = cluster.config
    return {
        "workers": ", ".join(worker.name for worker in cluster.workers),
        "rows": f"{outcome.file.rows:,}",
        "kills": str(len(outcome.kills)),
        "failover": ", ".join("never" if seconds is None else f"{seconds:.1f} s" for seconds in outcome.failover_s),
        "rebalances": str(outcome.rebalances),
        "old tasks shut out": str(outcome.fenced),
        WorkerKeys.session_timeout_ms.name: str(config.session_timeout_ms),
        WorkerKeys.scheduled_rebalance_max_delay_ms.name: str(config.scheduled_rebalance_max_delay_ms),
        WorkerKeys.exactly_once_source_support.name: config.exactly_once_source_support.value,
        "seconds": f"{outcome.seconds:.1f}",
    }


@dataclass(slots=True)
class _Flow:
    """Two connectors, three tasks, and what is done to them on the way."""

    cluster: Cluster
    screen: Screen
    uri: str
    reader: Reader
    path: Path
    file: Measures
    kills: list[Kill] = field(default_factory=list)
    watched: Watch = field(default_factory=Watch)
    rows_out: int = 0
    added: bool = False
    reported_moves: set[tuple[str, int]] = field(default_factory=set)

    def create(self) -> None:
        """Create both connectors and wait until they run."""
        # About 40 slices are enough to kill a worker between two of them.
        slice_bytes = max(self.path.stat().st_size // 40, 64 * 1024)
        self.cluster.create(SOURCE, {**source_config(self.path), "slice.bytes": str(slice_bytes)})
        self.cluster.create(
            SINK,
            {
                "connector.class": "PostgresSink",
                "tasks.max": "2",
                "topics": TOPIC,
                "connection.url": self.uri,
                "table.name.format": TABLE,
                "insert.mode": "insert",
            },
        )

    def watch(self) -> None:
        """Look, show and break things until every row has arrived, or nothing moves any more."""
        looked_at = moved_at = time.monotonic()
        with self.cluster.events.subscribe(since=0) as news:
            while not self._is_done():
                before = (self.rows_out, self.watched.records)
                self.watched.take(news.get(_LOOK_S))
                if self.watched.failure is not None:
                    raise DemoError(
                        f"The flow has ended: {gist(self.watched.failure, 400)}.",
                        next_step="What led to it is in the report; everything that was started is stopped.",
                    )
                self._break()
                now = time.monotonic()
                if now - looked_at >= _LOOK_S:
                    looked_at = now
                    self._look()
                if before != (self.rows_out, self.watched.records):
                    moved_at = now
                elif now - moved_at > _STUCK_S:
                    self.screen.report(f"Nothing has moved for {_STUCK_S:.0f} s; measuring what is there")
                    return

    def await_rows(self, rows: int) -> None:
        """Wait until the table has that many rows, as long as it still grows."""
        grown_at = time.monotonic()
        while self.rows_out < rows and time.monotonic() - grown_at < _STUCK_S / 4:
            before = self.rows_out
            self.rows_out = self._count()
            if self.rows_out != before:
                grown_at = time.monotonic()
            time.sleep(_LOOK_S)

    def _is_done(self) -> bool:
        return self.rows_out >= self.file.rows and self.watched.position >= self.path.stat().st_size

    def _look(self) -> None:
        self.rows_out = self._count()
        watched = self.watched
        lag = max(watched.records - self.rows_out, 0)
        more = f"{plural(watched.slices, 'slice')}, {watched.records:,} records, lag {lag:,}"
        self.screen.show(self.rows_out, self.file.rows, more)
        self._show_moves()

    def _show_moves(self) -> None:
        for failover in failovers(self.watched.events):
            for move in failover.moves:
                if (move.task, move.time_ms) not in self.reported_moves:
                    self.reported_moves.add((move.task, move.time_ms))
                    took = duration(move.time_ms - failover.time_ms)
                    self.screen.report(
                        f"{move.task} moved from {move.from_worker} to {move.to_worker}, {took} after the kill"
                    )

    def _count(self) -> int:
        return int(self.reader.query(f"SELECT count(*) FROM {TABLE}")[0][0])

    def _share(self) -> float:
        return min(max(self.watched.records, self.rows_out) / self.file.rows, 1.0)

    def _break(self) -> None:
        """Kill the source's worker, then add one, then kill a sink task's, each at its share of the flow."""
        share = self._share()
        if not self.kills:
            if share >= _KILL_SOURCE_AT and (found := self.watched.holder(SOURCE, 0)):
                self._kill(*found)
        elif not self.added:
            if share >= _ADD_WORKER_AT and self.watched.holder(SOURCE, 0):
                self.added = True
                worker = self.cluster.add_worker()
                self.screen.report(f"{worker.name} was added")
        elif (
            len(self.kills) == 1
            and share >= _KILL_SINK_AT
            and self.watched.is_settled()
            and (found := self.watched.holder(SINK, avoid=SOURCE_TASK))
        ):
            self._kill(*found)

    def _kill(self, worker: str, task: str) -> None:
        """Kill a worker that itself reports that it runs the task."""
        if task not in self.cluster.workers[worker].tasks:
            return
        self.kills.append(Kill(worker, task, self._share()))
        self.cluster.kill(worker)
        self.screen.report(f"{worker}, which ran {task}, was killed at {self.rows_out:,} rows")
