"""The data flow from sources through topics into sinks, with the lag of sinks in time. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from connectx.values import Value

_KEPT = 600


class Flow(Value):
    """A topic with the connectors that write and read it, sorted."""

    topic: str
    sources: tuple[str, ...]
    sinks: tuple[str, ...]


def flows(writes: Mapping[str, Sequence[str]], reads: Mapping[str, Sequence[str]]) -> list[Flow]:
    """One flow for each topic, by name; `writes` and `reads` map connectors to topics."""
    topics = {topic for used in (*writes.values(), *reads.values()) for topic in used}
    return [
        Flow(
            topic,
            tuple(sorted(name for name, used in writes.items() if topic in used)),
            tuple(sorted(name for name, used in reads.items() if topic in used)),
        )
        for topic in sorted(topics)
    ]


class LagClock:
    """The lag of one sink task in time: how long ago its partitions ended where the task is now.

    It follows sums over partitions, so it begins again when the partitions change.
    """

    def __init__(self) -> None:
        self._partitions: tuple[str, ...] = ()
        self._ends: deque[tuple[int, int]] = deque(maxlen=_KEPT)

    def take(self, now_ms: int, positions: Mapping[str, int], lag: int) -> int:
        """Add a sample and return the lag in milliseconds.

        Args:
            now_ms: when it was taken, milliseconds since 1970.
            positions: offsets by partition that the task has reached.
            lag: records from there to the ends.
        """
        position = sum(positions.values())
        end = position + lag
        if tuple(sorted(positions)) != self._partitions or (self._ends and end < self._ends[-1][1]):
            self._partitions = tuple(sorted(positions))
            self._ends.clear()
        if not self._ends or self._ends[-1][1] != end:
            self._ends.append((now_ms, end))
        while len(self._ends) > 1 and self._ends[1][1] <= position:
            self._ends.popleft()
        if lag <= 0:
            return 0
        passed_ms, passed = self._ends[0]
        if len(self._ends) == 1 or passed > position:
            return now_ms - passed_ms
        next_ms, reached = self._ends[1]
        return now_ms - round(passed_ms + (next_ms - passed_ms) * (position - passed) / (reached - passed))
