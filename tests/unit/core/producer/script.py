"""A producer's core, step by step: the test says what Kafka answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectx.core.clients.messages import Answered, Leader, MetadataFetched, SendRequest, TimeReached, Unanswered
from connectx.core.ignored import Ignored
from connectx.core.producer import messages as msg
from connectx.core.producer.producer import ProducerCore
from connectx.core.rules import BrokenRule
from connectx.model.ids import TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def led(nodes: Mapping[TopicPartition, int], leaderless: frozenset[TopicPartition] = frozenset()) -> MetadataFetched:
    """Metadata: the node that leads each partition."""
    return MetadataFetched({target: Leader(node) for target, node in nodes.items()}, leaderless=leaderless)


class Script:
    """The core and what it has asked for: `open` has unanswered requests, `settled` the outcome of batches."""

    def __init__(self, **settings: Any) -> None:
        self.core = ProducerCore(msg.ProducerSettings(**settings))
        self.now_ms = 1_000
        self.open: dict[int, SendRequest[msg.Request]] = {}
        self.settled: dict[int, str] = {}
        self.splits: list[int] = []
        self.wake_at_ms: int | None = None
        self.ignored: Ignored | None = None
        self.broken: list[BrokenRule] = []
        self.is_mutant = False  # then a step may break rules

    def do(self, *stimuli: msg.ProducerStimulus) -> None:
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
                    case msg.SplitBatch(number):
                        self.splits.append(number)
                    case msg.BatchRefused(number, result):
                        self.settled[number] = str(result.error)
                    case _:
                        self.settled[effect.number] = type(effect).__name__

    def append(self, *numbers: int, target: TopicPartition = T0, records: int = 10, size_bytes: int = 100) -> None:
        self.do(msg.Append(tuple(msg.Batch(number, target, records, size_bytes) for number in numbers)))

    def requests(self, kind: type[Any] | None = None) -> list[Any]:
        """Requests without an answer, oldest first."""
        found = [sent.request for sent in self.open.values()]
        return found if kind is None else [request for request in found if isinstance(request, kind)]

    def sequences(self) -> list[tuple[int, int]]:
        """Batches in flight with their sequences."""
        return [(b.number, b.base_sequence) for request in self.requests(msg.Produce) for b in request.batches]

    def answer(self, kind: type[Any], answer: msg.Answer) -> None:
        """Answer the oldest request of a kind."""
        self.do(Answered(self.take(kind), answer))

    def lose(self, kind: type[Any], *, sent: bool = True) -> None:
        """Cut the connection of the oldest request of a kind."""
        self.do(Unanswered(self.take(kind), "cut", sent))

    def take(self, kind: type[Any]) -> int:
        request_id = next(number for number, sent in self.open.items() if isinstance(sent.request, kind))
        del self.open[request_id]
        return request_id

    def wait(self) -> None:
        """Let time pass until the core wants to go on."""
        assert self.wake_at_ms is not None, "the core waits for nothing"
        self.now_ms = self.wake_at_ms
        self.do(TimeReached())

    def take_all(self, error: str | None = None) -> None:
        """Answer the oldest Produce with one result for all of its batches."""
        (request, *_) = self.requests(msg.Produce)
        self.answer(msg.Produce, msg.Produced({batch.number: msg.BatchResult(error) for batch in request.batches}))

    def ready(self, *, version: int = 2, epoch: int = 0, **leaders: int) -> None:
        """Initialise transactions, and learn that node 1 leads both partitions."""
        self.do(msg.Call.INITIALIZE, led({T0: 1, T1: 1}))
        self.answer(msg.FindCoordinator, msg.CoordinatorFound(None, 9, version))
        self.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 77, epoch))
        assert self.core.phase is msg.ProducerPhase.READY

    def add_partitions(self) -> None:
        """Answer AddPartitions: all added."""
        (request,) = self.requests(msg.AddPartitions)
        self.answer(msg.AddPartitions, msg.PartitionsAdded(dict.fromkeys(request.partitions)))


def transactional(version: int = 2, **settings: Any) -> Script:
    """A transactional producer that is ready."""
    script = Script(transactional_id="x", idempotent=True, **{"max_in_flight": 5, **settings})
    script.ready(version=version)
    return script
