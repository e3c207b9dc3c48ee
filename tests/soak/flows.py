"""The flows of a soak: a growing file and two generators, through topics into targets.

lines: FileStreamSource -> topic -> FileStreamSink (at least once: the file may hold a line twice, never miss one).
rows: Generator with two tasks -> topic -> PostgresSink with two tasks (exactly once, and the table has no key that
could hide a second row); its transactions are ended by time, those of the others with each poll.
spark: Generator with values that only Spark can write as JSON -> topic, so that Spark jobs are broken off, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

import connectx as cx
from connectx.demo.measures import Reader
from connectx.errors.base import ConnectxError
from tests.support.profiles import STRINGS

LINES, ROWS, SPARK, TABLE = "soak-lines", "soak-rows", "soak-spark", "soak_rows"
NAMES = ("lines-in", "lines-out", "rows-in", "rows-out", "spark-in")
START_S = 120.0
QUIET_S = 1.0
PARTS = 13  # connectors and tasks
GENERATORS = 2
LINES_PER_S, ROWS_PER_S = 100, 200  # of the file, and of each task of the generator
SETTINGS = {
    "session.timeout.ms": "2000",
    "scheduled.rebalance.max.delay.ms": "1000",
    "consumer.session.timeout.ms": "2000",
    "offset.flush.interval.ms": "1000",
}


class Flows:
    """The flows of one cluster. `feed` keeps the file growing, `finish` ends the sources and waits for the targets."""

    def __init__(self, cluster: cx.Cluster, folder: Path, uri: str) -> None:
        self.cluster = cluster
        self.source, self.target = folder / "lines.txt", folder / "out.txt"
        self.source.touch()
        self.uri = uri
        self.lines = 0
        self._begun_s = time.monotonic()
        with Reader(uri) as database:
            database.query(f"DROP TABLE IF EXISTS {TABLE}, connectx_offsets")
            database.query(f"CREATE TABLE {TABLE} (id bigint, name text)")

    def start(self) -> None:
        """Create topics and connectors and wait until they run, and Spark has moved its first rows."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        for made in admin.create_topics([NewTopic(LINES, 3), NewTopic(ROWS, 4), NewTopic(SPARK, 2)]).values():
            made.result(30)
        strings = {"value.converter": STRINGS}
        for name, config in {
            "lines-in": {"connector.class": "FileStreamSource", "file": str(self.source), "topic": LINES, **strings},
            "lines-out": {"connector.class": "FileStreamSink", "file": str(self.target), "topics": LINES,
                          "tasks.max": "2", **strings},
            "rows-in": {"connector.class": "Generator", "topic": ROWS, "rate": str(ROWS_PER_S), "key.fields": "id",
                        "fields": "id:long,name:string", "tasks.max": str(GENERATORS),
                        "transaction.boundary": "interval", "transaction.boundary.interval.ms": "200"},
            "spark-in": {"connector.class": "Generator", "topic": SPARK, "rate": str(ROWS_PER_S), "key.fields": "id",
                         "fields": "id:long,amount:double"},
            "rows-out": {"connector.class": "PostgresSink", "topics": ROWS, "connection.url": self.uri,
                         "table.name.format": TABLE, "tasks.max": "2"},
        }.items():  # fmt: skip
            self.cluster.create(name, config)
        for name in NAMES:
            self.cluster.wait(name, "RUNNING", timeout=START_S)
        late: list[str] = []
        self._until(late, START_S, "Spark has moved rows", lambda: bool(self.made("spark-in")))
        if late:
            raise AssertionError(late[0])
        self._begun_s = time.monotonic()

    def feed(self) -> None:
        """Bring the file to the length that is due now."""
        due = int((time.monotonic() - self._begun_s) * LINES_PER_S)
        with self.source.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(self.lines, due))
        self.lines = max(self.lines, due)

    def table_rows(self) -> int:
        """Rows in the table now."""
        with Reader(self.uri) as database:
            return int(database.query(f"SELECT count(*) FROM {TABLE}")[0][0])

    def target_lines(self) -> list[str]:
        """Lines of the target file now."""
        return self.target.read_text().splitlines() if self.target.exists() else []

    def made(self, name: str) -> dict[int, int]:
        """Rows that each task of a generator has committed, by task, as its source offsets say."""
        recorded = self.cluster[name].offsets.get()
        return {int(entry["partition"]["generator"]): int(entry["offset"]["rows"]) for entry in recorded}

    def finish(self, timeout_s: float) -> list[str]:
        """Pause the generators and wait until everything has arrived; what has not, in sentences."""
        problems: list[str] = []
        self._until(problems, timeout_s, "every connector is well", self._all_well)
        problems += self.failures()
        self._until(problems, timeout_s, "all lines are in the file", self._lines_are_there)
        for name in ("rows-in", "spark-in"):
            try:
                self.cluster[name].pause()
            except ConnectxError as error:
                problems.append(f"{name} could not be paused: {error}")
        self._until(problems, timeout_s, "the generators pause", self._generators_pause)
        self._until(problems, timeout_s, "all rows are in the table", self._rows_are_there)
        return problems

    def _lines_are_there(self) -> bool:
        return len(set(self.target_lines())) >= self.lines

    def _rows_are_there(self) -> bool:
        return self.table_rows() >= sum(self.made("rows-in").values())

    def _generators_pause(self) -> bool:
        """True when their tasks say so and their offsets stay where they are."""
        states = {
            part["state"]
            for name in ("rows-in", "spark-in")
            for status in [self.cluster.status(name)]
            for part in (status["connector"], *status["tasks"])
        }
        before = [self.made(name) for name in ("rows-in", "spark-in")]
        time.sleep(QUIET_S)
        return states <= {"PAUSED", "FAILED"} and before == [self.made(name) for name in ("rows-in", "spark-in")]

    def failures(self) -> list[str]:
        """Connectors and tasks that are FAILED, with the end of their traces."""
        found = []
        for connector in self.cluster.connectors:
            status = connector.status()
            for part in (status["connector"], *status["tasks"]):
                if part["state"] == "FAILED":
                    name = connector.name if "id" not in part else f"{connector.name}-{part['id']}"
                    found.append(f"{name} is FAILED: {str(part.get('trace', '')).strip().splitlines()[-1][:300]}")
        return found

    def _all_well(self) -> bool:
        states = [
            part["state"]
            for connector in self.cluster.connectors
            for status in [connector.status()]
            for part in (status["connector"], *status["tasks"])
        ]
        return len(states) == PARTS and set(states) <= {"RUNNING", "FAILED"}

    @staticmethod
    def _until(problems: list[str], timeout_s: float, what: str, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            try:
                if condition():
                    return
            except ConnectxError:
                pass  # the group rebalances
            time.sleep(0.2)
        problems.append(f"not within {timeout_s:.0f} s: {what}")
