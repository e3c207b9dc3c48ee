"""Verbs of scripts about single requests of producers of one transactional id. Subclasses carry them out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from connectx.core.producer import messages as msg
from connectx.core.producer.errors import RETRIABLE
from connectx.model.ids import TopicPartition

TIMEOUT_MS = 60_000


class Requests(ABC):
    """The verbs. Every request is sent once, and its markers are awaited; only `inits` asks until it may."""

    name: str
    topic: str

    def __init__(self) -> None:
        self.producer_id = -1

    @abstractmethod
    def ask(self, request: msg.Request, values: Sequence[str] = ()) -> msg.Answer:
        """The answer; `values` are the records of its one batch."""

    @abstractmethod
    def settle(self) -> None:
        """Let the markers be written."""

    @abstractmethod
    def read(self, *, committed: bool) -> list[tuple[int, str]]: ...

    def inits(self, who: str) -> str:
        while (shown := self._init(-1, -1)) in RETRIABLE:
            pass
        return shown

    def renews(self, who: str, epoch: str) -> str:
        return self._init(self.producer_id, int(epoch))

    def adds(self, who: str, epoch: str) -> str:
        answer = self.ask(msg.AddPartitions(self.name, self.producer_id, int(epoch), (self._target,)))
        assert isinstance(answer, msg.PartitionsAdded)
        return answer.errors[self._target] or "OK"

    def produces(self, who: str, epoch: str, sequence: str, *values: str) -> str:
        batch = msg.SequencedBatch(1, self._target, int(sequence))
        request = msg.Produce(self.name, self.producer_id, int(epoch), -1, _protocol(who), (batch,))
        answer = self.ask(request, values)
        assert isinstance(answer, msg.Produced)
        return answer.results[1].error or "OK"

    def sends(self, who: str, *values: str) -> None:
        """`plain sends a`: a batch outside any transaction, of a producer without an id."""
        request = msg.Produce(None, -1, -1, -1, 1, (msg.SequencedBatch(1, self._target, -1),))
        answer = self.ask(request, values)
        assert isinstance(answer, msg.Produced)
        assert answer.results[1].error is None

    def commits(self, who: str, epoch: str) -> str:
        return self._end(who, epoch, commit=True)

    def aborts(self, who: str, epoch: str) -> str:
        return self._end(who, epoch, commit=False)

    def shows(self, who: str, isolation: str) -> str:
        found = self.read(committed=isolation == "committed")
        return " ".join(f"{value}@{log_offset}" for log_offset, value in found) or "nothing"

    @property
    def _target(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def _init(self, producer_id: int, epoch: int) -> str:
        answer = self.ask(msg.InitProducerId(self.name, TIMEOUT_MS, producer_id, epoch))
        assert isinstance(answer, msg.ProducerIdGranted)
        if answer.error in (None, "CONCURRENT_TRANSACTIONS"):
            self.settle()
        if answer.error is not None:
            return answer.error
        self.producer_id = answer.producer_id
        return f"epoch {answer.epoch}"

    def _end(self, who: str, epoch: str, *, commit: bool) -> str:
        protocol = _protocol(who)
        answer = self.ask(msg.EndTransaction(self.name, self.producer_id, int(epoch), commit, protocol))
        self.settle()
        assert isinstance(answer, msg.TransactionEnded)
        return answer.error or ("OK" if protocol == 1 else f"epoch {answer.epoch}")


def _protocol(who: str) -> int:
    return int(who.removeprefix("v"))
