"""Topics and a target that the caller names, compared with each other and with what a history has committed.

Without a source that can be read again, the number of committed records is the expectation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from connectx.errors.checks import CheckError
from connectx.kafka.admin.topic_snapshot import take_snapshot
from connectx.model.events import Event, EventKind
from connectx.verify.check.attribution import records_of
from connectx.verify.check.commits import commits
from connectx.verify.check.comparison import Comparison
from connectx.verify.check.sides import Sides, Topic, committed_by, decode_plainly, skipped_by, topic_rows
from connectx.verify.check.targets import target_of
from connectx.verify.check.wanted import Began, Wanted, target_comparison

if TYPE_CHECKING:
    from connectx.kafka.settings.clients import ClientConfigs
    from connectx.spark.slices import TaskSpark


class NamedPlaces:
    """The topics of `Wanted`, and its target."""

    def __init__(
        self, clients: ClientConfigs | None, wanted: Wanted, events: Sequence[Event], began: Began, spark: TaskSpark
    ) -> None:
        self._clients = clients
        self._wanted = wanted
        self._events = events
        self._began = began
        self._spark = spark
        self.comparisons: list[Comparison] = []
        self.unseen: list[str] = []
        self.waits = self.begins = False
        self.deleted: tuple[str, ...] = ()
        self.masked: Callable[[str], str] = str

    def gather(self) -> None:
        """Everything that can be compared.

        Raises:
            CheckError: a target without a topic, or one that cannot be read.
            TopicMissingError: there is no such topic.
        """
        topics = [
            Topic(take_snapshot(self._clients, name), decode_plainly) for name in self._wanted.topics if self._clients
        ]
        self.comparisons += [self._topic(topic, alone=len(topics) == 1) for topic in topics]
        if self._wanted.target is None:
            return
        if not topics:
            raise CheckError("A target is compared with topics, and none was named.", next_step="Name them: topic=.")
        stored = target_of(self._wanted.target)
        sinks = tuple(dict.fromkeys(e.connector or "" for e in self._events if e.kind is EventKind.PARTITIONS_ASSIGNED))
        committed = committed_by(self._events)
        sides = Sides(topics, stored, committed if committed or sinks else None, self._wanted.key)
        goal = self._began.goals.get(stored.place)
        connectors = sinks or ("the sink",)
        self.comparisons.append(
            target_comparison(connectors, sides, self._events, self._wanted, self._spark, goal=goal)
        )

    def _topic(self, topic: Topic, *, alone: bool) -> Comparison:
        by_seq = {commit.event.seq: commit.event for commit in commits(self._events)}
        sources = tuple(dict.fromkeys(event.connector or "" for event in by_seq.values()))
        sources = sources if alone and len(sources) == 1 else ()  # who else wrote what is not in the history
        records = sum(records_of(event) for event in by_seq.values())
        return Comparison(
            sources,
            topic_rows(topic, self._wanted.key),
            committed=records if sources else None,
            identified=bool(self._wanted.key),
            tolerated=skipped_by(self._events, sources, by_kafka=True),
            hidden=topic.snapshot.hidden,
            waits=topic.snapshot.waits,
        )
