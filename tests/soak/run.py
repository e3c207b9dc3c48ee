"""One soak: flows, chaos, verdict. Each half has a cluster, a chaos and a history of its own."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import connectx as cx
from connectx.api.faults.chaos import Chaos
from connectx.demo.measures import Reader
from connectx.errors.base import ConnectxError
from connectx.model.events import EventKind
from connectx.verify.check.verdict import Anomaly
from tests.soak.flows import LINES, ROWS, SETTINGS, SPARK, TABLE, Flows
from tests.soak.measure import Measure, expected_ids, measure, measure_lines, measure_rows

WORKERS = 3
SETTLE_S = 120.0
SHOW_S = 10.0
KINDS = ("kill", "stop", "pause", "stall", "partition", "delay", "add_worker", "broker_kill")


@dataclass(frozen=True, slots=True)
class Half:
    """What came of one isolation."""

    isolation: str
    faults: Mapping[str, int]
    skipped: int
    records: int
    fenced: int
    rebalances: int
    repeated_lines: int
    seconds: float
    verdict: str
    measures: tuple[Measure, ...]
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """True when every record is everywhere once, and nothing failed."""
        return not self.problems and all(one.is_good for one in self.measures)

    def line(self) -> dict[str, object]:
        """As JSON-like data."""
        return {**asdict(self), "good": self.is_good}


def soak(
    isolation: Literal["thread", "process"],
    *,
    seed: int,
    seconds: float,
    every_s: float,
    uri: str,
    history: Path | None,
    say: Callable[[str], None],
    kinds: Sequence[str] = KINDS,
) -> Half:
    """Run flows under chaos for `seconds` and measure what has arrived.

    Args:
        isolation: thread or process.
        seed: of the chaos.
        every_s: one fault in each span of so many seconds.
        uri: an empty PostgreSQL.
        history: JSON lines of all events go here.
        say: told how it goes.
    """
    begun_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="connectx-soak-") as folder,
        cx.Cluster(workers=WORKERS, config=SETTINGS, isolation=isolation) as cluster,
    ):
        try:
            flows = Flows(cluster, Path(folder), uri)
            flows.start()
            with cluster.chaos(seed, kinds, every_s=every_s, for_s=None) as chaos:
                _run(flows, chaos, seconds, lambda text: say(f"{isolation}: {text}"))
            flows.feed()
            say(f"{isolation}: faults have ended, waiting for the rest to arrive")
            problems = flows.finish(SETTLE_S)
            return _half(isolation, flows, chaos, problems, time.monotonic() - begun_s)
        finally:
            if history is not None:
                cluster.events.to_jsonl(history)


def _run(flows: Flows, chaos: Chaos, seconds: float, say: Callable[[str], None]) -> None:
    begun_s = shown_s = time.monotonic()
    while (now_s := time.monotonic()) - begun_s < seconds:
        flows.feed()
        if now_s - shown_s >= SHOW_S:
            shown_s = now_s
            done = [fault for fault in chaos.faults if not fault.skipped]
            last = f"{done[-1].kind} {done[-1].worker or ''}".strip() if done else "none"
            say(
                f"{now_s - begun_s:.0f} of {seconds:.0f} s, {len(done)} faults (last: {last}), "
                f"{flows.lines:,} lines in, {len(set(flows.target_lines())):,} out, {flows.table_rows():,} rows"
            )
        time.sleep(0.1)


def _checked(cluster: cx.Cluster) -> tuple[str, list[str]]:
    """What `cluster.check()` says, and what of it is a problem.

    The file may hold lines twice, after others. What the check could not see is no problem: here others measure, too.
    """
    try:
        verdict = cluster.check(timeout=SETTLE_S)
    except ConnectxError as error:
        return str(error), [f"check: {error}"]
    recorded = (verdict.sentence, *(reason for reason in verdict.reasons if reason not in verdict.sentence))
    allowed = (Anomaly.DUPLICATED, Anomaly.REORDERED)
    found = [
        f"check: {finding.anomaly} in {finding.place}: {finding.sentence}"
        for finding in verdict.findings
        if finding.anomaly is not Anomaly.FENCED
        and not (finding.anomaly in allowed and finding.connectors == ("lines-out",))
    ]
    return "; ".join(recorded), found


def _half(isolation: str, flows: Flows, chaos: Chaos, problems: Sequence[str], seconds: float) -> Half:
    cluster, made = flows.cluster, flows.made("rows-in")
    with Reader(flows.uri) as database:
        ids = [str(row[0]) for row in database.query(f"SELECT id FROM {TABLE}")]
    lines = flows.target_lines()
    measures = (
        measure_lines(cluster.bootstrap_servers, LINES, flows.lines),
        measure_rows(cluster.bootstrap_servers, ROWS, made),
        measure_rows(cluster.bootstrap_servers, SPARK, flows.made("spark-in")),
        measure(f"table {TABLE}", expected_ids(made), ids),
        measure("file (distinct lines)", (f"line {number}" for number in range(flows.lines)), sorted(set(lines))),
    )
    sentence, objections = _checked(cluster)
    kinds = Counter(event.kind for event in cluster.events)
    failed = [
        f"{event.worker} failed: {event.data.get('error')}"
        for event in cluster.events
        if event.kind is EventKind.WORKER_FAILED
    ]
    return Half(
        isolation=isolation,
        faults=dict(sorted(Counter(fault.kind for fault in chaos.faults if not fault.skipped).items())),
        skipped=len([fault for fault in chaos.faults if fault.skipped]),
        records=sum(one.records for one in measures[:3]),
        fenced=kinds[EventKind.PRODUCER_FENCED] + kinds[EventKind.COMMIT_REFUSED],
        rebalances=kinds[EventKind.ASSIGNMENT_COMPUTED],
        repeated_lines=len(lines) - len(set(lines)),
        seconds=round(seconds, 1),
        verdict=sentence,
        measures=measures,
        problems=(*problems, *failed, *objections),
    )
