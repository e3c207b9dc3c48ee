"""What must always hold of the data, looked at after each commit: invariants 1 to 3 of sources and 8 of sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connectx.model.ids import TopicPartition
from tests.simulation.invariants import broken
from tests.simulation.sim_source import OFFSETS_TOPIC, PARTITIONS, TOPIC_PARTITIONS, SimSource, is_dropped, topic_of

if TYPE_CHECKING:
    from tests.simulation.sim_consumer import SimConsumer
    from tests.simulation.sim_sink import Row, SimSink
    from tests.simulation.world import World

Place = tuple[str, int]  # connector and source partition


@dataclass
class SourceChecks:
    """What a read_committed consumer has seen so far, and the source offsets in the offsets topic."""

    world: World
    read: dict[tuple[str, int], int] = field(default_factory=dict)  # topic partition to the next log offset
    seen: dict[Place, int] = field(default_factory=dict)  # all kept numbers below are there
    offsets: dict[Place, int] = field(default_factory=dict)
    waiting: list[tuple[Place, int, int]] = field(default_factory=list)  # place, source offset, end of its log then
    begun: dict[Place, SimSource] = field(default_factory=dict)  # who began last with a source partition

    def on_begin(self, task: SimSource) -> None:
        """It may commit from now on, and nobody before it."""
        for partition in task.partitions:
            self.begun[task.connector, partition] = task

    def on_commit(self, task: SimSource) -> None:
        """1: nobody commits for a source partition that a later instance has begun with."""
        for partition in task.partitions:
            later = self.begun.get((task.connector, partition), task)
            if later is not task:
                broken(1, f"{whose(task)} commits after {whose(later)} has begun with source partition {partition}")

    def look(self) -> None:
        """Read on, as a read_committed consumer does."""
        for connector in self.world.produced:
            for partition in range(TOPIC_PARTITIONS):
                for value in self.read_on(topic_of(connector), partition):
                    self.on_record((connector, value[0]), value[1])
        for place, offset in self.read_on(OFFSETS_TOPIC, 0):
            self.on_offset(place, offset)
        if self.waiting:
            self.waiting = [waits for waits in self.waiting if not self.is_covered(*waits)]

    def read_on(self, topic: str, partition: int) -> Sequence[tuple[Any, int]]:
        log = self.world.broker.log(topic, partition)
        first, end = self.read.get((topic, partition), 0), log.last_stable
        if first == end:
            return ()
        self.read[topic, partition] = end
        return [value for _, value in log.read(first)]

    def on_record(self, place: Place, number: int) -> None:
        expected = next_kept(self.seen.get(place, 0))
        if number > expected:
            broken(2, f"{number} comes after {expected - 1} in source partition {place}: a gap")
        if number < expected and self.world.exactly_once:
            broken(2, f"{number} is there twice in source partition {place}")
        if number == expected:
            self.seen[place] = number + 1

    def on_offset(self, place: Place, offset: int) -> None:
        """3: forward, and not ahead. An open transaction of another task may hide the records for a while."""
        if self.world.exactly_once and offset < self.offsets.get(place, 0):
            broken(3, f"the source offset of {place} goes back from {self.offsets[place]} to {offset}")
        self.offsets[place] = offset
        self.waiting.append((place, offset, self.world.broker.end(*log_of(place))))

    def is_covered(self, place: Place, offset: int, log_end: int) -> bool:
        """True when its records can be seen; False while they may be hidden."""
        seen = self.seen.get(place, 0)
        if offset <= next_kept(seen):
            return True
        if self.read.get(log_of(place), 0) >= log_end:
            broken(3, f"the source offset {offset} of {place} is ahead of its records ({seen})")
        return False

    def offsets_in_topic(self) -> dict[Place, int]:
        """What a task that starts finds: the offsets topic read to its last stable offset."""
        return dict(value for _, value in self.world.broker.read(OFFSETS_TOPIC, 0, 0))

    def lag(self, connector: str) -> str | None:
        """What is still missing of a source connector's data, None when all is there."""
        self.look()
        for partition in range(PARTITIONS):
            place, made = (connector, partition), self.world.made(connector, partition)
            if next_kept(self.seen.get(place, 0)) < made:
                return f"source partition {place} is at {self.seen.get(place, 0)} of {made}"
        return None


@dataclass
class SinkChecks:
    """What was acknowledged, by connector and partition."""

    world: World
    verified: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)

    def on_commit(self, consumer: SimConsumer, member_id: str, offsets: dict[TopicPartition, int]) -> None:
        """8: rows first, then offsets; and only of partitions that this member owns."""
        task = consumer.task
        owned = consumer.group.assignments.get(member_id, ())
        for partition, offset in offsets.items():
            if partition not in owned:
                broken(8, f"{task.order.task} on {task.worker.name} commits {partition}, which it does not own")
            first = self.verified.get((task.connector, partition), 0)
            if (missing := self.missing(task.connector, partition, first, offset)) is not None:
                broken(8, f"{task.connector} acknowledges {partition} up to {offset} without {missing}")
            self.verified[task.connector, partition] = max(first, offset)

    def missing(self, connector: str, partition: TopicPartition, first: int, end: int) -> int | None:
        """The first record in that range that the target does not hold."""
        rows = self.world.targets[connector].rows
        for offset, _ in self.world.broker.read(partition.topic, partition.partition, first):
            if offset >= end:
                break
            if rows[partition, offset] == 0:
                return offset
        return None

    def on_rows(self, task: SimSink, rows: list[Row]) -> None:
        """8: an exactly-once sink holds each row once."""
        for row in rows:
            if task.target.rows[row] > 1:
                broken(8, f"{task.order.task} on {task.worker.name} puts row {row[0]} {row[1]} for the second time")

    def lag(self, connector: str) -> str | None:
        """What a sink connector has not acknowledged yet, None when all is."""
        from tests.simulation.sim_sink import TOPICS

        group = self.world.broker.group(f"connect-{connector}")
        for topic, partitions in TOPICS.items():
            for number in range(partitions):
                end = self.world.broker.last_stable(topic, number)
                if (group.committed(topic, number) or 0) != end:
                    return f"{connector} is at {group.committed(topic, number)} of {end} in {topic}-{number}"
                if (row := self.missing(connector, TopicPartition(topic, number), 0, end)) is not None:
                    return f"{connector} misses {topic}-{number} {row}"
        return None


def log_of(place: Place) -> tuple[str, int]:
    """Topic partition that a source partition's records go to."""
    return topic_of(place[0]), place[1] % TOPIC_PARTITIONS


def next_kept(number: int) -> int:
    """The first number from here on that no transform drops."""
    return number + is_dropped(number)


def whose(task: SimSource) -> str:
    return f"{task.order.task} (instance {task.order.instance} on {task.worker.name}, epoch {task.producer_epoch})"
