"""Sends the requests of the fetcher's core through kafka-python, and decodes the responses.

One coroutine for each request. It decides nothing: a failure is reported as Unanswered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, assert_never

import kafka.errors as kafka_errors
from kafka.protocol.consumer import FetchRequest

from connectx.core.clients.messages import Answered, FetchMetadata, SendRequest, Unanswered
from connectx.core.fetcher import messages as msg
from connectx.kafka.client_requests import ClientRequests, metadata_fetched
from connectx.kafka.fetcher.chunks import Chunk
from connectx.kafka.net import AUTHENTICATION_ERRORS, KafkaNet, error_name
from connectx.kafka.settings.fetcher_options import FetcherOptions
from connectx.model.ids import TopicPartition
from connectx.values import Value

_log = logging.getLogger(__name__)


class Reply(Value):
    """An answer with what the core does not see of it: records, and the ends of partitions.

    `ends` has the high watermark of each partition.
    """

    stimulus: Answered[msg.Answer]
    chunks: Mapping[TopicPartition, Chunk]
    ends: Mapping[TopicPartition, int]


class FetcherRequests(ClientRequests):
    """Sends requests of one fetcher.

    Args:
        net: its connections.
        options: its settings.
        report: takes replies, Unanswered, and what ends the fetcher; called on the network thread.
    """

    def __init__(
        self, net: KafkaNet, options: FetcherOptions, report: Callable[[Reply | Unanswered | Exception], None]
    ) -> None:
        super().__init__(net, "a consumer", report)
        self._options = options

    async def carry_out(self, effect: SendRequest[msg.Request]) -> None:
        """Send a request and report its answer."""
        deadline_s = time.monotonic() + self._options.request_timeout_ms / 1000
        try:
            match effect.request:
                case FetchMetadata(topics):
                    metadata = metadata_fetched(await self._net.metadata(topics, deadline_s))
                    reply = Reply(Answered(effect.request_id, metadata), {}, {})
                case msg.Fetch():
                    reply = await self._fetch(effect.request_id, effect.node, effect.request, deadline_s)
                case _ as never:
                    assert_never(never)
        except (*AUTHENTICATION_ERRORS, kafka_errors.IncompatibleBrokerVersion) as error:
            self._report(error)
        except kafka_errors.Cancelled:  # its connection was closed here
            self._report(Unanswered(effect.request_id, "the request was cancelled"))
        except (kafka_errors.KafkaError, OSError, RuntimeError) as error:
            self._lose(effect, error, sent=True)
        except Exception as error:  # whatever it is, the core must not wait forever
            _log.exception("a request of a consumer failed in an unexpected way")
            self._report(error)
        else:
            self._report(reply)

    async def _fetch(self, request_id: int, node: int | None, request: msg.Fetch, deadline_s: float) -> Reply:
        assert node is not None, "the core names a node for every Fetch"
        await self._net.connect(node, deadline_s)
        timeout_ms = self._options.request_timeout_ms + self._options.max_wait_ms
        answer = await self._net.send(self._fetch_request(request), node, timeout_ms)
        chunks: dict[TopicPartition, Chunk] = {}
        results: dict[TopicPartition, msg.PartitionResult] = {}
        ends: dict[TopicPartition, int] = {}
        offsets = {fetch.target: fetch.offset for fetch in request.partitions}
        for topic in answer.responses:
            for partition in topic.partitions:
                target = TopicPartition(topic.topic, partition.partition_index)
                chunk, bad_batch = None, ""
                if partition.error_code == 0:
                    ends[target] = partition.high_watermark
                    if partition.records:
                        chunk, bad_batch = self._chunk(target, offsets[target], partition)
                if chunk is not None:
                    chunks[target] = chunk
                results[target] = _result(partition, chunk, bad_batch)
        return Reply(Answered(request_id, msg.Fetched(results, error_name(answer.error_code or 0))), chunks, ends)

    def _chunk(self, target: TopicPartition, offset: int, partition: Any) -> tuple[Chunk | None, str]:
        aborted = partition.aborted_transactions or () if self._options.read_committed else ()
        return Chunk.of(
            target,
            offset,
            partition.records,
            [(transaction.first_offset, transaction.producer_id) for transaction in aborted],
            check_crc=self._options.check_crcs,
        )

    def _fetch_request(self, request: msg.Fetch) -> Any:
        topics: dict[str, list[Any]] = {}
        for fetch in request.partitions:
            topics.setdefault(fetch.target.topic, []).append(
                FetchRequest.FetchTopic.FetchPartition(
                    partition=fetch.target.partition,
                    current_leader_epoch=fetch.leader_epoch,
                    fetch_offset=fetch.offset,
                    last_fetched_epoch=fetch.fetched_epoch,
                    log_start_offset=-1,
                    partition_max_bytes=self._options.core.partition_max_bytes,
                )
            )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._options.max_wait_ms,
            min_bytes=self._options.min_bytes,
            max_bytes=request.max_bytes,
            isolation_level=int(self._options.read_committed),
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchRequest.FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()
            ],
            forgotten_topics_data=[],
            rack_id=self._options.rack,
            min_version=4,
            max_version=12,
        )


def _result(partition: Any, chunk: Chunk | None, bad_batch: str) -> msg.PartitionResult:
    diverging = partition.diverging_epoch
    replica = partition.preferred_read_replica
    return msg.PartitionResult(
        error=error_name(partition.error_code),
        size_bytes=0 if chunk is None else chunk.size_bytes,
        next_offset=-1 if chunk is None else chunk.end_offset,
        last_epoch=-1 if chunk is None else chunk.last_epoch,
        diverging_offset=-1 if diverging is None or diverging.end_offset is None else diverging.end_offset,
        preferred_replica=-1 if replica is None else replica,
        bad_batch=bad_batch,
    )
