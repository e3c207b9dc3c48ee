"""Records that change rows, applied in order: what rows they leave, and which of them are copies or out of order.

For a source that cannot be read again. Rows that the records of a topic leave are compared with those that the source
holds, and places in the log of the source show records that came twice.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectx.history.wording import listing
from connectx.plugins.stored import RowChange
from connectx.verify.check.identity import canonical, of_fields, shown
from connectx.verify.check.rows import Row, Rows, fingerprint
from connectx.verify.check.sides import Topic, read_records, row_of

HeldRecord = tuple[str, Any, Any]
"""Topic, key and value of a record that a source would send of a row that it holds."""


@dataclass(slots=True)
class _Left:
    """The rows that records leave: by topic and key, and those without a key by topic."""

    keyed: dict[tuple[str, bytes], Mapping[str, Any]] = field(default_factory=dict)
    keyless: dict[str, Counter[str]] = field(default_factory=dict)
    doubtful: set[tuple[str, str]] = field(default_factory=set)
    """Topics and fields where a null may stand for a value that the source did not send."""

    def apply(self, topic: str, change: RowChange) -> None:
        if change.clears:
            self.keyless.pop(topic, None)
            for at in [at for at in self.keyed if at[0] == topic]:
                del self.keyed[at]
        elif change.key is not None:
            self._apply_keyed((topic, _identity(change.key)), change)
        else:
            rows = self.keyless.setdefault(topic, Counter())
            rows.update([_text(change.after)] if change.after is not None else [])
            rows.subtract([_text(change.before)] if change.before is not None else [])

    def _apply_keyed(self, at: tuple[str, bytes], change: RowChange) -> None:
        before = self.keyed.pop(at, {})
        if change.after is not None:
            self.keyed[at] = {**change.after, **{name: before[name] for name in change.kept if name in before}}
            self.doubtful |= {
                (at[0], name)
                for name, value in before.items()
                if isinstance(value, list) and change.after.get(name, value) is None
            }

    def rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Topic and fields of each row."""
        for (topic, _), fields in self.keyed.items():
            yield topic, fields
        for topic, rows in self.keyless.items():
            for text in rows.elements():
                yield topic, json.loads(text)


@dataclass(slots=True)
class Replay:
    """The topics of one source, and the rows that it holds.

    Args:
        topics: all that it has used.
        held: read after the ends of the topics were taken.
        change: what a record does.
        is_ahead: whether the source may hold changes that were not captured yet.
    """

    topics: Sequence[Topic]
    held: Sequence[HeldRecord]
    change: Callable[[Any, Any], RowChange | None]
    is_ahead: Callable[[], bool]
    _late: array[int] = field(default_factory=lambda: array("Q"))
    _compared: tuple[list[Row], list[Row], tuple[str, ...]] | None = None

    @property
    def place(self) -> str:
        return listing([f"topic {topic.snapshot.topic}" for topic in self.topics])

    def records(self) -> Rows:
        """All records; those with the same place in the log of the source have the same identity."""

        def read() -> Iterator[Row]:
            del self._late[:]
            highest: dict[tuple[str, int], tuple[int, ...]] = {}
            for topic in self.topics:
                for record, key, value in read_records(topic):
                    change = self.change(key, value)
                    at = (record["topic"], record["partition"])
                    place = change.place if change is not None else None
                    known = (*at, record["offset"]) if change is None or place is None else (at[0], change.key, place)
                    row = row_of(record, _identity(known), record["value"] or b"null")
                    if change is not None and change.order is not None:
                        if change.order < highest.get(at, change.order):
                            self._late.append(fingerprint(row.identity))
                        highest[at] = max(highest.get(at, change.order), change.order)
                    yield row

        return Rows(self.place, read, sum(topic.snapshot.size for topic in self.topics))

    def late(self) -> Sequence[int]:
        """Fingerprints of records after one that follows them in the log, known once `records` was read."""
        return self._late

    def left(self) -> Rows:
        return Rows(f"{self.place}, replayed", lambda: self._compare()[0])

    def wanted(self, source: str) -> Rows:
        return Rows(source, lambda: self._compare()[1])

    def unchecked(self) -> tuple[str, ...]:
        """Fields that were not compared, as parts of sentences."""
        return self._compare()[2]

    def _compare(self) -> tuple[list[Row], list[Row], tuple[str, ...]]:
        if self._compared is None:
            made, held = _Left(), _Left()
            for topic in self.topics:
                for record, key, value in read_records(topic):
                    if (change := self.change(key, value)) is not None:
                        made.apply(record["topic"], change)
            for name, key, value in self.held:
                if (change := self.change(key, value)) is not None:
                    held.apply(name, change)
            names, skipped = _common_fields([*made.rows(), *held.rows()], made.doubtful)
            self._compared = _rows(made, names), _rows(held, names), skipped
        return self._compared


def _rows(left: _Left, names: Mapping[str, Sequence[str]]) -> list[Row]:
    return [
        Row(f"{topic}\0".encode() + of_fields(fields, names[topic]), shown(fields), topic=topic)
        for topic, fields in left.rows()
    ]


def _common_fields(
    rows: Sequence[tuple[str, Mapping[str, Any]]], doubtful: set[tuple[str, str]]
) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """By topic, the fields that all rows have and that are not doubtful; and which were left out."""
    every: dict[str, set[str]] = {}
    common: dict[str, set[str]] = {}
    for topic, fields in rows:
        every.setdefault(topic, set()).update(fields)
        common.setdefault(topic, set(fields)).intersection_update(fields)
    for topic, name in doubtful:
        common.get(topic, set()).discard(name)
    skipped = tuple(
        f"the field {name} of topic {topic} was not compared: not all records have its value"
        for topic in sorted(every)
        for name in sorted(every[topic] - common[topic])
    )
    return {topic: sorted(names) for topic, names in common.items()}, skipped


def _identity(value: Any) -> bytes:
    return json.dumps(canonical(value), sort_keys=True).encode()


def _text(fields: Mapping[str, Any]) -> str:
    return json.dumps(canonical(fields), sort_keys=True)
