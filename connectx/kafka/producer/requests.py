"""Sends the requests of the producer's core through kafka-python, and decodes the responses.

One coroutine for each request. It decides nothing: a failure is reported as Unanswered, with whether the request may
have been sent. Requests with batches reach a node in their order: if one is lost, those that are not yet sent are lost,
too. Otherwise the second one could arrive alone on the next connection, and before protocol 2 Kafka accepts any
sequence from a producer that it does not know. Mirrors NetworkClient, which fails the requests of a lost connection
first.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, assert_never

import kafka.errors as kafka_errors
from kafka.protocol.metadata import ApiVersionsRequest, CoordinatorType
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from connectx.core.clients.errors import UNKNOWN, UNSUPPORTED
from connectx.core.clients.messages import Answered, FetchMetadata, MetadataFetched, SendRequest
from connectx.core.producer import messages as msg
from connectx.kafka.client_requests import ClientRequests, metadata_fetched
from connectx.kafka.net import AUTHENTICATION_ERRORS, KafkaNet, error_name, name_of
from connectx.kafka.producer_epochs import newest_producer
from connectx.model.ids import TopicPartition

_log = logging.getLogger(__name__)

_FEATURE: Final = "transaction.version"
_FENCED: Final = "PRODUCER_FENCED"


class ProducerRequests(ClientRequests):
    """Sends requests of one producer.

    Args:
        net: its connections.
        timeout_ms: `request.timeout.ms`.
        batch_bytes: returns a whole batch for a request; called on the network thread.
        report: takes Answered, Unanswered and AuthenticationFailed; called on the network thread.
        lock: guards the core, and is held while requests are lined up; reentrant.
    """

    def __init__(
        self,
        net: KafkaNet,
        timeout_ms: int,
        batch_bytes: Callable[[msg.Produce, msg.SequencedBatch], bytes],
        report: Callable[[msg.ProducerStimulus], None],
        lock: AbstractContextManager[Any],
    ) -> None:
        super().__init__(net, "a producer", report)
        self._timeout_ms = timeout_ms
        self._batch_bytes = batch_bytes
        self._lock = lock
        self._unknown_end: msg.EndTransaction | None = None
        self._lines: defaultdict[int | None, list[int]] = defaultdict(list)  # requests with batches, not yet sent

    def line_up(self, effect: SendRequest[msg.Request]) -> None:
        """Note the place of a request that `carry_out` will send. From any thread, in the order of requests."""
        if isinstance(effect.request, msg.Produce):
            self._lines[effect.node].append(effect.request_id)

    async def carry_out(self, effect: SendRequest[msg.Request]) -> None:
        """Send a request that was lined up, and report its answer."""
        sent = False
        try:
            deadline_s = time.monotonic() + self._timeout_ms / 1000
            node: int | str
            if effect.node is None:
                node = await self._any_node(deadline_s)
            else:
                node = effect.node
                await self._net.connect(node, deadline_s)
            if isinstance(effect.request, msg.Produce):
                self._leave_line(effect)
            sent = not isinstance(effect.request, msg.FindCoordinator)
            answer = await self._ask(effect.request, node, deadline_s)
        except AUTHENTICATION_ERRORS as error:
            self._report(msg.AuthenticationFailed(str(error)))
        except kafka_errors.NodeNotReadyError as error:
            self._lose(effect, error, sent=False)
        except kafka_errors.IncompatibleBrokerVersion:
            self._report(Answered(effect.request_id, _unsupported(effect.request)))
        except (kafka_errors.KafkaError, OSError, RuntimeError) as error:
            self._lose(effect, error, sent=sent)
        except Exception as error:  # whatever it is, the core must not wait forever
            _log.exception("a request of a producer failed in an unexpected way")
            self._lose(effect, error, sent=sent)
        else:
            self._report(Answered(effect.request_id, answer))

    def _leave_line(self, effect: SendRequest[msg.Request]) -> None:
        line = self._lines[effect.node]
        if not line or line.pop(0) != effect.request_id:
            raise kafka_errors.Cancelled("a request before it was lost")

    def _lose(self, effect: SendRequest[Any], error: Exception, *, sent: bool) -> None:
        with self._lock:  # what the core lines up before it knows of the loss is lost, too
            if isinstance(effect.request, msg.Produce):
                self._lines[effect.node].clear()
            super()._lose(effect, error, sent=sent)

    async def fetch_metadata(self, topics: Iterable[str], deadline_s: float) -> Any:
        """MetadataResponse for topics, which brokers may create.

        Raises:
            KafkaError: no broker answered.
        """
        try:
            return await self._net.metadata(topics, deadline_s, create=True)
        except AUTHENTICATION_ERRORS as error:
            self._report(msg.AuthenticationFailed(str(error)))
            raise
        except (kafka_errors.KafkaError, OSError) as error:
            self._warn(str(error))
            raise

    async def _any_node(self, deadline_s: float) -> int | str:
        await self._net.authenticate(deadline_s)
        return await self._net.any_node(deadline_s)

    async def _ask(self, request: msg.Request, node: int | str, deadline_s: float) -> msg.Answer:
        match request:
            case msg.FindCoordinator():
                return await self._find_coordinator(request, deadline_s)
            case FetchMetadata():
                return metadata_fetched(await self._net.metadata(request.topics, deadline_s, create=True))
            case msg.InitProducerId():
                reply = await self._send(_init_producer_id(request), node)
                return msg.ProducerIdGranted(error_name(reply.error_code), reply.producer_id, reply.producer_epoch)
            case msg.AddPartitions():
                return _partitions_added(await self._send(_add_partitions(request), node))
            case msg.EndTransaction():
                return await self._end_transaction(request, node)
            case msg.Produce():
                return _produced(request, await self._send(self._produce(request), node))
            case _ as never:
                assert_never(never)

    async def _send(self, request: Any, node: int | str) -> Any:
        return await self._net.send(request, node, self._timeout_ms)

    async def _end_transaction(self, request: msg.EndTransaction, node: int | str) -> msg.TransactionEnded:
        """After a takeover Kafka may answer with an unknown error: the second time, ask for the newest producer."""
        reply = await self._send(_end_transaction(request), node)
        error = error_name(reply.error_code)
        if error == UNKNOWN and self._unknown_end == request:
            newest = await newest_producer(self._net, request.transactional_id)
            if newest is not None and newest > (request.producer_id, request.epoch):
                error = _FENCED
        self._unknown_end = request if error == UNKNOWN else None
        if request.protocol == 1:
            return msg.TransactionEnded(error)
        return msg.TransactionEnded(error, reply.producer_id, reply.producer_epoch)

    async def _find_coordinator(self, request: msg.FindCoordinator, deadline_s: float) -> msg.CoordinatorFound:
        try:
            found = await self._net.find_coordinator(CoordinatorType.TRANSACTION, request.transactional_id, deadline_s)
        except AUTHENTICATION_ERRORS:
            raise
        except kafka_errors.BrokerResponseError as error:
            return msg.CoordinatorFound(name_of(error))
        await self._net.connect(found.node_id, deadline_s)
        versions = await self._send(
            ApiVersionsRequest(client_software_name="connectx", client_software_version="1"), found.node_id
        )
        levels = {feature.name: feature.max_version_level for feature in versions.finalized_features or ()}
        return msg.CoordinatorFound(None, found.node_id, levels.get(_FEATURE, 0))

    def _produce(self, request: msg.Produce) -> Any:
        topics: dict[str, list[Any]] = {}
        for batch in request.batches:
            partition = ProduceRequest.TopicProduceData.PartitionProduceData(
                index=batch.target.partition, records=self._batch_bytes(request, batch)
            )
            topics.setdefault(batch.target.topic, []).append(partition)
        return ProduceRequest(
            transactional_id=request.transactional_id,
            acks=request.acks,
            timeout_ms=self._timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(name=topic, partition_data=partitions)
                for topic, partitions in topics.items()
            ],
            max_version=12 if request.protocol == 2 else 11,
        )


def _init_producer_id(request: msg.InitProducerId) -> Any:
    return InitProducerIdRequest(
        transactional_id=request.transactional_id,
        transaction_timeout_ms=request.transaction_timeout_ms,
        producer_id=request.producer_id,
        producer_epoch=request.epoch,
        max_version=5,
    )


def _add_partitions(request: msg.AddPartitions) -> Any:
    topics: dict[str, list[int]] = {}
    for target in request.partitions:
        topics.setdefault(target.topic, []).append(target.partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=request.transactional_id,
        v3_and_below_producer_id=request.producer_id,
        v3_and_below_producer_epoch=request.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
        max_version=3,
    )


def _partitions_added(reply: Any) -> msg.PartitionsAdded:
    return msg.PartitionsAdded(
        {
            TopicPartition(topic.name, result.partition_index): error_name(result.partition_error_code)
            for topic in reply.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }
    )


def _end_transaction(request: msg.EndTransaction) -> Any:
    return EndTxnRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.epoch,
        committed=request.commit,
        max_version=5 if request.protocol == 2 else 4,
    )


def _produced(request: msg.Produce, reply: Any) -> msg.Produced:
    """Results by batch number; acks=0 has no reply, and every batch counts as taken."""
    if reply is None:
        return msg.Produced({batch.number: msg.BatchResult() for batch in request.batches})
    numbers = {batch.target: batch.number for batch in request.batches}
    results: dict[int, msg.BatchResult] = {}
    for topic in reply.responses:
        for partition in topic.partition_responses:
            number = numbers[TopicPartition(topic.name, partition.index)]
            records = partition.record_errors or ()
            results[number] = msg.BatchResult(
                error_name(partition.error_code),
                partition.error_message,
                tuple((record.batch_index, record.batch_index_error_message) for record in records),
            )
    return msg.Produced(results)


def _unsupported(request: msg.Request) -> msg.Answer:
    """The answer of a broker that is too old for a request."""
    error = UNSUPPORTED
    match request:
        case msg.FindCoordinator():
            return msg.CoordinatorFound(error)
        case FetchMetadata():
            return MetadataFetched({}, dict.fromkeys(request.topics, error))
        case msg.InitProducerId():
            return msg.ProducerIdGranted(error)
        case msg.AddPartitions():
            return msg.PartitionsAdded(dict.fromkeys(request.partitions, error))
        case msg.EndTransaction():
            return msg.TransactionEnded(error)
        case msg.Produce():
            return msg.Produced({batch.number: msg.BatchResult(error) for batch in request.batches})
        case _ as never:
            assert_never(never)
