"""A broker in the test process with what a producer needs: topics, a coordinator, both transaction protocols.

It speaks over real sockets, so that the producer's connections are the real ones. Its rules of transactions are those
that the conformance scripts hold real brokers to.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import kafka.protocol.producer as producing
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.consumer.offsets import ListOffsetsRequest, OffsetSpec
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from connectx.protocol.record_batches import decode

_CLASSES: dict[int, Any] = {
    cls.API_KEY: cls
    for cls in (
        *(ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest, producing.ProduceRequest),
        *(SaslHandshakeRequest, SaslAuthenticateRequest),
        *(producing.InitProducerIdRequest, producing.AddPartitionsToTxnRequest, producing.EndTxnRequest),
        *(DescribeTransactionsRequest, FetchRequest, ListOffsetsRequest),
    )
}
_VERSIONS = {0: 13, 1: 12, 2: 7, 3: 13, 10: 6, 17: 1, 18: 4, 22: 6, 24: 5, 26: 5, 36: 1, 65: 0}
NONE, FENCED, WRONG_STATE, DUPLICATE, GAP, UNKNOWN_TOPIC, NOT_LEADER = 0, 90, 48, 46, 45, 3, 6
WRONG_CREDENTIALS = 58


@dataclass
class Transaction:
    """What the coordinator knows of one transactional id."""

    producer_id: int = 7
    epoch: int = -1
    ended_by: tuple[int, bool] | None = None  # epoch and kind of the EndTxn that was last carried out
    open: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)


class LoopbackBroker:
    """Start it as a context manager; `committed` has the values of each topic and partition, `log` what fetches get.

    Args:
        version: of the feature transaction.version.
        topics: partitions of each topic.
    """

    def __init__(self, version: int, topics: dict[str, int]) -> None:
        self.version = version
        self.topics = topics
        self.committed: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.log: dict[tuple[str, int], dict[int, bytes]] = {}  # batches by base offset
        self.transactions: dict[str, Transaction] = defaultdict(Transaction)
        self.requests: list[Any] = []
        self.throttle_ms = 0
        self.errors: dict[str, list[int]] = defaultdict(list)  # by request name: answered instead of the truth
        self.lose: Callable[[Any], bool] = lambda request: False
        self.lost: list[tuple[Any, bytes]] = []
        self.coordinator = 1
        self.leaderless: set[tuple[str, int]] = set()
        self._sequences: dict[Any, int] = {}
        self._lock = threading.Lock()
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self) -> LoopbackBroker:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def deliver_late(self) -> None:
        """Carry out the requests that were lost, in order, to nobody's knowledge."""
        lost, self.lost = self.lost, []
        for request, _ in lost:
            with self._lock:
                self._reply(request)

    def _handler(self) -> type[socketserver.BaseRequestHandler]:
        broker = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while (frame := _frame(self.request)) is not None:
                    reply = broker._answer(frame)
                    if reply is None:
                        return
                    if reply:
                        self.request.sendall(reply)

        return Handler

    def _answer(self, frame: bytes) -> bytes | None:
        """The reply; None cuts the connection, empty: none is expected."""
        key, version = struct.unpack_from(">hh", frame)
        request = _CLASSES[key].decode(frame, version=version, header=True)
        with self._lock:
            self.requests.append(request)
            if self.lose(request):
                self.lost.append((request, frame))
                return None
            reply = self._reply(request)
        header: RequestHeader = request.header
        response = header.get_response_class()(**reply)
        response.with_header(correlation_id=header.correlation_id)
        return bytes(response.encode(header=True, framed=True)) if request.expect_response() else b""

    def _reply(self, request: Any) -> dict[str, Any]:
        name = type(request).__name__
        error = self.errors[name].pop(0) if self.errors[name] else None
        return getattr(self, f"_{name}")(request, error)  # type: ignore[no-any-return]

    def _ApiVersionsRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        response: Any = request.header.get_response_class()
        keys = [response.ApiVersion(api_key=k, min_version=0, max_version=v) for k, v in _VERSIONS.items()]
        level = response.FinalizedFeatureKey(
            name="transaction.version", max_version_level=self.version, min_version_level=self.version
        )
        finalized = [level] if self.version and request.API_VERSION >= 3 else []
        return {"error_code": NONE, "api_keys": keys, "finalized_features": finalized}

    def _MetadataRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        response: Any = request.header.get_response_class()
        Topic = response.MetadataResponseTopic
        asked_before = sum(isinstance(earlier, MetadataRequest) for earlier in self.requests) > 1
        brokers = [
            response.MetadataResponseBroker(node_id=node, host="127.0.0.1", port=self.port, rack=None)
            for node in sorted({1, self.coordinator if asked_before else 1})
        ]
        topics = []
        for asked in request.topics or ():
            count = self.topics.get(asked.name)
            partitions = [
                Topic.MetadataResponsePartition(
                    error_code=0, partition_index=n, leader_id=-1 if (asked.name, n) in self.leaderless else 1,
                    leader_epoch=0, replica_nodes=[1], isr_nodes=[1], offline_replicas=[],
                )
                for n in range(count or 0)
            ]  # fmt: skip
            code = NONE if count else UNKNOWN_TOPIC
            topics.append(Topic(error_code=code, name=asked.name, is_internal=False, partitions=partitions))
        return {"brokers": brokers, "cluster_id": "loopback", "controller_id": 1, "topics": topics}

    def _ListOffsetsRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        response: Any = request.header.get_response_class()
        Topic = response.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                target = (topic.name, asked.partition_index)
                end = len(self.committed[target])
                if not request.isolation_level:
                    end += sum(len(known.open.get(target, ())) for known in self.transactions.values())
                answers.append(
                    Topic.ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=error or NONE, timestamp=-1, leader_epoch=0,
                        offset=end if asked.timestamp == OffsetSpec.LATEST else 0,
                    )
                )  # fmt: skip
            topics.append(Topic(name=topic.name, partitions=answers))
        return {"topics": topics}

    def _FetchRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        response: Any = request.header.get_response_class()
        Topic = response.FetchableTopicResponse
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                batches = self.log.get((topic.topic, asked.partition), {})
                found = b"".join(data for offset, data in batches.items() if offset >= asked.fetch_offset)
                answers.append(
                    Topic.PartitionData(
                        partition_index=asked.partition,
                        error_code=error or NONE,
                        high_watermark=1 + max(batches, default=-1),
                        last_stable_offset=0,
                        log_start_offset=0,
                        aborted_transactions=[],
                        records=found,
                    )
                )
            topics.append(Topic(topic=topic.topic, partitions=answers))
        return {"error_code": NONE, "session_id": 0, "responses": topics}

    def _FindCoordinatorRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        where = {"node_id": self.coordinator, "host": "127.0.0.1", "port": self.port, "error_code": error or NONE}
        response: Any = request.header.get_response_class()
        found = [response.Coordinator(key=key, error_message="", **where) for key in request.coordinator_keys or ()]
        return {"coordinators": found, **where}

    def _SaslHandshakeRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        return {"error_code": error or NONE, "mechanisms": ["PLAIN"]}

    def _SaslAuthenticateRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        return {"error_code": WRONG_CREDENTIALS, "error_message": "invalid credentials", "auth_bytes": b""}

    def _InitProducerIdRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        known = self.transactions[request.transactional_id or ""]
        if error is None and request.producer_id >= 0 and request.producer_epoch != known.epoch:
            error = FENCED
        if error is None:
            known.open.clear()
            known.epoch += 1
            known.ended_by = None
        return {"error_code": error or NONE, "producer_id": known.producer_id, "producer_epoch": known.epoch}

    def _AddPartitionsToTxnRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        known = self.transactions[request.v3_and_below_transactional_id]
        code = error if error is not None else NONE if request.v3_and_below_producer_epoch == known.epoch else FENCED
        response: Any = request.header.get_response_class()
        Result = response.AddPartitionsToTxnTopicResult
        topics = []
        for topic in request.v3_and_below_topics:
            for number in topic.partitions if code == NONE else ():
                known.open.setdefault((topic.name, number), [])
            results = [
                Result.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                for number in topic.partitions
            ]
            topics.append(Result(name=topic.name, results_by_partition=results))
        return {"results_by_topic_v3_and_below": topics}

    def _ProduceRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        response: Any = request.header.get_response_class()
        Topic = response.TopicProduceResponse
        topics = []
        for topic in request.topic_data:
            results = []
            for part in topic.partition_data:
                code = self._append(request, (topic.name, part.index), bytes(part.records)) if error is None else error
                results.append(Topic.PartitionProduceResponse(index=part.index, error_code=code, base_offset=0))
            topics.append(Topic(name=topic.name, partition_responses=results))
        return {"responses": topics, "throttle_time_ms": self.throttle_ms}

    def _append(self, request: Any, target: tuple[str, int], data: bytes) -> int:
        (batch,) = decode(data)
        values = batch.rows["value"].to_pylist()
        if batch.producer_id >= 0:
            key = (*target, batch.producer_id, batch.epoch)
            # Before protocol 2, Kafka takes any sequence of a producer that it does not know.
            expected = self._sequences.get(key, 0 if self.version == 2 else batch.base_sequence)
            if batch.base_sequence != expected:
                return DUPLICATE if batch.base_sequence < expected else GAP
        if request.transactional_id is None:
            self.committed[target] += values
        else:
            known = self.transactions[request.transactional_id]
            if batch.epoch != known.epoch:
                return FENCED
            if target not in known.open and request.API_VERSION < 12:
                return WRONG_STATE
            known.open.setdefault(target, []).extend(values)
        if batch.producer_id >= 0:
            self._sequences[key] = expected + len(values)
        return NONE

    def _DescribeTransactionsRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        response: Any = request.header.get_response_class()
        states = [
            response.TransactionState(
                error_code=error or NONE,
                transactional_id=name,
                transaction_state="Ongoing",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=self.transactions[name].producer_id,
                producer_epoch=self.transactions[name].epoch,
                topics=[],
            )
            for name in request.transactional_ids
        ]
        return {"transaction_states": states}

    def _EndTxnRequest(self, request: Any, error: int | None) -> dict[str, Any]:
        known = self.transactions[request.transactional_id]
        code = error if error is not None else self._end(request, known)
        return {"error_code": code, "producer_id": known.producer_id, "producer_epoch": known.epoch}

    def _end(self, request: Any, known: Transaction) -> int:
        raises_epoch = request.API_VERSION >= 5
        if known.ended_by == (request.producer_epoch, request.committed) and not known.open:
            return NONE  # asked again
        if request.producer_epoch != known.epoch:
            return FENCED
        if not known.open and not (raises_epoch and not request.committed):
            return WRONG_STATE
        if request.committed:
            for target, values in known.open.items():
                self.committed[target] += values
        known.open.clear()
        known.ended_by = request.producer_epoch, request.committed
        known.epoch += raises_epoch
        return NONE


def _frame(connection: socket.socket) -> bytes | None:
    head = _exactly(connection, 4)
    return None if head is None else _exactly(connection, struct.unpack(">i", head)[0])


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    found = b""
    while len(found) < count:
        try:
            more = connection.recv(count - len(found))
        except OSError:
            return None
        if not more:
            return None
        found += more
    return found
