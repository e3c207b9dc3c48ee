"""The epoch of the newest producer of a transactional id: after a fence, that of the producer that took over.

The transaction coordinator knows it (DescribeTransactions, KIP-664).
"""

from __future__ import annotations

import logging
import time
from typing import Final

import kafka.errors as kafka_errors
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.metadata import CoordinatorType

from connectx.kafka.net import KafkaNet
from connectx.kafka.settings.client_config import ClientConfig

_log: Final = logging.getLogger(__name__)
_TIMEOUT_S: Final = 2.0


def producer_epoch(config: ClientConfig, transactional_id: str) -> int | None:
    """The epoch, or None when it cannot be had within two seconds (no permission to describe, an old broker)."""
    net = KafkaNet(config)
    net.start()
    try:
        newest: tuple[int, int] | None = net.run(newest_producer, net, transactional_id)
    except (RuntimeError, OSError) as error:
        _log.debug("The epoch of %s is not known: %s", transactional_id, error)
        return None
    finally:
        net.close()
    return None if newest is None else newest[1]


async def newest_producer(net: KafkaNet, transactional_id: str) -> tuple[int, int] | None:
    """Producer id and epoch, which grow with each takeover; None as for `producer_epoch`. On the loop of `net`."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    try:
        coordinator = await net.find_coordinator(CoordinatorType.TRANSACTION, transactional_id, deadline_s)
        await net.connect(coordinator.node_id, deadline_s)
        reply = await net.send(request, coordinator.node_id, max(1.0, (deadline_s - time.monotonic()) * 1000))
    except kafka_errors.KafkaError as error:
        _log.debug("The newest producer of %s is not known: %s", transactional_id, error)
        return None
    found = next(iter(reply.transaction_states), None)
    return None if found is None or found.error_code else (int(found.producer_id), int(found.producer_epoch))
