"""The verbs of single requests on a real broker: what the producer's driver sends, without its core."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

from kafka.record.default_records import DefaultRecordBatchBuilder

from connectx.core.clients.messages import Answered, SendRequest
from connectx.core.producer import messages as msg
from connectx.kafka.producer.requests import ProducerRequests
from tests.conformance.producers_on_kafka import ProducersOnKafka
from tests.conformance.requests import TIMEOUT_MS, Requests
from tests.support.waiting import until

_NAME = "tx"
_OF_A_NEW_TOPIC = ("NOT_LEADER_FOR_PARTITION", "UNKNOWN_TOPIC_OR_PARTITION")


class RequestsOnKafka(Requests):
    """One transactional id on one topic of a broker; `producers` reads and describes."""

    def __init__(self, producers: ProducersOnKafka) -> None:
        super().__init__()
        self.producers = producers
        self.topic = producers.topic
        self.name = producers.prefix + _NAME
        self._values: Sequence[str] = ()
        self._heard: list[msg.ProducerStimulus] = []
        self._requests = ProducerRequests(
            producers.clients.net, TIMEOUT_MS, self._batch, self._heard.append, threading.RLock()
        )
        self._node: int | None = None
        self._node = until(self._coordinator, "the coordinator of transactions")

    def ask(self, request: msg.Request, values: Sequence[str] = ()) -> msg.Answer:
        """Send a request, again while the broker does not know the topic, which has just been created."""

        def answer() -> msg.Answer | None:
            found = self._ask(request, values)
            return None if _error_of_topic(found) in _OF_A_NEW_TOPIC else found

        return cast("msg.Answer", until(answer, "the new topic"))

    def _ask(self, request: msg.Request, values: Sequence[str] = ()) -> msg.Answer:
        self._values = values
        effect = SendRequest(1, self._node, request)
        self._requests.line_up(effect)
        self.producers.clients.net.run(self._requests.carry_out, effect)
        heard = self._heard.pop()
        assert isinstance(heard, Answered), heard
        return heard.answer

    def settle(self) -> None:
        described = self.producers._describe
        until(lambda: not described(_NAME).transaction_state.startswith("Prepare"), "the markers")

    def read(self, *, committed: bool) -> list[tuple[int, str]]:
        return self.producers.read(0, committed=committed)

    def _coordinator(self) -> int | None:
        found = self.ask(msg.FindCoordinator(self.name))
        assert isinstance(found, msg.CoordinatorFound)
        return None if found.error else found.node

    def _batch(self, request: msg.Produce, batch: msg.SequencedBatch) -> bytes:
        is_transactional = request.transactional_id is not None
        producer = request.producer_id, request.epoch, batch.base_sequence
        builder = DefaultRecordBatchBuilder(2, 0, is_transactional, *producer, 1_000)
        for index, value in enumerate(self._values):
            builder.append(index, None, None, value.encode(), [])
        return bytes(builder.build())


def _error_of_topic(answer: msg.Answer) -> str | None:
    """The error of the one partition that a request names."""
    match answer:
        case msg.Produced():
            return answer.results[1].error
        case msg.PartitionsAdded():
            return next(iter(answer.errors.values()))
        case _:
            return None
