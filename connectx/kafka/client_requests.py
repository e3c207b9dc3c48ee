"""What the requests of all clients share: reports of lost ones, and the answer to a request for metadata."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from connectx.core.clients.messages import Leader, MetadataFetched, SendRequest, Unanswered
from connectx.kafka.net import KafkaNet, error_name
from connectx.model.ids import TopicPartition

_log = logging.getLogger(__name__)
_WARN_EVERY_S: Final = 30.0


class ClientRequests:
    """Sends requests of one client.

    Args:
        net: its connections.
        client: what it is, as "a producer".
        report: takes the outcome of requests; called on the network thread.
    """

    def __init__(self, net: KafkaNet, client: str, report: Callable[[Any], None]) -> None:
        self._net = net
        self._client = client
        self._report = report
        self._warned_s = -_WARN_EVERY_S

    def _lose(self, effect: SendRequest[Any], error: Exception, *, sent: bool) -> None:
        """Report that a request stays without an answer."""
        reason = str(error) or type(error).__name__
        self._warn(reason)
        self._report(Unanswered(effect.request_id, reason, sent))

    def _warn(self, reason: str) -> None:
        """Log why a request stayed without an answer, at most every 30 s."""
        if time.monotonic() - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = time.monotonic()
            servers = self._net.bootstrap_servers
            _log.warning("Kafka at %s did not answer %s, which retries: %s", servers, self._client, reason)


def metadata_fetched(reply: Any) -> MetadataFetched:
    """Return what a core sees of a MetadataResponse."""
    leaders: dict[TopicPartition, Leader] = {}
    leaderless: set[TopicPartition] = set()
    for topic in reply.topics:
        for partition in topic.partitions:
            target = TopicPartition(topic.name, partition.partition_index)
            if partition.leader_id >= 0:
                epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
                leaders[target] = Leader(partition.leader_id, epoch)
            else:
                leaderless.add(target)
    errors = {topic.name: name for topic in reply.topics if (name := error_name(topic.error_code)) is not None}
    return MetadataFetched(leaders, errors, frozenset(leaderless))
