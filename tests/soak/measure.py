"""What is in topics and targets, by readers that share nothing with connectx: lost, twice, out of order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.records import read_all


@dataclass(frozen=True, slots=True)
class Measure:
    """What one place holds, against what it should."""

    place: str
    expected: int
    records: int
    lost: int
    duplicated: int
    reordered: int
    foreign: int
    examples: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """True when each expected record is there once, and nothing else."""
        return not (self.lost or self.duplicated or self.reordered or self.foreign)


def measure(place: str, expected: Iterable[str], found: Sequence[str], reordered: int = 0) -> Measure:
    """Compare what is there with what should be."""
    wanted, counts = list(expected), Counter(found)
    lost = [name for name in wanted if name not in counts]
    twice = [name for name, count in counts.items() if count > 1]
    foreign = sorted(set(counts) - set(wanted))
    examples = (
        [f"lost {n}" for n in lost[:3]] + [f"twice {n}" for n in twice[:3]] + [f"foreign {n}" for n in foreign[:3]]
    )
    surplus = sum(counts[name] - 1 for name in twice)
    return Measure(place, len(wanted), len(found), len(lost), surplus, reordered, len(foreign), tuple(examples))


def out_of_order(partitions: Mapping[int, Sequence[tuple[str, int]]]) -> int:
    """How many records come after one of the same source with a higher number, in the same partition."""
    count = 0
    for records in partitions.values():
        highest: dict[str, int] = {}
        for source, number in records:
            count += number < highest.get(source, -1)
            highest[source] = max(number, highest.get(source, -1))
    return count


def read_committed(bootstrap_servers: str, topic: str) -> dict[int, list[bytes]]:
    """Values of a topic by partition, in order, up to its present end, as a read_committed consumer sees them."""
    found: dict[int, list[bytes]] = {}
    for message in read_all(bootstrap_servers, topic):
        found.setdefault(message.partition(), []).append(message.value())
    return found


def measure_lines(bootstrap_servers: str, topic: str, lines: int) -> Measure:
    """The topic of the growing file."""
    found = read_committed(bootstrap_servers, topic)
    numbered = {p: [("file", int(value.split()[1])) for value in values] for p, values in found.items()}
    texts = [value.decode() for values in found.values() for value in values]
    return measure(f"topic {topic}", (f"line {number}" for number in range(lines)), texts, out_of_order(numbered))


def measure_rows(bootstrap_servers: str, topic: str, made: Mapping[int, int]) -> Measure:
    """The topic of the generator, whose task t of n makes the ids t, t + n, t + 2n, ..."""
    tasks = max(len(made), 1)
    found = {
        partition: [_row_id(value) for value in values]
        for partition, values in read_committed(bootstrap_servers, topic).items()
    }
    numbered = {partition: [(str(number % tasks), number) for number in ids] for partition, ids in found.items()}
    texts = [str(number) for ids in found.values() for number in ids]
    return measure(f"topic {topic}", expected_ids(made), texts, out_of_order(numbered))


def expected_ids(made: Mapping[int, int]) -> Iterable[str]:
    """Ids of all rows that were made."""
    return (str(task + number * len(made)) for task, count in made.items() for number in range(count))


def _row_id(value: bytes) -> int:
    document = json.loads(value)
    return int((document.get("payload") or document)["id"])
