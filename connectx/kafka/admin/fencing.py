"""Fences producers by their transactional ids, so that the former owners cannot write (KIP-618).

Initialising an id bumps its epoch and aborts its open transaction. The core decides which ids are fenced. Mirrors
Kafka's Admin.fenceProducers (FenceProducersHandler).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

import kafka.errors as kafka_errors
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer.transaction import InitProducerIdRequest

from connectx.errors.kafka import ClientClosedError, KafkaPermissionError, KafkaRequestError
from connectx.kafka.net import KafkaNet, error_name
from connectx.kafka.settings.clients import ClientConfigs, ConnectorConfig

TIMEOUT_S: Final = 90.0
# The broker also uses this as the timeout of its write, so the 1 ms that Kafka's first implementation asked for
# can fail on a replicated log (KAFKA-16570); it must stay below the broker's transaction.max.timeout.ms (15 min).
_TRANSACTION_TIMEOUT_MS: Final = 10_000
_FIRST_BACKOFF_S: Final = 0.01
_LONGEST_BACKOFF_S: Final = 0.5
# CONCURRENT_TRANSACTIONS: the open transaction of the producer that is being fenced is still being aborted.
_RETRIABLE: Final = frozenset(
    {
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "NOT_ENOUGH_REPLICAS",
        "UNKNOWN_SERVER_ERROR",
    }
)
_NOT_ALLOWED: Final = frozenset({"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"})


class ProducerFencer:
    """Fences producers with a connector's admin settings."""

    def __init__(self, clients: ClientConfigs, timeout_s: float = TIMEOUT_S) -> None:
        self._clients = clients
        self._timeout_s = timeout_s
        self._in_use: dict[int, KafkaNet] = {}
        self._ended = False

    def fence(self, connector: str, connector_config: ConnectorConfig, transactional_ids: Sequence[str]) -> None:
        """Fence all ids, side by side. Blocks until it is done.

        Raises:
            KafkaPermissionError: the connector's admin client may not.
            KafkaRequestError: an id could not be fenced in time, or Kafka refused.
            ClientSettingError: the connector's `admin.override.` settings cannot be used.
            ClientClosedError: the worker was killed meanwhile.
        """
        name = f"connector-worker-adminclient-{connector}"
        net = KafkaNet(self._clients.kafka_python(name, connector, connector_config))
        if self._ended:
            raise ClientClosedError("The worker has ended.")
        net.start()
        self._in_use[id(net)] = net
        try:
            found = net.run(self._fence_all, net, transactional_ids)
        except (kafka_errors.KafkaError, RuntimeError) as error:
            raise ClientClosedError(f"Fencing for connector {connector} was cancelled ({error}).") from error
        finally:
            del self._in_use[id(net)]
            net.close()
        _raise_first(found)

    def abandon(self) -> None:
        """A killed worker: end calls that are under way; what was sent may still take effect."""
        self._ended = True
        for net in list(self._in_use.values()):
            net.abandon()

    async def _fence_all(self, net: KafkaNet, transactional_ids: Sequence[str]) -> dict[str, str | None]:
        deadline_s = time.monotonic() + self._timeout_s

        async def fence(transactional_id: str) -> str | None:
            return await _fence_one(net, transactional_id, deadline_s)

        return dict(zip(transactional_ids, await net.gather(fence, transactional_ids), strict=True))


async def _fence_one(net: KafkaNet, transactional_id: str, deadline_s: float) -> str | None:
    """Kafka's name of the error that it ended with, None for success."""
    backoff_s = _FIRST_BACKOFF_S
    while True:
        try:
            found = await net.find_coordinator(CoordinatorType.TRANSACTION, transactional_id, deadline_s)
            await net.connect(found.node_id, deadline_s)
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            )
            remaining_ms = max(1.0, (deadline_s - time.monotonic()) * 1000)
            reply = await net.send(request, found.node_id, remaining_ms)
            error, cause = error_name(reply.error_code), ""
        except kafka_errors.BrokerResponseError as failure:
            error, cause = str(failure.message), ""
        except kafka_errors.KafkaError as failure:
            error, cause = "NETWORK_EXCEPTION", f" ({failure})"
        if error is None:
            return None
        if error not in _RETRIABLE or time.monotonic() + backoff_s >= deadline_s:
            return error + cause
        await net.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)


def _raise_first(found: Mapping[str, str | None]) -> None:
    failed = {transactional_id: error for transactional_id, error in found.items() if error is not None}
    for transactional_id, error in failed.items():
        if error in _NOT_ALLOWED:
            raise KafkaPermissionError(f"fence the transactional id {transactional_id}", error)
    if failed:
        named = ", ".join(f"{transactional_id}: {error}" for transactional_id, error in failed.items())
        raise KafkaRequestError(
            f"fence {len(failed)} of {len(found)} transactional ids",
            named,
            next_step="Check the brokers, and admin.* and admin.override.*; then restart the task.",
        )
