"""Decides the verdict of a check from its findings and from what could not be observed. Pure.

An anomaly makes a run invalid. Without one, a single reason why something could not be observed makes it unknown. A run
is valid only if everything was compared. Mirrors the checkers of Jepsen and Maelstrom, which read histories and never
query the system that they judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from connectx.history.folds.snapshot import WorkSnapshot, snapshot
from connectx.history.wording import listing, plural
from connectx.model.events import Event, EventKind
from connectx.model.states import State
from connectx.values import Value
from connectx.verify.check.attribution import Attribution, fenced
from connectx.verify.check.commits import COMMITS, SourceHistory, source_histories
from connectx.verify.check.comparison import Comparison, Difference, compare
from connectx.verify.check.rows import MAX_ROWS, OnRead, Row, Rows, pick
from connectx.verify.check.scenarios import Scenario, unreached
from connectx.verify.check.verdict import HARMLESS, Anomaly, Checked, Example, Finding, Moment, Verdict
from connectx.views import gist, masked_text

_MOMENTS = 3
_ERROR_CHARS = 2_000


def judge(
    events: Sequence[Event],
    comparisons: Sequence[Comparison] = (),
    *,
    scenarios: Sequence[Scenario] = (),
    unseen: Sequence[str] = (),
    examples: int = 5,
    limit: int = MAX_ROWS,
    on_read: OnRead = lambda place, rows, size: None,
) -> Verdict:
    """Compare everything and return the verdict.

    Args:
        events: the history, in order; empty when there is none.
        comparisons: what should have arrived where, and what has.
        scenarios: what the run must have reached.
        unseen: why not everything can be seen, beside the reasons of the history and the comparisons.
        examples: how many records to show per finding.
        limit: how many rows of a place to compare at the most.

    Raises:
        ConfigError: there is no scenario of that name.
    """
    judging = _Judging(events, examples, on_read)
    for comparison in comparisons:
        judging.take(comparison, compare(comparison, on_read, examples, limit), limit)
    if comparisons and not any(checked.found or checked.expected for checked in judging.checked):
        judging.reasons.append("no place that was read holds a record")
    judging.take_sources()
    judging.findings += fenced(events)
    found = any(checked.found for checked in judging.checked)
    blind = _blind_spots(events, comparisons, found=found)
    reasons = [*blind, *unseen, *unreached(events, scenarios), *judging.reasons]
    harm = any(finding.anomaly not in HARMLESS for finding in judging.findings)
    answer = "invalid" if harm else "unknown" if reasons else "valid"
    return Verdict(
        answer,
        tuple(judging.findings),
        tuple(dict.fromkeys(reasons)),
        tuple(judging.checked),
        judging.pending,
        tuple(one.why for one in blocked(events).values()),
    )


def _blind_spots(events: Sequence[Event], comparisons: Sequence[Comparison], *, found: bool) -> Iterator[str]:
    if events and events[0].seq > 1:
        yield f"the beginning of the history is gone ({plural(events[0].seq - 1, 'event')})"
    if any(event.kind is EventKind.ATTACHED for event in events):
        yield "the cluster is observed from outside, so its commits are not visible"
    elif events and not found and not any(event.kind in COMMITS for event in events):
        yield "nothing ran: no task has committed anything, and nothing was found"
    if not comparisons:
        yield "no topic and no target was read"


class _Judging:
    def __init__(self, events: Sequence[Event], examples: int, on_read: OnRead) -> None:
        self._attribution = Attribution(events)
        self._histories = source_histories(events)
        self._examples = examples
        self._on_read = on_read
        self._blocked = blocked(events)
        self._compared: set[str] = set()  # connectors whose records were compared one by one
        self.findings: list[Finding] = []
        self.reasons: list[str] = []
        self.checked: list[Checked] = []
        self.pending = 0

    def take(self, comparison: Comparison, found: Difference, limit: int) -> None:
        place = comparison.found.place
        stuck = [self._blocked[name] for name in comparison.connectors if name in self._blocked]
        if not stuck and comparison.goal is not None and found.needed >= comparison.goal:
            found = replace(found, pending=0)  # later records than those that the check began with
        if (found.lost or found.duplicated or found.alien) and comparison.ahead():
            differing = max(found.lost, found.duplicated + found.alien)
            found = replace(found, lost=0, duplicated=0, alien=0, pending=differing)
        letters = comparison.dead_letters if comparison.dead_letters[1] else ("", 0)
        self.checked.append(
            Checked(place, comparison.connectors, found.found, found.expected, found.pending, found.by_key, *letters)
        )
        self.reasons += [*comparison.hidden, *comparison.unchecked(), *_doubts(comparison, found, limit, stuck)]
        if comparison.wanted is not None:
            self._compared.update(comparison.connectors)
        if not any(one.wholly for one in stuck):
            self.pending += found.pending
        self.pending += found.lost if comparison.waits else 0
        if self._source_has_changed(comparison, found):
            source = listing(comparison.connectors)
            self.reasons.append(
                f"the source of {source} holds {plural(found.needed, 'row')} where {source} has committed "
                f"{plural(comparison.committed or 0, 'record')}: it was changed meanwhile"
            )
            return
        if found.older:
            self._add(_older(comparison, found.older))
        elsewhere = 0 if comparison.exact else found.alien - found.outdated
        lost = 0 if comparison.hidden else max(found.lost - comparison.tolerated - elsewhere, 0)
        for anomaly, count in (
            (Anomaly.LOST, lost),
            (Anomaly.DUPLICATED, found.duplicated),
            (Anomaly.REORDERED, found.reordered),
        ):
            if count:
                self.findings.append(self._finding(anomaly, count, comparison, found))
        if lost < found.lost:
            self.reasons.append(_excuse(comparison, found, lost))
        if found.alien and (comparison.exact or not found.lost):
            shown = "".join(
                f", for example {row.text!r}" for row in self._pick(comparison.found, found.alien_prints[:1])
            )
            whose = comparison.wanted.place if comparison.wanted else ""
            self.reasons.append(f"{plural(found.alien, 'row')} in {place} cannot be explained by {whose}{shown}")

    def _pick(self, rows: Rows, prints: Sequence[int], *, copies: bool = False) -> list[Row]:
        return pick(rows, prints, self._on_read, copies=copies)

    def _source_has_changed(self, comparison: Comparison, found: Difference) -> bool:
        """What is read again has to be as much as was committed, unless commits overlap or leave gaps."""
        mine = self._of(comparison.connectors)
        broken = any(history.overlaps or history.gaps or history.unrecorded or history.unseen for history in mine)
        return (
            comparison.wanted is not None
            and comparison.committed is not None
            and not found.cut
            and not broken
            and found.needed != comparison.committed
        )

    def _finding(self, anomaly: Anomaly, count: int, comparison: Comparison, found: Difference) -> Finding:
        prints = {
            Anomaly.LOST: found.lost_prints,
            Anomaly.DUPLICATED: found.duplicated_prints,
            Anomaly.REORDERED: found.reordered_prints,
        }[anomaly]
        if anomaly is Anomaly.LOST or comparison.from_topic:
            rows = [] if comparison.wanted is None else self._pick(comparison.wanted, prints)
        elif anomaly is Anomaly.DUPLICATED:
            rows = _further_copies(self._pick(comparison.found, prints, copies=True))
        else:
            rows = self._pick(comparison.found, prints)
        examples = tuple(
            self._example(row, comparison, written=not comparison.from_topic) for row in rows[: self._examples]
        )
        moments = [example.moment for example in examples if example.moment is not None]
        if anomaly is Anomaly.DUPLICATED:
            moments = self._overlaps(comparison.connectors) or moments
        elif anomaly is Anomaly.LOST:
            moments = self._gaps(comparison.connectors) or moments
        shown = tuple(dict.fromkeys(moments))[:_MOMENTS]
        sentence = _sentence(anomaly, count, comparison, found)
        return Finding(anomaly, count, comparison.found.place, comparison.connectors, sentence, examples, shown)

    def _example(self, row: Row, comparison: Comparison, *, written: bool) -> Example:
        moment = None
        if written:
            moment = self._attribution.of_write(comparison.connectors, row.time_ms)
        elif row.offset is not None:
            moment = self._attribution.of_offset(comparison.connectors[0], f"{row.topic}-{row.partition}", row.offset)
        in_log = row.offset is not None
        return Example(row.text, row.partition if in_log else None, row.offset, row.time_ms, moment)

    def take_sources(self) -> None:
        """What the commits of sources show by themselves."""
        for history in self._histories:
            self.reasons += history.unseen
            if history.unrecorded and history.connector not in self._compared:
                count = plural(len(history.unrecorded), "commit")
                self.reasons.append(f"{count} of {history.connector} ended with its worker before it was reported")
            place, connectors = f"source partition {_partition(history)} of {history.connector}", (history.connector,)
            if history.gaps:
                count = plural(len(history.gaps), "place")
                sentence = f"at {count} a commit starts after the end of the commit before"
                moments = tuple(self._gaps(connectors)[:_MOMENTS])
                self._add(Finding(Anomaly.SKIPPED, len(history.gaps), place, connectors, sentence, (), moments))
            if history.backwards:
                sentence = (
                    f"{plural(len(history.backwards), 'commit')} went back before what the same task had committed"
                )
                moments = tuple(
                    self._attribution.of_commit(c, f"up to {dict(c.end)}") for c in history.backwards[:_MOMENTS]
                )
                self._add(
                    Finding(Anomaly.NONMONOTONIC, len(history.backwards), place, connectors, sentence, (), moments)
                )
            reported = any(f.anomaly is Anomaly.DUPLICATED and history.connector in f.connectors for f in self.findings)
            if history.overlaps and not reported:
                attributed = self._attribution.of_overlaps(history.overlaps)
                records = sum(count for _, count in attributed)
                sentence = (
                    f"commits of {plural(records, 'record')} covered, wholly or in part, what was committed before"
                )
                moments = tuple(moment for moment, _ in attributed[:_MOMENTS])
                self._add(Finding(Anomaly.DUPLICATED, records, place, connectors, sentence, (), moments))

    def _add(self, finding: Finding) -> None:
        self.findings.append(finding)

    def _of(self, connectors: Sequence[str]) -> list[SourceHistory]:
        return [history for history in self._histories if history.connector in connectors]

    def _overlaps(self, connectors: Sequence[str]) -> list[Moment]:
        mine = self._of(connectors)
        return [moment for history in mine for moment, _ in self._attribution.of_overlaps(history.overlaps)]

    def _gaps(self, connectors: Sequence[str]) -> list[Moment]:
        return [
            self._attribution.of_commit(after, f"from {dict(after.start or {})} on, after {dict(before.end)}")
            for history in self._of(connectors)
            for before, after in history.gaps
        ]


class Blocked(Value):
    """Why records of a connector do not arrive: its failed tasks, the first error with what to do, as it was reported.

    `wholly`: none of its tasks runs.
    """

    tasks: tuple[str, ...]
    error: str
    wholly: bool

    @property
    def why(self) -> str:
        """As a sentence without its full stop."""
        return f"{listing(self.tasks)} failed: {self.error}"


def blocked(events: Sequence[Event]) -> dict[str, Blocked]:
    """Connectors with failed tasks."""
    found: dict[str, list[WorkSnapshot]] = {}
    for task in snapshot(events).tasks:
        found.setdefault(task.connector, []).append(task)
    failed = {name: [task for task in tasks if task.state == State.FAILED] for name, tasks in found.items()}
    return {
        name: Blocked(
            tuple(f"{name}-{task.task}" for task in tasks),
            masked_text(gist(tasks[0].trace, _ERROR_CHARS)),
            len(tasks) == len(found[name]),
        )
        for name, tasks in failed.items()
        if tasks
    }


def _doubts(comparison: Comparison, found: Difference, limit: int, stuck: Sequence[Blocked]) -> Iterator[str]:
    place = comparison.found.place
    if found.cut:
        yield f"only {limit:,} rows of {place} or of what should be there were read"
    if found.pending:
        source = comparison.wanted.place if comparison.wanted else "the source"
        have = "has" if found.pending == 1 else "have"
        tasks = listing([task for one in stuck for task in one.tasks])
        why = f", because {tasks} failed" if stuck else ""
        yield f"{plural(found.pending, 'row')} of {source} {have} not arrived in {place} yet{why}"
    if found.unclear:
        source = comparison.wanted.place if comparison.wanted else "the source"
        rows, are, who = plural(found.unclear, "row"), "is" if found.unclear == 1 else "are", comparison.connectors
        yield f"{rows} of {source} {are} in {place} only among those that are older than {listing(who)}"
    if comparison.wanted is None and comparison.committed is None:
        yield f"the rows that should be in {place} are unknown"
    if found.repeated:
        yield (
            f"{plural(found.repeated, 'row')} in {place} {'equals' if found.repeated == 1 else 'equal'} another, and "
            "it is unknown whether they should (name the fields that identify a row with key=)"
        )
    elif (
        comparison.wanted is None
        and not comparison.replayed
        and not found.cut
        and (more := _uncommitted(comparison, found)) > 0
    ):
        yield f"{place} holds {plural(more, 'record')} more than the history has commits of"


def _uncommitted(comparison: Comparison, found: Difference) -> int:
    return 0 if comparison.committed is None else found.found - comparison.committed


def _excuse(comparison: Comparison, found: Difference, lost: int) -> str:
    """Why some of what is missing is not called lost."""
    source = comparison.wanted.place if comparison.wanted else "the source"
    text = f"{plural(found.lost - lost, 'row')} of {source} cannot be found in {comparison.found.place}"
    if comparison.hidden:
        return text
    if not comparison.exact and found.alien:
        differ = "values were changed or look different there (name the fields that identify a row with key=)"
        if not comparison.from_topic:
            differ = "rows of the source or the connector's configuration were changed meanwhile"
        return f"{text}, which holds {plural(found.alien, 'row')} that nothing explains: {differ}"
    return f"{text}, and {plural(comparison.tolerated, 'record')} were skipped as errors.tolerance allows"


def _sentence(anomaly: Anomaly, count: int, comparison: Comparison, found: Difference) -> str:
    who = listing(comparison.connectors)
    they, place = plural(count, "row"), comparison.found.place
    if comparison.wanted is None:
        if anomaly is Anomaly.LOST:
            return f"{they} of the {found.expected:,} that {who} has committed are not in {place}"
        if anomaly is Anomaly.REORDERED:
            return f"{they} of {place} come after one that follows in the source"
        return f"{they} of {place} have the key of another row"
    source = comparison.wanted.place
    match anomaly:
        case Anomaly.LOST:
            return f"{they} of {source} that {who} has committed are not in {place}"
        case Anomaly.DUPLICATED:
            return f"{they} {'is' if count == 1 else 'are'} in {place} more often than in {source}"
        case _:
            return f"{they} of {place} come after one that follows in {source}"


def _older(comparison: Comparison, count: int) -> Finding:
    who, place = listing(comparison.connectors), comparison.found.place
    are = "is" if count == 1 else "are"
    sentence = f"{plural(count, 'row')} of {place} {are} older than {who}: its first task found them there"
    return Finding(Anomaly.OLDER, count, place, comparison.connectors, sentence)


def _further_copies(rows: Sequence[Row]) -> list[Row]:
    """Without the first copy of each."""
    seen: set[bytes] = set()
    copies = []
    for row in rows:
        if row.identity in seen:
            copies.append(row)
        seen.add(row.identity)
    return copies


def _partition(history: SourceHistory) -> str:
    return ", ".join(str(value) for value in history.partition.values()) or "(its only one)"
