"""The dead letters of a sink: records that are accounted for, though its target does not hold them. Never writes.

A letter names its record by the headers of its context. Without them it is recognised by key and value, which are those
of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from connectx.errors.kafka import TopicMissingError
from connectx.plugins.settings import sink_connector_settings
from connectx.values import Value
from connectx.verify.check.identity import of_record

if TYPE_CHECKING:
    from connectx.kafka.admin.topic_snapshot import TopicSnapshot

_PREFIX = "__connect.errors."


class DeadLetters(Value):
    """What a dead letter queue holds of a sink.

    Attributes:
        topic: the queue; empty: the sink has none.
        places: topic, partition and offset of the records.
        contents: key and value of records whose letters have no context.
        count: how many records are in the queue.
        hidden: why not all letters can be seen.
    """

    topic: str = ""
    places: frozenset[tuple[str, int, int]] = frozenset()
    contents: frozenset[bytes] = field(default=frozenset(), repr=False)
    count: int = 0
    hidden: tuple[str, ...] = ()

    def has(self, record: Mapping[str, Any]) -> bool:
        """Whether a record of a topic is in the queue."""
        if (record["topic"], record["partition"], record["offset"]) in self.places:
            return True
        return bool(self.contents) and of_record(record["key"], record["value"]) in self.contents


NONE = DeadLetters()


def read_dead_letters(
    sink: str, config: Mapping[str, str | None], snapshot: Callable[[str], TopicSnapshot]
) -> DeadLetters:
    """The dead letters of a sink; none if it has no queue, or the queue does not exist yet.

    Raises:
        TopicUnreadableError and Kafka's errors: the queue cannot be read.
    """
    topic = sink_connector_settings(config).dead_letter_topic
    if topic is None:
        return NONE
    try:
        taken = snapshot(topic)
    except TopicMissingError:
        return DeadLetters(topic)
    places: set[tuple[str, int, int]] = set()
    contents: list[bytes] = []
    for records in taken.read():
        for record in records.to_pylist():
            headers = {header["key"]: header["value"] for header in record["headers"] or ()}
            owner = headers.get(f"{_PREFIX}connector.name")
            if owner is not None and owner.decode(errors="replace") != sink:
                continue
            place = _place(headers)
            if place is None:
                contents.append(of_record(record["key"], record["value"]))
            else:
                places.add(place)
    return DeadLetters(topic, frozenset(places), frozenset(contents), len(places) + len(contents), taken.hidden)


def _place(headers: Mapping[str, bytes | None]) -> tuple[str, int, int] | None:
    topic, partition, offset = (headers.get(_PREFIX + name) for name in ("topic", "partition", "offset"))
    try:
        return (topic or b"").decode(), int(partition or b""), int(offset or b"")
    except ValueError:
        return None
