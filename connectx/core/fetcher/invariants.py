"""Rules that hold for a fetcher's core after every step. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from connectx.core.clients.messages import FetchMetadata
from connectx.core.fetcher import messages as msg
from connectx.core.fetcher.state import FetcherState
from connectx.core.rules import BrokenRule, Marks, broken_rules, gone_back


class Rule(StrEnum):
    """A rule of the fetcher's state; the value is its sentence."""

    TAKEN_WAS_FETCHED = "no record is taken that is not fetched: a position is never below what the application has"
    ONE_FETCH_PER_NODE = "each node has one Fetch to answer at a time, and metadata is asked for once"
    FETCH_AT_POSITION = "a partition is in one pending Fetch that counts, at its position"
    BUFFER_LIMIT = "the buffer holds its limit and one answer of each node at most"
    NEVER_STUCK = "a wanted partition is asked for, or waits for a time, its leader, its node or room"
    NEVER_BACK = "time, numbers that were given, and positions of a version never go back"


def marks_of(core: FetcherState) -> Marks:
    """Return what `broken_by` compares after the next step."""
    marks = {"now_ms": core.now_ms, "last request": core.requests.last_id, "last version": core.last_version}
    for target, partition in core.partitions.items():
        marks[f"position of {target}, version {partition.version}"] = partition.position
        marks[f"taken of {target}, version {partition.version}"] = partition.taken
    return marks


def broken_by(core: FetcherState, before: Marks | None) -> tuple[BrokenRule, ...]:
    """Return the rules that do not hold, none for a sound core."""
    back = () if before is None else gone_back(Rule.NEVER_BACK, before, marks_of(core))
    return (*broken_rules(_RULES, core), *back)


def _taken_was_fetched(core: FetcherState) -> Iterator[str]:
    for target, partition in core.partitions.items():
        if partition.taken > partition.position:
            yield f"{target} is at {partition.position}, and {partition.taken} is taken"


def _one_fetch_per_node(core: FetcherState) -> Iterator[str]:
    for node, count in core.requests.per_node(msg.Fetch).items():
        if count > 1:
            yield f"node {node} has {count}"
    if len(list(core.requests.of(FetchMetadata))) > 1:
        yield "metadata is asked for twice"


def _fetch_at_position(core: FetcherState) -> Iterator[str]:
    counted: Counter[object] = Counter()
    for _, request in core.requests.of(msg.Fetch):
        for fetch in request.partitions:
            partition = core.partitions.get(fetch.target)
            if partition is None or partition.version != fetch.version:
                continue
            counted[fetch.target] += 1
            if fetch.offset != partition.position:
                yield f"{fetch.target} is asked for at {fetch.offset}, its position is {partition.position}"
    for target, count in counted.items():
        if count > 1:
            yield f"{target} is asked for {count} times"


def _buffer_limit(core: FetcherState) -> Iterator[str]:
    settings = core.settings
    nodes = len({leader.node for leader in core.leaders.values()}) or 1
    largest = max(settings.max_bytes, settings.partition_max_bytes)
    buffered_bytes = sum(partition.buffered_bytes for partition in core.partitions.values())
    if buffered_bytes > settings.buffer_bytes + nodes * largest:
        yield f"{buffered_bytes} bytes are buffered"


def _never_stuck(core: FetcherState) -> Iterator[str]:
    pending = list(core.requests.of(msg.Fetch))
    busy = {node for node, _ in pending}
    asked = {(fetch.target, fetch.version) for _, request in pending for fetch in request.partitions}
    is_full = core.buffered_bytes >= core.settings.buffer_bytes
    asks_leaders = core.requests.has(FetchMetadata) or core.metadata_retry.due_ms > core.now_ms
    for target, partition in core.partitions.items():
        if not partition.is_wanted or (target, partition.version) in asked or partition.retry.due_ms > core.now_ms:
            continue
        if target not in core.leaders:
            if not asks_leaders:
                yield f"{target} has no leader, and nothing asks for it"
        elif not is_full and core.node_of(target) not in busy:
            yield f"{target} is not asked for"


_RULES: Final = {
    Rule.TAKEN_WAS_FETCHED: _taken_was_fetched,
    Rule.ONE_FETCH_PER_NODE: _one_fetch_per_node,
    Rule.FETCH_AT_POSITION: _fetch_at_position,
    Rule.BUFFER_LIMIT: _buffer_limit,
    Rule.NEVER_STUCK: _never_stuck,
}
