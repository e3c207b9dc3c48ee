"""The plan of a chaos: kinds and times of its faults, decided by the seed alone. Pure.

The same arguments give the same faults, on every machine and in every Python. The worker that a fault hits cannot be
planned, because the plan does not know which workers will be healthy then. It has a position in the list of those.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final, TypeVar

from connectx.kafka.broker.gate import Direction
from connectx.values import Value

Card = TypeVar("Card", bound=str)

KINDS: Final = ("kill", "stop", "pause", "stall", "partition", "delay", "add_worker", "broker_kill")
"""All kinds of faults that can be planned."""

DIRECTIONS: Final[tuple[Direction, ...]] = ("both", "in", "out")


class PlannedFault(Value):
    """One fault of a plan.

    Attributes:
        number: 1, 2, ...
        at_s: when it comes, seconds since the beginning.
        kind: one of KINDS.
        pick: whom it hits, from 0 to below 1: the share of the healthy workers that are passed over.
        hold_s: seconds until it is undone: resumed, healed, delivered, restarted, or replaced by a new worker.
        direction: of a partition, None for other kinds.
    """

    number: int
    at_s: float
    kind: str
    pick: float
    hold_s: float
    direction: Direction | None


def plan(seed: int, kinds: Sequence[str], *, every_s: float, hold_s: tuple[float, float]) -> Iterator[PlannedFault]:
    """The faults of a seed, endless and in order of time: one in each interval of `every_s` seconds.

    Kinds are dealt like cards, so that each comes up once before one comes up again; so are directions of partitions.

    Args:
        seed: any integer.
        kinds: which of KINDS, in any order.
        every_s: length of a span in seconds.
        hold_s: the shortest and the longest time until a fault is undone, in seconds.
    """
    chance = random.Random(seed)
    dealt_kinds, dealt_directions = _deal(kinds, chance), _deal(DIRECTIONS, chance)
    for number in count(1):
        kind = next(dealt_kinds)
        at_s = (number - 1 + chance.random()) * every_s
        pick, held_s = chance.random(), chance.uniform(*hold_s)
        yield PlannedFault(number, at_s, kind, pick, held_s, next(dealt_directions) if kind == "partition" else None)


def _deal(cards: Sequence[Card], chance: random.Random) -> Iterator[Card]:
    while True:
        pack = sorted(set(cards))
        chance.shuffle(pack)
        yield from pack
