"""The verdict of a check, valid, invalid or unknown, with its findings, as text, HTML and tables. Pure.

It decides how a verdict is worded and shown; `judge` decides the findings. Verdicts and names of anomalies are those of
Jepsen's and Maelstrom's checkers: a run is never valid when the check could not observe enough of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from connectx.data_frames import time_column
from connectx.errors.checks import NotValidError
from connectx.extras import require
from connectx.history.render.frame import clock_time
from connectx.history.wording import listing, plural
from connectx.values import Value
from connectx.views import Shown, html_card, html_table, text_table

if TYPE_CHECKING:
    import pandas as pd


class Anomaly(StrEnum):
    """What can be found. All but FENCED and OLDER make a run invalid; a fenced writer is what exactly-once is for."""

    LOST = "lost"  # it should be there and is not
    DUPLICATED = "duplicated"  # it is there more often than it should be
    REORDERED = "reordered"  # it comes after a row that should follow it
    SKIPPED = "skipped"  # a gap between the committed slices of a source
    NONMONOTONIC = "nonmonotonic"  # a task committed an offset below its own previous one
    FENCED = "fenced"  # a writer that had been replaced was shut out
    OLDER = "older"  # it was in the target before the connector was created


HARMLESS: Final = (Anomaly.FENCED, Anomaly.OLDER)


class Moment(Value, Shown):
    """A moment of the history: the event, and a sentence about it."""

    seq: int
    time_ms: int
    worker: str | None
    sentence: str


class Example(Value, Shown):
    """One record or row, as short text; where it is, as far as it has a place, and its moment if the history has it."""

    text: str
    partition: int | None = None
    offset: int | None = None
    time_ms: int | None = None
    moment: Moment | None = None


class Finding(Value, Shown):
    """One anomaly in one place.

    Attributes:
        anomaly: what it is.
        count: how many records, rows or commits it concerns.
        place: `topic lines`, `file out.txt`, or a task for what the history itself shows.
        connectors: the connectors that read or write the place.
        sentence: the finding in words.
        examples: some of the records, in their expected order.
        moments: where in the history it happened, as far as that is known.
    """

    anomaly: Anomaly
    count: int
    place: str
    connectors: tuple[str, ...]
    sentence: str
    examples: tuple[Example, ...] = ()
    moments: tuple[Moment, ...] = ()


class Checked(Value, Shown):
    """A place that was read: how many records or rows it holds, and how many it should (None: not known).

    `pending` counts those that were not there and may come later. With `by_key` only keys were compared. Records in the
    sink's dead letter queue are not expected; `dead_letters` counts them.
    """

    place: str
    connectors: tuple[str, ...]
    found: int
    expected: int | None
    pending: int = 0
    by_key: bool = False
    dead_letter_topic: str = ""
    dead_letters: int = 0


class Verdict(Value):
    """The outcome of a check. True as a condition only when it is valid.

    Attributes:
        answer: `valid`, `invalid` or `unknown`.
        findings: anomalies, and fenced writers.
        reasons: why not everything could be seen; one is enough for `unknown`, and beside findings they name what
            else may be wrong.
        checked: what was read.
        pending: records on their way, which may arrive later. Those that wait for failed tasks are not counted.
        failed: failed tasks, each with its error and what to do, as sentences without a full stop.
        notes: what was left out, as parts of sentences.
    """

    answer: str
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...]
    checked: tuple[Checked, ...]
    pending: int = 0
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """Expected records that are missing."""
        return self.count(Anomaly.LOST)

    @property
    def duplicated(self) -> int:
        """Records that are there more often than expected."""
        return self.count(Anomaly.DUPLICATED)

    @property
    def reordered(self) -> int:
        """Records that come too late in their partition."""
        return self.count(Anomaly.REORDERED)

    @property
    def fenced(self) -> int:
        """Writers that were fenced."""
        return self.count(Anomaly.FENCED)

    def count(self, anomaly: str) -> int:
        """Number of records with this anomaly, over all places."""
        return sum(finding.count for finding in self.findings if finding.anomaly == anomaly)

    def __bool__(self) -> bool:
        return self.answer == "valid"

    def require_valid(self) -> Verdict:
        """Itself when it is valid. Raises NotValidError, which has the verdict, when it is invalid or unknown."""
        if not self:
            raise NotValidError(self.sentence, self)
        return self

    @property
    def sentence(self) -> str:
        """Outcome, counts and reasons, for people."""
        if self.answer == "valid":
            return f"Valid: {'; '.join(self._seen())}{self._shut_out()}."
        if self.answer == "unknown":
            return f"Unknown: {'; '.join([*self.failed, *self.reasons])}."
        counts = {anomaly: self.count(anomaly) for anomaly in Anomaly if anomaly not in HARMLESS}
        found = [f"{count:,} {anomaly}" for anomaly, count in counts.items() if count]
        return f"Invalid: {listing(found)}{self._shut_out()}."

    def _seen(self) -> Iterator[str]:
        for by_key, how in ((False, "each once and in order"), (True, "compared by key")):
            seen = [f"{plural(one.found, 'record')} in {one.place}" for one in self.checked if one.by_key is by_key]
            if seen:
                yield f"{listing(seen)}, {how}"
        for finding in self.findings:
            if finding.anomaly is Anomaly.OLDER:
                yield f"{plural(finding.count, 'older row')} in {finding.place}"
        for one in self.checked:
            if one.dead_letters:
                yield f"{one.dead_letters:,} in {one.dead_letter_topic}"

    def _shut_out(self) -> str:
        return f"; {plural(self.fenced, 'writer')} fenced" if self.fenced else ""

    def to_pandas(self) -> pd.DataFrame:
        """One row per finding and example (a finding without examples has one row).

        Columns: `anomaly`, `count`, `place`, `connectors`, `sentence`, `text`, `partition`, `offset`, `time` (UTC),
        `event` (sequence number), `event_time` (UTC), `worker`, `moment`.
        """
        require("A data frame of findings", "notebook", "pandas")
        import pandas as pd

        rows = []
        for finding in self.findings:
            for example in finding.examples or (Example(""),):
                moment = example.moment or next(iter(finding.moments), None)
                rows.append(
                    {
                        "anomaly": finding.anomaly.value,
                        "count": finding.count,
                        "place": finding.place,
                        "connectors": ", ".join(finding.connectors),
                        "sentence": finding.sentence,
                        "text": example.text,
                        "partition": example.partition,
                        "offset": example.offset,
                        "time": example.time_ms,
                        "event": moment.seq if moment else None,
                        "event_time": moment.time_ms if moment else None,
                        "worker": moment.worker if moment else None,
                        "moment": moment.sentence if moment else "",
                    }
                )
        names = ["anomaly", "count", "place", "connectors", "sentence", "text", "partition", "offset", "time", "event"]
        table = pd.DataFrame(rows, columns=[*names, "event_time", "worker", "moment"], dtype=object)
        table["count"] = table["count"].astype("int64")
        for name in ("partition", "offset", "event"):
            table[name] = table[name].astype("Int64")
        for name in ("time", "event_time"):
            table[name] = time_column(table[name])
        return table

    def __repr__(self) -> str:
        parts = [self.sentence]
        if self.answer != "unknown":
            parts.extend(f"✕ {failed}." for failed in self.failed)
        parts.append(text_table(self._checked_rows()))
        for finding in self.findings:
            parts.append(f"{_SIGNS[finding.anomaly]} {finding.anomaly} in {finding.place}: {finding.sentence}")
            parts.extend(f"    {_moment(moment)}" for moment in finding.moments)
            parts.extend(f"    {_example(example)}" for example in finding.examples)
        if self.answer == "invalid":
            parts.extend(f"? {reason}" for reason in self.reasons)
        parts.extend(f"· {note}" for note in self.notes)
        return "\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        rows = [
            {
                "anomaly": f"{_SIGNS[finding.anomaly]} {finding.anomaly}",
                "count": f"{finding.count:,}",
                "place": finding.place,
                "what": finding.sentence,
                "when and who": "; ".join(_moment(moment) for moment in finding.moments),
                "examples": "; ".join(_example(example) for example in finding.examples),
            }
            for finding in self.findings
        ]
        facts = {"": self.sentence}
        if self.answer != "unknown" and self.failed:
            facts["failed"] = "; ".join(self.failed)
        if self.answer == "invalid" and self.reasons:
            facts["also"] = "; ".join(self.reasons)
        if self.notes:
            facts["note"] = "; ".join(self.notes)
        return html_card(f"Verdict: {self.answer}", facts, html_table(self._checked_rows()), html_table(rows))

    def _checked_rows(self) -> list[dict[str, object]]:
        return [
            {
                "place": checked.place,
                "connectors": ", ".join(checked.connectors),
                "expected": "not known" if checked.expected is None else f"{checked.expected:,}",
                "found": f"{checked.found:,}",
                **({"still missing": f"{checked.pending:,}"} if any(one.pending for one in self.checked) else {}),
                **({"dead letters": f"{checked.dead_letters:,}"} if any(c.dead_letters for c in self.checked) else {}),
            }
            for checked in self.checked
        ]


_SIGNS = dict.fromkeys(Anomaly, "✕") | {Anomaly.FENCED: "⊤", Anomaly.OLDER: "·"}


def _moment(moment: Moment) -> str:
    return f"{clock_time(moment.time_ms)} (event {moment.seq}) {moment.sentence}"


def _example(example: Example) -> str:
    where = [] if example.partition is None else [f"partition {example.partition}"]
    where += [] if example.offset is None else [f"offset {example.offset}"]
    where += [] if example.time_ms is None else [clock_time(example.time_ms)]
    return f"{example.text!r}" + (f" at {', '.join(where)}" if where else "")
