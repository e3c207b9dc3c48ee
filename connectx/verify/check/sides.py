"""Both sides of a comparison as rows: the records of topics and the rows of a target. Never writes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from connectx.history.wording import listing
from connectx.model.causes import RefusedByKafka
from connectx.model.events import Event, EventKind
from connectx.model.ids import TopicPartition
from connectx.model.payloads import OffsetsCommitted, RecordsSkipped, TargetHeld
from connectx.plugins.stored import Stored
from connectx.values import Value
from connectx.verify.check.dead_letters import NONE, DeadLetters
from connectx.verify.check.identity import lines_of_value, of_fields, of_record, parsed, shown
from connectx.verify.check.rows import Row, Rows, fingerprint

if TYPE_CHECKING:
    import pyarrow as pa

    from connectx.kafka.admin.topic_snapshot import TopicSnapshot

Values = list[tuple[Any, Any]]
"""Key and value of each record of a chunk; (None, UNREADABLE) where a converter cannot read it."""

UNREADABLE = object()

Decode = Callable[[str, "pa.Table"], Values]
"""Key and value of records of a topic, which have the columns of FetchedRecords."""

Record = Mapping[str, Any]
"""A row of these."""


class Topic(Value):
    """A topic to be read, and how its records are understood."""

    snapshot: TopicSnapshot
    decode: Decode


def decode_plainly(topic: str, records: pa.Table) -> Values:
    """Without a converter: JSON, or text."""
    keys, values = records["key"].to_pylist(), records["value"].to_pylist()
    return [(parsed(key), parsed(value)) for key, value in zip(keys, values, strict=True)]


def topic_rows(topic: Topic, key: Sequence[str]) -> Rows:
    """A topic's records as they are, or identified by fields of value and key."""

    def read() -> Iterator[Row]:
        for records in topic.snapshot.read():
            decoded = topic.decode(topic.snapshot.topic, records) if key else [(None, None)] * records.num_rows
            for record, (record_key, value) in zip(records.to_pylist(), decoded, strict=True):
                identity = of_record(record["key"], record["value"])
                if key and (fields := _fields(record_key, value, key)) is not None:
                    identity = of_fields(fields, key)
                yield row_of(record, identity, record["value"] or b"null")

    return Rows(f"topic {topic.snapshot.topic}", read, topic.snapshot.size)


def joined_rows(places: Sequence[Rows]) -> Rows:
    """Rows of several topics as those of one place; equal ones of two topics are not the same."""
    if len(places) == 1:
        return places[0]

    def read() -> Iterator[Row]:
        for rows in places:
            for row in rows.read():
                yield replace(row, identity=f"{row.topic}\0".encode() + row.identity)

    return Rows(listing([rows.place for rows in places]), read, sum(rows.size for rows in places))


class Repeated(Value):
    """Keys that several records of a topic are about, by fingerprint, and the other fields that can be compared."""

    ordered: frozenset[int]
    """All records of the key are in one partition, so the last one is known."""
    unordered: frozenset[int]
    """The last values of the row are not known."""
    fields: tuple[str, ...]
    kept: tuple[str, ...] = ()
    """Those of `fields` that have placeholders in some records, which leave the value as it was."""


@dataclass(slots=True)
class _Versions:
    """Versions of one row in the records: the version that is committed, and those that may have come since."""

    committed: Row | None = None
    outdated: Row | None = None
    """The version before the last record."""
    pending: list[Row] = field(default_factory=list)
    may_be_deleted: bool = False

    def add(self, row: Row, *, deletes: bool) -> None:
        if not row.pending:
            self.outdated, self.committed = self.committed, None if deletes else row
        elif deletes:
            self.may_be_deleted = True
        else:
            self.pending.append(row)

    def rows(self) -> Iterator[Row]:
        """The required row, or those of which one may be there."""
        versions = {row.identity: row for row in (self.committed, *self.pending) if row is not None}
        is_needed = self.committed is not None and len(versions) == 1 and not self.may_be_deleted
        for row in versions.values():
            yield replace(row, pending=not is_needed)


class Sides(Value):
    """Topics and the target that they go to.

    Args:
        committed: committed offset of the sink, by partition; None: all rows are expected.
        key: fields that identify a row; empty: all fields that both sides have.
    """

    topics: Sequence[Topic]
    stored: Stored
    committed: Mapping[str, int] | None
    key: tuple[str, ...] = ()
    take_again: Callable[[str], TopicSnapshot] | None = None
    """Takes a snapshot of a topic when `wanted` is read first. The target, which is read before, may hold more than
    the topic did when its own snapshot was taken."""
    dead_letters: DeadLetters = NONE
    mark: int = 0
    """Up to where the target was filled before the connector was created, as its first task has reported."""
    _taken: dict[str, Topic] = field(default_factory=dict)
    _found_repeated: list[Repeated] = field(default_factory=list)
    _partial: set[str] = field(default_factory=set)
    _outdated: array[int] = field(default_factory=lambda: array("Q"))
    changed: set[str] = field(default_factory=set)
    """Topics in which a key came again when they were read last, of whose row only the key was compared."""

    @property
    def named_key(self) -> tuple[str, ...]:
        """The fields that identify a row, as the caller or the target names them."""
        return self.key or self.stored.key

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that are compared; none when lines are."""
        if self.named_key or self.stored.lines:
            return self.named_key
        columns: Sequence[str] = next((table.column_names for table in self.stored.read()), [])
        values = (value for topic in self.topics for _, _, value in read_records(topic) if isinstance(value, Mapping))
        known = next((set(value) for value in values), set(columns))
        return tuple(sorted(known & set(columns)))

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why a comparison would only count rows: rows without a field are all equal."""
        columns = None if self.stored.lines else next((table.column_names for table in self.stored.read()), None)
        if columns is None:
            return ()
        names, place = self.names, self.stored.place
        if not names:
            return (f"the records and {place} have no field in common",)
        missing = [name for name in names if name not in columns]
        return (f"the field {missing[0]}, which was to identify rows, is not in {place}",) if missing else ()

    def wanted(self) -> Rows:
        """What the topics hold, as the target should have it."""
        place = " and ".join(f"topic {topic.snapshot.topic}" for topic in self.topics)
        rows = self._wanted_lines if self._as_lines else lambda: self._wanted_fields(self.names)
        size = sum(topic.snapshot.size for topic in self.topics)
        if self._is_changed:
            return Rows(place, self._kept, size)
        return Rows(place, rows if not self.stored.key else lambda: self._first_of_each(rows()), size)

    def unchecked(self) -> tuple[str, ...]:
        """What was not compared, known once the topics were read: values of rows whose last record is not known."""
        why = " from several partitions" if self._is_changed else ""
        partly = " without all of their values"
        return tuple(
            f"records of topic {topic} change rows of {self.stored.place}{partly if topic in self._partial else why}, "
            "of which only the keys were compared"
            for topic in sorted(self.changed)
        )

    def outdated(self) -> Sequence[int]:
        """Fingerprints of rows as they were before the last record of their key, known once the topics were read."""
        return self._outdated

    def found(self) -> Rows:
        return Rows(self.stored.place, self._found_lines if self._as_lines else self._found_fields)

    @property
    def _as_lines(self) -> bool:
        return self.stored.lines and not self.key

    def latest(self) -> Iterator[Topic]:
        """The topics as they were after the target was read, for a reader that reads the target first."""
        for topic in self.topics:
            name = topic.snapshot.topic
            if self.take_again is not None and name not in self._taken:
                self._taken[name] = Topic(self.take_again(name), topic.decode)
            yield self._taken.get(name, topic)

    def _wanted_lines(self) -> Iterator[Row]:
        for number, topic in enumerate(self.latest()):
            for record, _, value in read_records(topic):
                for line in lines_of_value(value):
                    yield self._placed(record, line.encode(), line, number)

    def _wanted_fields(self, names: Sequence[str]) -> Iterator[Row]:
        for number, topic in enumerate(self.latest()):
            for record, record_key, value in read_records(topic):
                fields, deletes = fields_of(self.stored.change, record_key, value, names)
                if fields is not None and not deletes:
                    identity = of_fields(fields, names)
                    yield self._placed(record, identity, {name: fields.get(name) for name in names}, number)

    @property
    def _is_changed(self) -> bool:
        """Whether records change and delete rows that the target keeps by key."""
        return bool(self.stored.key) and self.stored.change is not None

    def _repeated(self) -> Repeated:
        """Found once: both sides have to identify the row of a key in the same way."""
        if not self._found_repeated:
            names = self.names
            first: dict[int, tuple[int, int]] = {}
            ordered: set[int] = set()
            unordered: set[int] = set()
            known: set[str] = set()
            kept: set[str] = set()
            deleted: set[int] = set()
            for number, topic in enumerate(self.topics):
                for record, key, value in read_records(topic):
                    fields, deletes = fields_of(self.stored.change, key, value, names)
                    if fields is None or self.dead_letters.has(record):
                        continue
                    known |= set() if deletes else set(fields)
                    one, place = fingerprint(of_fields(fields, names)), (number, record["partition"])
                    marked = set() if deletes else _marked(fields)
                    kept |= marked
                    if marked and (one not in first or one in deleted):
                        unordered.add(one)  # what is kept is the value of a row that no record shows
                        self._partial.add(topic.snapshot.topic)
                    if deletes:
                        deleted.add(one)
                    else:
                        deleted.discard(one)
                    if one not in first:
                        first[one] = place
                    else:
                        (ordered if first[one] == place else unordered).add(one)
            columns: Sequence[str] = next((table.column_names for table in self.stored.read()), ())
            compared = tuple(sorted((known & set(columns)) - set(names)))
            self._found_repeated.append(
                Repeated(
                    frozenset(ordered - unordered), frozenset(unordered), compared, tuple(sorted(kept & set(compared)))
                )
            )
        return self._found_repeated[0]

    def _identity(self, fields: Mapping[str, Any], names: Sequence[str]) -> bytes:
        """The key of a row, and its other fields where records have changed it."""
        identity = of_fields(fields, names)
        if self._is_changed and (repeated := self._repeated()).fields and fingerprint(identity) in repeated.ordered:
            return identity + of_fields(fields, repeated.fields)
        return identity

    def _first_of_each(self, rows: Iterator[Row]) -> Iterator[Row]:
        """A target that keeps one row for each key has to have each once."""
        seen: set[int] = set()
        excused: dict[int, Row] = {}
        for row in rows:
            one = fingerprint(row.identity)
            if row.excused:
                excused.setdefault(one, row)
            elif one not in seen:
                seen.add(one)
                yield row
            else:
                self.changed.add(row.topic)
        yield from (row for one, row in excused.items() if one not in seen)

    def _kept(self) -> Iterator[Row]:
        """The rows that are left after the last record of each key; with records that are pending these may be."""
        versions: dict[int, _Versions] = {}
        before: dict[int, Mapping[str, Any]] = {}
        del self._outdated[:]
        names, repeated = self.names, self._repeated()
        for number, topic in enumerate(self.latest()):
            for record, record_key, value in read_records(topic):
                fields, deletes = fields_of(self.stored.change, record_key, value, names)
                if fields is None or self.dead_letters.has(record):
                    continue
                one = fingerprint(of_fields(fields, names))
                if repeated.kept and not deletes:
                    marked, old = _marked(fields), before.get(one, {})
                    fields = {**fields, **{name: old[name] for name in marked if name in old}}
                    before[one] = {name: fields[name] for name in repeated.kept if name in fields}
                shown_fields = {name: fields.get(name) for name in names}
                row = self._placed(record, self._identity(fields, names), shown_fields, number)
                if one in repeated.unordered and repeated.fields:
                    self.changed.add(row.topic)
                version = versions.setdefault(one, _Versions())
                version.add(row, deletes=deletes)
                if version.outdated is not None:
                    self._outdated.append(fingerprint(version.outdated.identity))
        for each in versions.values():
            yield from each.rows()

    def _placed(self, record: Record, identity: bytes, text: Any, number: int) -> Row:
        at = TopicPartition(record["topic"], record["partition"])
        reached = None if self.committed is None else self.committed.get(str(at), 0)
        pending = reached is not None and record["offset"] >= reached
        return row_of(record, identity, text, pending=pending, excused=self.dead_letters.has(record))

    def _older(self) -> int:
        """How many rows, the first ones, are older than the connector."""
        return self.stored.rows_before(self.mark) if self.mark and self.stored.rows_before else 0

    def _found_lines(self) -> Iterator[Row]:
        left = self._older()
        for table in self.stored.read():
            for line in table.column(0).to_pylist():
                left -= 1
                yield Row((line or "").encode(), shown(line or ""), older=left >= 0)

    def _found_fields(self) -> Iterator[Row]:
        names = self.names
        read = (*names, *(self._repeated().fields if self._is_changed else ()))
        left = self._older()
        for table in self.stored.read():
            if self.stored.lines:
                rows = [fields_of_line(line, names) for line in table.column(0).to_pylist()]
            else:
                rows = table.select([name for name in read if name in table.column_names]).to_pylist()
            for fields in rows:
                left -= 1
                text = shown({name: fields.get(name) for name in names})
                yield Row(self._identity(fields, names), text, older=left >= 0)


def fields_of_line(line: str | None, names: Sequence[str]) -> Mapping[str, Any]:
    """Fields of a line that is a JSON object; other lines are the value of the first field."""
    value = parsed((line or "").encode())
    return value if isinstance(value, Mapping) else {names[0]: value}


def read_records(topic: Topic) -> Iterator[tuple[Record, Any, Any]]:
    """Records that can be read, with key and value."""
    for records in topic.snapshot.read():
        decoded = topic.decode(topic.snapshot.topic, records)
        for record, (key, value) in zip(records.to_pylist(), decoded, strict=True):
            if value is not UNREADABLE:
                yield record, key, value


def fields_of(
    change: Callable[[Any, Any], tuple[Mapping[str, Any] | None, bool]] | None,
    key: Any,
    value: Any,
    names: Sequence[str],
) -> tuple[Mapping[str, Any] | None, bool]:
    """The row that a record is about, and whether the record deletes it; `change` is `Stored.change`."""
    return change(key, value) if change is not None else (_fields(key, value, names), False)


def _marked(fields: Mapping[str, Any]) -> set[str]:
    """Fields with the placeholder of a value that the source did not send, which a sink that updates rows keeps."""
    from connectx.connectors.shared.unavailable import is_placeholder

    return {name for name, value in fields.items() if is_placeholder(value)}


def _fields(key: Any, value: Any, names: Sequence[str]) -> Mapping[str, Any] | None:
    """Fields of a record: those of its value, and of its key where the value has none of that name."""
    if value is None or value is UNREADABLE:
        return None
    fields = dict(value) if isinstance(value, Mapping) else {names[0]: value} if names else {}
    if isinstance(key, Mapping):
        fields = {**key, **fields}
    elif len(names) == 1 and names[0] not in fields:
        fields[names[0]] = key
    return fields


def row_of(record: Record, identity: bytes, text: Any, *, pending: bool = False, excused: bool = False) -> Row:
    return Row(
        identity,
        shown(text),
        record["partition"],
        record["offset"],
        record["timestamp"],
        record["topic"],
        pending,
        excused,
    )


def committed_by(events: Sequence[Event], connector: str | None = None) -> dict[str, int]:
    """Committed offsets of all sinks (or of one), by name of the partition."""
    reached: dict[str, int] = {}
    for event in events:
        offsets = event.payload.offsets if isinstance(event.payload, OffsetsCommitted) else None
        if isinstance(offsets, Mapping) and connector in (None, event.connector):
            for partition, offset in offsets.items():
                reached[partition] = max(reached.get(partition, 0), offset)
    return reached


def mark_of(events: Sequence[Event], connector: str) -> int:
    """Up to where the target was filled before the connector was created; 0 if the history does not show that.

    The first task of a connector that was created after the cluster's first rebalance is the first one of all.
    """
    has_begun = False
    marks = []
    for event in events:
        if event.connector == connector:
            if not has_begun:
                return 0
            if isinstance(event.payload, TargetHeld):
                marks.append(event.payload.mark)
        has_begun = has_begun or event.kind is EventKind.REBALANCE_COMPLETED
    return min(marks, default=0)


def skipped_by(
    events: Sequence[Event], connectors: Sequence[str], *, by_kafka: bool = False, with_dead_letters: bool = True
) -> int:
    """Records that these connectors have skipped as errors.tolerance allows.

    With `by_kafka` those that Kafka refused: a source had made records of them. Others never become one.
    """
    return sum(
        event.payload.records - (0 if with_dead_letters else event.payload.dead_letters)
        for event in events
        if isinstance(event.payload, RecordsSkipped)
        and event.connector in connectors
        and (not by_kafka or isinstance(event.why, RefusedByKafka))
    )
