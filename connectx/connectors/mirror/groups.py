"""Translates offsets that groups have committed in the source into offsets of the target.

A mirrored record has its source offset in a header. The translated offset is that of the first record of the target
whose source offset is not below the group's. It is found by binary search, whatever lies between: transaction markers,
compacted, filtered or repeated records. MirrorMaker 2 translates by samples (offset syncs), and repeats records between
two of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from connectx.connectors.mirror.clients import client_config
from connectx.connectors.mirror.config import SOURCE_ADMIN, TARGET_ADMIN, Naming, matches
from connectx.errors.kafka import KafkaRequestError, OffsetOutOfRangeError
from connectx.kafka.admin.client import CALL_S, Admin
from connectx.kafka.admin.groups import GroupClient
from connectx.kafka.admin.inspection import Inspection
from connectx.kafka.fetcher.fetcher import RecordFetcher
from connectx.kafka.settings.client_config import kafka_python_config
from connectx.model.decoding import whole_number
from connectx.model.ids import TopicPartition

log = logging.getLogger(__name__)

_IDLE_STATES: Final = ("Empty", "Dead")
_POLL_S: Final = 0.5
_PROBE_RECORDS: Final = 100
# Small, and soon: a translation is dozens of probes, each of which may find nothing until the end of a partition.
_PROBE: Final = {"max.partition.fetch.bytes": "65536", "fetch.wait.max.ms": "20"}

Probe = Callable[[int], tuple[int, int] | None]


class GroupOffsets:
    """Sets offsets of groups in the target.

    Args:
        source, target: clients of the clusters.
        naming: names of topics in the target.
        values: parsed keys of the connector, `config` as they were given.
    """

    def __init__(
        self, source: Admin, target: Admin, naming: Naming, values: Mapping[str, Any], config: Mapping[str, str]
    ) -> None:
        self._source = source
        self._target = target
        self._naming = naming
        self._wanted = tuple(values["groups"]), tuple(values["groups.exclude"])
        self._header = values["source.offset.header"]
        self._config = config

    def sync(self, topics: Mapping[str, int]) -> dict[str, dict[TopicPartition, int]]:
        """Translate the offsets of all groups, and set those that move forward; returns what was set, by group.

        Args:
            topics: partitions of each mirrored topic.

        Raises:
            KafkaUnreachableError, KafkaLoginError, KafkaPermissionError, KafkaRequestError
        """
        with Inspection(kafka_python_config(client_config(self._config, SOURCE_ADMIN, "connectx-mirror"))) as source:
            listed = sorted({*source.groups("consumer"), *source.groups("")})  # without a type: it never had members
        groups = [group for group in listed if matches(group, *self._wanted)]
        done: dict[str, dict[TopicPartition, int]] = {}
        for group in groups:
            committed = {at: offset for at, offset in self._source.group_offsets(group).items() if at.topic in topics}
            if committed and (moved := self._move(group, committed)):
                done[group] = moved
        return done

    def _move(self, group: str, committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        config = kafka_python_config(client_config(self._config, TARGET_ADMIN, "connectx-mirror"))
        state = GroupClient(config, group, CALL_S).describe().state
        if state not in _IDLE_STATES:
            log.info("offsets of group %s stay: it has members in the target", group)
            return {}
        present = self._target.group_offsets(group)
        found = {at: offset for at, offset in self._translated(committed).items() if offset > present.get(at, -1)}
        if found:
            self._target.alter_group_offsets(group, found)
            log.info(
                "offsets of group %s in the target are %s", group, {str(at): offset for at, offset in found.items()}
            )
        return found

    def _translated(self, committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets of the target by partition of the target; without those that have no match."""
        places = {TopicPartition(self._naming.target(at.topic), at.partition): at for at in committed}
        starts = self._target.start_offsets(places)
        ends = self._target.end_offsets(places, committed=True)
        config = client_config(self._config, TARGET_ADMIN, "connectx-mirror-search")
        fetcher = RecordFetcher({**config, **_PROBE})
        fetcher.start()
        found: dict[TopicPartition, int] = {}
        try:
            for at, source in places.items():

                def probe(offset: int, at: TopicPartition = at) -> tuple[int, int] | None:
                    return first_mirrored(fetcher, at, offset, ends[at], self._header)

                try:
                    offset = translated(committed[source], starts[at], ends[at], probe)
                except OffsetOutOfRangeError as error:  # the target has removed records meanwhile
                    log.info("the offset of %s is translated later: %s", at, error.message)
                    continue
                if offset is not None:
                    found[at] = offset
        finally:
            fetcher.close()
        return found


def translated(wanted: int, start: int, end: int, probe: Probe) -> int | None:
    """Offset of the first mirrored record in [start, end) whose source offset is at least `wanted`.

    Args:
        probe: (offset, source offset) of the first mirrored record at or after an offset; None: none before the end.

    Returns:
        The offset; the one after the last mirrored record if all are below `wanted`. None if no record was mirrored.
    """
    first = probe(start)
    if first is None or first[1] >= wanted:
        return None if first is None else first[0]
    below, low, high = first[0], first[0] + 1, end
    while low < high:
        middle = (low + high) // 2
        found = probe(middle)
        if found is None or found[1] >= wanted:
            high = middle
        else:
            below, low = found[0], found[0] + 1
    reached = probe(low) if low < end else None
    return below + 1 if reached is None else reached[0]


def first_mirrored(
    fetcher: RecordFetcher, at: TopicPartition, offset: int, end: int, header: str
) -> tuple[int, int] | None:
    """(offset, source offset) of the first record with the header in [offset, end) of a partition; None without one.

    Raises:
        KafkaRequestError: the target does not answer.
    """
    if offset >= end:
        return None
    fetcher.fetch_from({at: offset})
    deadline_s = time.monotonic() + CALL_S
    try:
        while time.monotonic() < deadline_s:
            fetched = fetcher.poll(_POLL_S, _PROBE_RECORDS)
            if fetched is None:
                continue
            for row, headers in enumerate(fetched.rows["headers"].to_pylist()):
                place = fetched.rows["offset"][row].as_py()
                if place >= end:
                    return None
                for name, raw in [(h["key"], h["value"]) for h in reversed(headers or ())]:
                    text = (raw or b"").decode("ascii", "replace")
                    if name == header and (number := whole_number(text)) is not None:
                        return place, number
            if max(fetched.ends.get(at, 0), fetched.ranges.get(at, (0, 0))[1]) >= end:
                return None
            deadline_s = time.monotonic() + CALL_S
    finally:
        fetcher.forget([at])
    raise KafkaRequestError(
        f"read {at} of the target", fetcher.trouble or "no answer came", next_step="Check the brokers of the target."
    )
