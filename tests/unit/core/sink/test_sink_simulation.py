"""Random histories of two sink loops, a consumer group and a target, all simulated from one seed.

The world does to the loops what real ones do: partitions move, members are dropped, puts fail before or after they
took effect, commits and flushes fail, jobs of executors end early, late or never, tasks pause, stop, are killed and
start again. After each step nothing may be
acknowledged that is not in the target, and in the end everything is there, with an exactly-once target once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from connectx.core.lanes import BulkMode, LaneSettings
from connectx.core.loops.messages import CoresKnown, Done, NotDone, QueryCores, StartPlugin
from connectx.core.sink import messages as m
from connectx.core.sink.loop import SinkTaskCore
from connectx.core.sink.progress import SinkTaskSettings
from connectx.model.ids import TaskId, TopicPartition
from tests.support.task_loops import Orders, feed

PARTITIONS = tuple(TopicPartition(topic, number) for topic in ("a", "b") for number in range(2))
RECORDS = 60


ORDERS = Orders(TaskId("s", 0))
PAUSES = (ORDERS.pause, ORDERS.resume)
ENDS = (ORDERS.stop, ORDERS.cancel)


@dataclass
class World:
    """Log, group and target. `log` holds the offsets of records; offsets between them are transaction markers."""

    chance: random.Random
    exactly_once: bool
    faults: bool = True
    log: dict[TopicPartition, list[int]] = field(default_factory=dict)
    owner: dict[TopicPartition, int | None] = field(default_factory=lambda: dict.fromkeys(PARTITIONS))
    group: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    held: dict[TopicPartition, int] = field(default_factory=dict)
    rows: Counter[tuple[TopicPartition, int]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for partition in PARTITIONS:
            offsets, at = [], 0
            for _ in range(RECORDS):
                at += 1 + (self.chance.random() < 0.2)
                offsets.append(at)
            self.log[partition] = offsets

    def end(self, partition: TopicPartition) -> int:
        return self.log[partition][-1] + 2

    def between(self, partition: TopicPartition, first: int, end: int) -> list[int]:
        return [offset for offset in self.log[partition] if first <= offset < end]

    def fails(self, probability: float) -> bool:
        return self.faults and self.chance.random() < probability


class Task:
    """One instance: the driver of a loop. It reads at its own positions, as a consumer does."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        mode = world.chance.choice((BulkMode.NEVER, BulkMode.NEVER, BulkMode.AUTO, BulkMode.ALWAYS))
        self.core = SinkTaskCore(
            SinkTaskSettings(
                TaskId("s", number),
                world.exactly_once,
                50,
                30,
                10,
                5,
                20,
                lanes=LaneSettings(mode, 20),
                bulk_core_bytes=4,
                query_interval_ms=10,
                cores_interval_ms=100,
                puts_nothing=True,
            )
        )
        self.jobs: dict[int, m.Ranges] = {}  # that run, discarded or not
        self.staged: dict[int, list[tuple[TopicPartition, int]]] = {}
        self.reads: dict[TopicPartition, int] = {}
        self.unflushed: list[tuple[TopicPartition, int]] = []
        self.fetches: list[dict[TopicPartition, tuple[int, int]]] = [{}]
        self.late: list[m.CommitOutcome] = []
        self.paused: set[TopicPartition] = set()
        self.outstanding: m.SinkEffect | None = None
        self.feed(ORDERS.begin, 0)

    def feed(self, stimulus: Any, now_ms: int) -> None:
        """Handle a stimulus, and whatever is answered at once."""
        answer: Any = stimulus
        while answer is not None:
            step = feed(self.core, answer, now_ms)
            answer = None
            for effect in step.effects:
                assert answer is None, "only the last effect is answered"
                answer = self.carry_out(effect)

    def carry_out(self, effect: m.SinkEffect) -> m.SinkAnswer | None:
        world = self.world
        match effect:
            case m.Poll() | m.Put() | m.CommitBulk():
                self.outstanding = effect
            case StartPlugin():
                return Done()
            case m.OpenPartitions(epoch, partitions):
                held = {p: world.held[p] for p in partitions if p in world.held}
                return m.Opened(epoch, held if world.exactly_once else {})
            case m.Seek(offsets):
                self.reads |= {p: offset for p, offset in offsets.items() if p in self.reads}
            case m.PausePartitions(partitions):
                self.paused |= set(partitions)
            case m.ResumePartitions(partitions):
                self.paused -= set(partitions)
            case m.PutNothing():
                return Done()
            case m.Flush():
                if world.fails(0.2):
                    self.unflushed = []
                    return NotDone("disk")
                world.rows.update(self.unflushed)
                self.unflushed = []
                return Done()
            case m.CommitOffsets():
                return self.commit(effect)
            case m.QueryEnds(epoch, partitions):
                return m.EndsKnown(epoch, {p: world.end(p) for p in partitions})
            case QueryCores():
                return CoresKnown(world.chance.choice((None, 2, 4, 8)))
            case m.RunBulk(token, ranges):
                self.jobs[token] = ranges
            case m.DiscardBulk(token):
                self.staged.pop(token, None)
        return None

    def commit(self, effect: m.CommitOffsets) -> m.SinkAnswer | None:
        """The group takes commits of members; Kafka itself does not check who owns what, so this test does."""
        world = self.world
        outcome: m.CommitOutcome
        if any(world.owner[p] != self.number for p in effect.offsets):
            outcome = m.CommitFailed(effect.sequence, "UNKNOWN_MEMBER_ID", not_owner=True)
        elif world.fails(0.2):
            outcome = m.CommitFailed(effect.sequence, "COORDINATOR_NOT_AVAILABLE")
        else:
            self.check(effect.offsets)
            world.group |= effect.offsets
            outcome = m.OffsetsCommitted(effect.sequence)
        if effect.wait:
            return outcome
        self.late.append(outcome)
        return None

    def check(self, offsets: m.Offsets) -> None:
        """Nothing is acknowledged that is not in the target."""
        for partition, offset in offsets.items():
            missing = [o for o in self.world.between(partition, 0, offset) if not self.world.rows[partition, o]]
            assert missing == [], f"{partition} was committed at {offset} without {missing}"

    def proceed(self, now_ms: int) -> None:
        """Answer the outstanding effect."""
        effect, self.outstanding = self.outstanding, None
        match effect:
            case m.Poll(epoch):
                while self.late:
                    self.feed(self.late.pop(0), now_ms)
                self.feed(self.end_of_a_job() or self.poll(epoch), now_ms)
            case m.Put():
                fetched = self.fetches[effect.number]
                for partition, (start, end) in effect.ranges.items():
                    read = self.world.between(partition, *fetched[partition])
                    assert self.world.between(partition, start, end) == read, "a gap"
                rows = [(p, o) for p in effect.ranges for o in self.world.between(p, *fetched[p])]
                self.feed(self.put(effect, rows, durable=self.world.exactly_once), now_ms)
            case m.CommitBulk(_, token) if self.world.fails(0.1):
                self.feed(m.BulkFailed(token, "a row is refused", {}), now_ms)
            case m.CommitBulk(_, token):
                self.feed(self.put(effect, self.staged[token], durable=True), now_ms)

    def end_of_a_job(self) -> m.SinkAnswer | None:
        """One of the jobs ends, also one that was discarded."""
        if not self.jobs or self.world.chance.random() < 0.6:
            return None
        token = self.world.chance.choice(sorted(self.jobs))
        ranges = self.jobs.pop(token)
        if self.world.fails(0.2):
            some = {p: min(start + 3, end) for p, (start, end) in ranges.items()}
            return m.BulkFailed(token, "executor lost", self.world.chance.choice(({}, some)))
        self.staged[token] = [(p, o) for p, cut in ranges.items() for o in self.world.between(p, *cut)]
        return m.BulkStaged(token, len(self.staged[token]))

    def poll(self, epoch: int) -> m.SinkAnswer:
        world, ranges, ends = self.world, {}, {}
        for partition in sorted(self.reads):
            if partition in self.paused:
                continue
            first = self.reads[partition]
            offsets = world.between(partition, first, first + world.chance.randint(0, 12))
            if offsets:
                ranges[partition] = (offsets[0], offsets[-1] + 1)
            elif not world.between(partition, first, world.end(partition)):
                ends[partition] = world.end(partition)
            self.reads[partition] = ranges[partition][1] if offsets else ends.get(partition, first)
        if not (ranges or ends):
            return Done()
        self.fetches.append(ranges)
        return m.Fetched(epoch, ranges, ends, full=bool(ranges), number=len(self.fetches) - 1, size_bytes=100)

    def put(
        self, effect: m.Put | m.CommitBulk, new: list[tuple[TopicPartition, int]], *, durable: bool
    ) -> m.SinkAnswer:
        world = self.world
        if world.fails(0.1):
            return m.PutFailed(effect.epoch, True, "down")
        if not durable:
            self.unflushed += new
            return m.PutDone(effect.epoch, len(new))
        if world.exactly_once and any(world.held.get(p, start) != start for p, (start, _) in effect.ranges.items()):
            held = {p: world.held.get(p, start) for p, (start, _) in effect.ranges.items()}
            return m.PutRefused(effect.epoch, held, "elsewhere", len(new))
        world.held |= {p: end for p, (_, end) in effect.ranges.items()}
        world.rows.update(new)
        if world.fails(0.1):
            return m.PutFailed(effect.epoch, True, "connection lost in commit")
        return m.PutDone(effect.epoch, len(new))

    def lose(self, partitions: Sequence[TopicPartition], now_ms: int, *, politely: bool) -> None:
        mine = tuple(p for p in partitions if p in self.reads)
        self.feed(m.PartitionsRevoked(mine) if politely else m.PartitionsLost(mine), now_ms)
        for partition in mine:
            del self.reads[partition]
        self.paused -= set(mine)

    def gain(self, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        positions = {p: self.world.group[p] for p in partitions}
        self.reads |= positions
        self.feed(m.PartitionsAssigned(positions), now_ms)


def rebalance(world: World, tasks: dict[int, Task], now_ms: int) -> None:
    """Assign partitions again. A member that is in the middle of a put is dropped: it hears of it at its next poll."""
    chance = world.chance
    polling = [number for number, task in tasks.items() if isinstance(task.outstanding, m.Poll)]
    new = {p: chance.choice(polling) if polling else None for p in PARTITIONS}
    for number in polling:
        gone = [p for p in PARTITIONS if world.owner[p] == number and new[p] != number]
        tasks[number].lose(gone, now_ms, politely=chance.random() < 0.7)
    for number in polling:
        stale = [p for p in tasks[number].reads if world.owner[p] != number]
        tasks[number].lose(stale, now_ms, politely=False)
    before, world.owner = world.owner, new
    for number in polling:
        added = [p for p in PARTITIONS if new[p] == number and (before[p] != number or p not in tasks[number].reads)]
        if added:
            tasks[number].gain(added, now_ms)


def history(seed: int, *, exactly_once: bool) -> World:
    world = World(random.Random(seed), exactly_once)
    chance = world.chance
    tasks = {0: Task(world, 0), 1: Task(world, 1)}
    now_ms = 0
    for turn in range(1500):
        world.faults = turn < 900
        now_ms += chance.randint(0, 8)
        number = chance.choice(sorted(tasks))
        if (world.faults and chance.random() < 0.03) or turn == 900:
            rebalance(world, tasks, now_ms)
        elif world.fails(0.02):
            tasks[number].feed(chance.choice(PAUSES), now_ms)
        elif world.fails(0.01):
            if chance.random() < 0.5:
                tasks[number].feed(chance.choice(ENDS), now_ms)
                for _ in range(20):
                    tasks[number].proceed(now_ms)
            world.owner = {p: None if owner == number else owner for p, owner in world.owner.items()}
            tasks[number] = Task(world, number)
        elif turn > 900 and None in world.owner.values() and isinstance(tasks[number].outstanding, m.Poll):
            rebalance(world, tasks, now_ms)
        else:
            if turn > 900 and tasks[number].core.pause_requested:
                tasks[number].feed(ORDERS.resume, now_ms)
            tasks[number].proceed(now_ms)
    for task in tasks.values():
        task.feed(ORDERS.stop, now_ms)
        for _ in range(20):
            task.proceed(now_ms)
        assert task.core.ended
    return world


@pytest.mark.parametrize("seed", range(60))
def test_an_exactly_once_target_holds_every_record_once(seed: int) -> None:
    world = history(seed, exactly_once=True)
    everything: dict[Any, int] = {(p, offset): 1 for p in PARTITIONS for offset in world.log[p]}
    assert dict(world.rows) == everything
    assert all(world.group[p] <= world.held[p] + 2 for p in PARTITIONS)


@pytest.mark.parametrize("seed", range(60))
def test_an_at_least_once_target_misses_nothing_that_was_acknowledged_and_in_the_end_nothing(seed: int) -> None:
    world = history(seed, exactly_once=False)
    assert [(p, o) for p in PARTITIONS for o in world.log[p] if not world.rows[p, o]] == []
    assert {p: world.group[p] for p in PARTITIONS} == {p: world.end(p) for p in PARTITIONS}


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (history(7, exactly_once=True) for _ in range(2))
    assert first.group == second.group
    assert list(first.rows.items()) == list(second.rows.items())
