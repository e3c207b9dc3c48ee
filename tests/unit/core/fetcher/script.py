"""A fetcher's core, step by step: the test says what Kafka answers."""

from __future__ import annotations

from typing import Any

from connectx.core.clients.messages import (
    Answered,
    FetchMetadata,
    Leader,
    MetadataFetched,
    SendRequest,
    TimeReached,
    Unanswered,
)
from connectx.core.fetcher import messages as msg
from connectx.core.fetcher.fetcher import FetcherCore
from connectx.core.ignored import Ignored
from connectx.core.rules import BrokenRule
from connectx.model.ids import TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


class Script:
    """The core and what it has asked for: `open` has unanswered requests by id, oldest first."""

    def __init__(self, **settings: Any) -> None:
        self.core = FetcherCore(msg.FetcherSettings(**settings))
        self.now_ms = 1_000
        self.open: dict[int, SendRequest[msg.Request]] = {}
        self.kept: list[tuple[TopicPartition, int]] = []
        self.failed: list[msg.FetchFailed] = []
        self.wake_at_ms: int | None = None
        self.ignored: Ignored | None = None
        self.broken: list[BrokenRule] = []
        self.is_mutant = False  # then a step may break rules

    def do(self, *stimuli: msg.FetcherStimulus) -> None:
        for stimulus in stimuli:
            before = self.core.marks()
            step = self.core.handle(stimulus, self.now_ms)
            self.broken += self.core.check(before)
            assert self.is_mutant or not self.broken
            self.wake_at_ms, self.ignored = step.wake_at_ms, step.ignored
            for effect in step.effects:
                match effect:
                    case SendRequest():
                        self.open[effect.request_id] = effect
                    case msg.BufferRecords(target, offset):
                        self.kept.append((target, offset))
                    case msg.FetchFailed():
                        self.failed.append(effect)

    def fetches(self) -> list[tuple[int | None, dict[TopicPartition, int]]]:
        """Node and offsets of every Fetch without an answer."""
        return [
            (sent.node, {fetch.target: fetch.offset for fetch in sent.request.partitions})
            for sent in self.open.values()
            if isinstance(sent.request, msg.Fetch)
        ]

    def asked_topics(self) -> list[tuple[str, ...]]:
        """Topics of every FetchMetadata without an answer."""
        return [sent.request.topics for sent in self.open.values() if isinstance(sent.request, FetchMetadata)]

    def answer(self, kind: type[Any], answer: msg.Answer) -> None:
        """Answer the oldest request of a kind."""
        self.do(Answered(self._take(kind), answer))

    def lose(self, kind: type[Any]) -> None:
        """Cut the connection of the oldest request of a kind."""
        self.do(Unanswered(self._take(kind), "cut"))

    def _take(self, kind: type[Any]) -> int:
        request_id = next(number for number, sent in self.open.items() if isinstance(sent.request, kind))
        del self.open[request_id]
        return request_id

    def lead(self, node: int = 1, *targets: TopicPartition, epoch: int = 5) -> None:
        """Answer the oldest FetchMetadata: that node leads these partitions, by default both."""
        leaders = dict.fromkeys(targets or (T0, T1), Leader(node, epoch))
        self.answer(FetchMetadata, MetadataFetched(leaders))

    def bring(self, target: TopicPartition, next_offset: int, size_bytes: int = 100, epoch: int = 5) -> None:
        """Answer the oldest Fetch with records of a partition."""
        result = msg.PartitionResult(None, size_bytes, next_offset, epoch)
        self.answer(msg.Fetch, msg.Fetched({target: result}))

    def refuse(self, target: TopicPartition, error: str) -> None:
        """Answer the oldest Fetch with an error of a partition."""
        self.answer(msg.Fetch, msg.Fetched({target: msg.PartitionResult(error)}))

    def wait(self) -> None:
        """Let time pass until the core wants to go on."""
        assert self.wake_at_ms is not None, "the core waits for nothing"
        self.now_ms = self.wake_at_ms
        self.do(TimeReached())


def fetching(offset: int = 10, **settings: Any) -> Script:
    """A fetcher that has sent a Fetch for partition 0 to node 1."""
    script = Script(**settings)
    script.do(msg.FetchFrom({T0: offset}))
    script.lead()
    return script
