"""`python -m bench.spark_cluster`: executors move flights into PostgreSQL and Delta while parts of it are killed.

Everything runs on this machine: Kafka, PostgreSQL, Spark's master and two workers with an executor each, and three
worker processes of connectx. An executor, a Spark worker and a worker of connectx get SIGKILL while a job of the source
runs, and another Spark worker while a job of a sink does.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bench.spark_standalone import SparkStandalone
from connectx.cli.common import reporting_errors
from connectx.demo.database import database
from connectx.demo.flights import TABLE, TOPIC, source_config, unpack
from connectx.demo.interrupts import terminable
from connectx.demo.job import require_writable, temporary_folder
from connectx.demo.measures import (
    COLUMN_NAMES,
    Count,
    Measures,
    Reader,
    as_text,
    measure_file,
    measure_table,
    measure_topic,
)
from connectx.demo.screen import Screen
from connectx.demo.verdict import places_table, unlike
from connectx.demo.watch import SINK, SOURCE, SOURCE_TASK, Watch
from connectx.errors.demo import DemoError
from connectx.extras import require
from connectx.history.log import Subscription
from connectx.history.render.report import Verdict, report_page, save_page
from connectx.history.sentences.stories import stories
from connectx.history.wording import listing
from connectx.model.events import EventKind
from connectx.views import gist

if TYPE_CHECKING:
    from connectx.api.cluster import Cluster

WORKERS: Final = 3
COPIES: Final = 3
LAKE_SINK: Final = "flights-to-delta"
_LOOK_S: Final = 0.1
_STUCK_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class SparkOutcome:
    """What was measured in each place, what was killed, and what the jobs did."""

    places: Mapping[str, Measures]
    killed: tuple[str, ...]
    missed: tuple[str, ...]
    jobs: int
    failed_jobs: int
    aborted: int
    seconds: float

    @property
    def is_good(self) -> bool:
        """True when all places are alike and every kill came while a job ran."""
        return not unlike(self.places) and not self.missed

    def line(self) -> dict[str, object]:
        """The demo's last line, as JSON-like data."""
        rows = {f"rows_{name.lower().split()[0].strip(',')}": place.rows for name, place in self.places.items()}
        counts = {"jobs": self.jobs, "failed_jobs": self.failed_jobs, "aborted": self.aborted}
        return {
            **rows,
            "killed": list(self.killed),
            "differing": unlike(self.places),
            **counts,
            "seconds": self.seconds,
        }

    def shown(self) -> dict[str, str]:
        """The first part of the report."""
        return {
            "killed": listing(self.killed),
            "jobs": str(self.jobs),
            "failed jobs": str(self.failed_jobs),
            "aborted transactions": str(self.aborted),
            "seconds": f"{self.seconds:.1f}",
        }

    def verdict(self) -> Verdict:
        """The verdict as a sentence and a table."""
        problems = [*(f"{name} differs" for name in unlike(self.places)), *self.missed]
        rows = next(iter(self.places.values())).rows
        good = (
            f"Nothing lost, nothing duplicated: all {rows:,} flights are in both tables once, although "
            f"{listing(self.killed)} were killed while Spark ran a job."
        )
        sentence = f"Problems: {'; '.join(problems)}." if problems else good
        return Verdict(self.is_good, sentence, places_table(self.places))


def run(screen: Screen, report: Path, rows: int | None = None, copies: int = COPIES) -> SparkOutcome:
    """Run the demo and write its report.

    Args:
        screen: where it shows itself.
        report: HTML file to write.
        rows: how many flights of a year, all by default.
        copies: how many years, each with the same flights.

    Raises:
        ConnectxError: something could not be started, or a task failed for another reason than the demo's faults.
    """
    from connectx.api.cluster import Cluster

    require("The demo on a Spark cluster", "lake", "deltalake")
    begin, begin_ms = time.monotonic(), time.time_ns() // 1_000_000
    require_writable(report)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(temporary_folder()))
        screen.report("Unpacking the flights and measuring the file")
        path = multiply(unpack(folder, rows), copies)
        places = {"CSV file": measure_file(path)}
        screen.report("Starting PostgreSQL, and Spark's master with two workers")
        uri = stack.enter_context(database(folder))
        spark = stack.enter_context(SparkStandalone(folder / "spark"))
        screen.report(f"Starting Kafka, Spark's driver and {WORKERS} worker processes")
        cluster = stack.enter_context(
            Cluster(WORKERS, spark=spark.settings, isolation="process", faults=False, progress=screen.progress)
        )
        flow = _Flow(cluster, spark, screen, stack.enter_context(Reader(uri)), path, places["CSV file"].rows)
        flow.create(uri, folder / "lake")
        flow.watch(folder / "lake" / TOPIC)
        screen.report("Measuring the topic and both tables from outside")
        places["Topic, read_committed"] = measure_topic(cluster.bootstrap_servers, TOPIC)
        places["PostgreSQL, SQL"] = measure_table(uri, TABLE)
        places["Delta, Arrow"] = measure_delta(folder / "lake" / TOPIC)
        events = list(cluster.events)
        outcome = SparkOutcome(
            places,
            tuple(flow.killed),
            tuple(f"no job ran when {what} was to be killed" for what in flow.missed()),
            jobs=flow.watched.slices,
            failed_jobs=sum(event.kind is EventKind.BULK_FAILED for event in events),
            aborted=sum(event.kind is EventKind.TRANSACTION_ABORTED for event in events),
            seconds=round(time.monotonic() - begin, 1),
        )
        screen.finish(outcome.verdict(), stories(events), begin_ms)
        page = report_page(
            events,
            title="connectx: flights on a Spark cluster",
            lead=f"{places['CSV file'].rows:,} flights through Spark's executors and Kafka into PostgreSQL and Delta.",
            shown=outcome.shown(),
            verdict=outcome.verdict(),
            samples=cluster.samples(),
            footer="Written by `make cluster`.",
        )
        save_page(page, report)
    return outcome


@dataclass(slots=True)
class _Flow:
    """Three connectors, and what is killed while jobs of the source and of a sink run."""

    cluster: Cluster
    spark: SparkStandalone
    screen: Screen
    reader: Reader
    path: Path
    rows: int
    watched: Watch = field(default_factory=Watch)
    killed: list[str] = field(default_factory=list)
    slices_at_kill: int = -1

    def create(self, uri: str, lake: Path) -> None:
        """Create the connectors."""
        lake.mkdir()
        self.cluster.create(
            SOURCE,
            {
                **source_config(self.path),
                "bulk.mode": "always",
                "bulk.min.bytes": str(16 << 20),  # many slices, so that something can be killed in several
                "producer.override.transaction.timeout.ms": "600000",
            },
        )
        tables = {"connector.class": "PostgresSink", "connection.url": uri, "table.name.format": TABLE}
        self.cluster.create(SINK, {**tables, "topics": TOPIC, "insert.mode": "insert"})
        delta = {"connector.class": "DeltaSink", "path": str(lake), "flush.interval.ms": "2000"}
        self.cluster.create(LAKE_SINK, {**delta, "topics": TOPIC, "bulk.mode": "always"})

    def watch(self, table: Path) -> None:
        """Watch and kill until all flights are in both tables, or nothing moves any more."""
        with self.cluster.events.subscribe(since=0) as news:
            self._await_topic(news)
            self._await_tables(news, table)

    def _await_topic(self, news: Subscription) -> None:
        size, moved_s, quarter = self.path.stat().st_size, time.monotonic(), 1
        while self.watched.position < size:
            before = (self.watched.position, len(self.watched.events))
            self._look(news)
            self._break()
            if self.watched.position * 4 >= size * quarter:
                quarter += 1
                self.screen.report(f"{self.watched.records:,} of {self.rows:,} flights are committed in the topic")
            if before != (self.watched.position, len(self.watched.events)):
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > _STUCK_S:
                self.screen.report(f"Nothing has moved for {_STUCK_S:.0f} s; measuring what is there")
                return

    def _await_tables(self, news: Subscription, table: Path) -> None:
        """As long as the tables grow. Only sinks have jobs now."""
        found, grown_s = (0, 0), time.monotonic()
        while min(found) < self.rows and time.monotonic() - grown_s < _STUCK_S / 4:
            self._look(news)
            if len(self.killed) == 3 and LAKE_SINK in self.watched.with_jobs and _executors_work():
                self.spark.kill_worker(1)
                self._note("another Spark worker")
            now = int(self.reader.query(f"SELECT count(*) FROM {TABLE}")[0][0]), _rows_of_delta(table)
            if now != found:
                found, grown_s = now, time.monotonic()

    def _look(self, news: Subscription) -> None:
        self.watched.take(news.get(_LOOK_S))
        if self.watched.failure is not None:
            raise DemoError(f"The flow has ended: {gist(self.watched.failure, 400)}.")

    def missed(self) -> list[str]:
        """What was not killed."""
        return ["an executor", "a Spark worker", "a worker of connectx", "another Spark worker"][len(self.killed) :]

    def _break(self) -> None:
        """While executors work, and a slice was committed since the last kill: kill what is next.

        It is killed without a delay, since on a fast machine a stage lasts less than a second. A slice lies between two
        kills, because the task fails if three jobs in a row do.
        """
        if self.watched.slices <= self.slices_at_kill or not _executors_work():
            return
        match len(self.killed):
            case 0 if executors := self.spark.executors():
                executors[0].kill()
                self._note(f"executor {executors[0].pid}")
            case 1:
                self.spark.kill_worker(0)
                self.spark.add_worker()
                self._note("a Spark worker")
            case 2 if (found := self.watched.holder(SOURCE, 0)) and SOURCE_TASK in self.cluster.workers[found[0]].tasks:
                self.cluster.kill(found[0])
                self._note(found[0])

    def _note(self, what: str) -> None:
        self.killed.append(what)
        self.slices_at_kill = self.watched.slices
        self.screen.report(f"{what} was killed while a job ran, with {self.watched.records:,} flights committed")


def multiply(path: Path, copies: int) -> Path:
    """Write the flights of a file again for each following year, into the file `flights-many.csv` beside it."""
    target = path.with_name("flights-many.csv")
    with target.open("w") as file:
        for number in range(copies):
            with path.open() as source:
                header = source.readline()
                if number == 0:
                    file.write(header)
                file.writelines(_years_later(line, number) for line in source)
    return target


def _years_later(line: str, years: int) -> str:
    """A line with another year in its first and last column. Hours of New Year's Eve are in the next year already."""
    front, _, hour = line.rpartition(",")
    return f"{int(front[:4]) + years}{front[4:]},{int(hour[:4]) + years}{hour[4:]}"


def measure_delta(path: Path) -> Measures:
    """Read a Delta table's files with Arrow."""
    from deltalake import DeltaTable

    count = Count()
    for batch in DeltaTable(path).to_pyarrow_dataset().to_batches(columns=list(COLUMN_NAMES)):
        for row in batch.to_pylist():
            count.add(as_text(row))
    return count.done()


def _executors_work() -> bool:
    """Whether executors run tasks now, as the driver reports it."""
    from pyspark.sql import SparkSession

    tracker = SparkSession.builder.getOrCreate().sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


def _rows_of_delta(table: Path) -> int:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return int(DeltaTable(table).to_pyarrow_dataset().count_rows())
    except TableNotFoundError:
        return 0


def main(
    report: Annotated[Path, typer.Option(help="HTML page to write, with timeline, stories and verdict.")] = Path(
        "spark-cluster-demo.html"
    ),
    rows: Annotated[int | None, typer.Option(min=1000, help="Flights of a year; by default all 336,776.")] = None,
) -> None:
    """Run flights through a Spark cluster of this machine while parts of it are killed. The last line is JSON."""
    logging.getLogger().addHandler(logging.NullHandler())  # what went wrong comes as an error or in the report
    with reporting_errors(), terminable():
        outcome = run(Screen(), report, rows)
    typer.echo(f"Report: {report}")
    typer.echo(json.dumps(outcome.line()))
    if not outcome.is_good:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
