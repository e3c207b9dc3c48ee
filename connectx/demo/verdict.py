"""The verdict of the demo: lost and duplicated rows, and whether its kills hit their targets. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectx.demo.measures import SUMMED, Measures
from connectx.history.folds.failovers import Failover, failovers
from connectx.history.folds.snapshot import snapshot
from connectx.history.render.report import Table, Verdict
from connectx.history.wording import listing, plural
from connectx.model.events import Event
from connectx.values import Value


class Kill(Value):
    """A kill that the demo made: of whom, which task it was meant to hit, and the share of rows that had arrived."""

    worker: str
    task: str
    share: float


class Outcome(Value):
    """Everything that the verdict stands on.

    Attributes:
        file, topic, table: the three measurements.
        kills: in order; `missed` are those that did not hit a running task while data flowed.
        failover_s: per kill, from the kill until all tasks of that worker ran again; None where they did not.
        seconds: of the whole demo.
    """

    file: Measures
    topic: Measures
    table: Measures
    kills: tuple[Kill, ...]
    missed: tuple[str, ...]
    failover_s: tuple[float | None, ...]
    rebalances: int
    fenced: int
    seconds: float

    @property
    def lost(self) -> int:
        """Flights of the file that are not in the table (or not even in the topic)."""
        return self.file.rows - min(self.topic.keys, self.table.keys, self.file.rows)

    @property
    def duplicated(self) -> int:
        """Rows of the table, or records of the topic, beyond the first of each flight; whichever are more."""
        return max(self.topic.rows - self.topic.keys, self.table.rows - self.table.keys)

    @property
    def differing(self) -> list[str]:
        """Measures in which topic or table differ from the file, although no row is lost or duplicated."""
        names = [name for name in SUMMED if len({m.sums[name] for m in (self.file, self.topic, self.table)}) > 1]
        return names + ([] if self.file.checksum == self.topic.checksum == self.table.checksum else ["checksum"])

    @property
    def is_good(self) -> bool:
        """True when nothing is lost, duplicated or changed and at least two kills hit running tasks."""
        intact = not (self.lost or self.duplicated or self.differing)
        return intact and len(self.kills) >= 2 and not self.missed

    def line(self) -> dict[str, object]:
        """The demo's last line, as JSON-like data."""
        return {
            "rows_in": self.file.rows,
            "records": self.topic.rows,
            "rows_out": self.table.rows,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "kills": len(self.kills),
            "rebalances": self.rebalances,
            "fenced": self.fenced,
            "failover_s": list(self.failover_s),
            "seconds": self.seconds,
        }

    def verdict(self) -> Verdict:
        """The verdict as a sentence and a table."""
        return Verdict(self.is_good, self._sentence(), self._table())

    def _sentence(self) -> str:
        problems = []
        if self.lost:
            problems.append(f"{plural(self.lost, 'flight')} lost")
        if self.duplicated:
            problems.append(f"{plural(self.duplicated, 'flight')} duplicated")
        if self.differing and not problems:
            problems.append(f"values changed: {listing(self.differing)}")
        if len(self.kills) < 2:
            problems.append(f"only {plural(len(self.kills), 'kill')} of 2 could be made while data flowed")
        problems.extend(self.missed)
        if problems:
            return f"Problems: {'; '.join(problems)}."
        return (
            f"Nothing lost, nothing duplicated: all {self.file.rows:,} flights are in the table once, although "
            f"{listing([kill.worker for kill in self.kills])} were killed while they ran "
            f"{listing([kill.task for kill in self.kills])}."
        )

    def _table(self) -> Table:
        return places_table({"CSV file": self.file, "topic, read_committed": self.topic, "table, SQL": self.table})


def places_table(places: Mapping[str, Measures]) -> Table:
    """What was measured in each place, and whether it is the same."""
    rows = [(name, *values, "yes" if len(set(values)) == 1 else "NO") for name, values in _compared(places)]
    return Table(("measure", *places, "same"), rows)


def unlike(places: Mapping[str, Measures]) -> list[str]:
    """Measures in which places differ."""
    return [name for name, values in _compared(places) if len(set(values)) > 1]


def _compared(places: Mapping[str, Measures]) -> list[tuple[str, list[int]]]:
    found = places.values()
    return [
        ("rows", [place.rows for place in found]),
        ("distinct flights (hour, carrier, number)", [place.keys for place in found]),
        *((f"sum of {name}", [place.sums[name] for place in found]) for name in SUMMED),
        ("checksum of all 19 columns (MD5)", [place.checksum for place in found]),
    ]


def judge(
    events: Sequence[Event], file: Measures, topic: Measures, table: Measures, kills: Sequence[Kill], seconds: float
) -> Outcome:
    """Put measurements and history together."""
    after_kills = [failover for failover in failovers(events) if failover.fault == "kill"]
    now = snapshot(events)
    of_worker = {failover.worker: failover for failover in after_kills}
    return Outcome(
        file=file,
        topic=topic,
        table=table,
        kills=tuple(kills),
        missed=tuple(problem for kill in kills if (problem := _miss(kill, of_worker.get(kill.worker)))),
        failover_s=tuple(_seconds(of_worker[kill.worker]) if kill.worker in of_worker else None for kill in kills),
        rebalances=now.rebalances,
        fenced=sum(failover.fenced for failover in failovers(events)),
        seconds=round(seconds, 1),
    )


def _miss(kill: Kill, failover: Failover | None) -> str | None:
    if failover is None or kill.task not in failover.held:
        return f"the kill of {kill.worker} did not hit {kill.task} while it ran"
    return f"{kill.worker} was killed when all rows had arrived" if kill.share >= 1 else None


def _seconds(failover: Failover) -> float | None:
    return None if failover.moved_ms is None else round(failover.moved_ms / 1000, 2)
