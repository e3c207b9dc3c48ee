"""Calls of a worker that block: to its leader over REST, and to Kafka to fence producers. Each answers by a stimulus.

Decides nothing: what is tried again, and when, is the core's business.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from connectx.core.messages import (
    FenceProducers,
    FenceRequestAnswered,
    ProducersFenced,
    SendFenceRequest,
    SendTaskConfigs,
    Stimulus,
    TaskConfigsSent,
)
from connectx.errors import ConnectxError
from connectx.kafka.clients import ClientConfigs
from connectx.kafka.fencing import ProducerFencer
from connectx.model.config_records import SessionKeyRecord
from connectx.rest.client import InternalClient

_THREADS = 4


class Calls:
    """The blocking calls of one worker.

    Args:
        name: the worker's, for its threads.
        clients: builds client settings.
        signature_algorithm: `inter.worker.signature.algorithm`.
        post: the worker's mailbox.
    """

    def __init__(
        self, name: str, clients: ClientConfigs, signature_algorithm: str, post: Callable[[Stimulus], None]
    ) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"{name}-calls")
        self._leader = InternalClient(signature_algorithm)
        self._fencer = ProducerFencer(clients)
        self._post = post
        self._ended = False

    def send_task_configs(self, effect: SendTaskConfigs, key: SessionKeyRecord | None) -> None:
        """POST task configs to the leader."""

        def send() -> Stimulus:
            try:
                self._leader.send_task_configs(effect.leader_url, effect.connector, effect.task_configs, key)
            except ConnectxError as failure:
                return TaskConfigsSent(effect.request_id, str(failure))
            return TaskConfigsSent(effect.request_id)

        self._submit(send)

    def send_fence_request(self, effect: SendFenceRequest, key: SessionKeyRecord | None) -> None:
        """PUT a fencing request to the leader."""

        def send() -> Stimulus:
            try:
                self._leader.fence(effect.leader_url, effect.connector, key)
            except ConnectxError as failure:
                return FenceRequestAnswered(effect.request_id, str(failure), failure.retriable)
            return FenceRequestAnswered(effect.request_id)

        self._submit(send)

    def fence_producers(self, effect: FenceProducers) -> None:
        """Fence producers in Kafka."""

        def fence() -> Stimulus:
            try:
                self._fencer.fence(effect.connector, effect.config, effect.transactional_ids)
            except ConnectxError as failure:
                return ProducersFenced(effect.request_id, str(failure))
            return ProducersFenced(effect.request_id)

        self._submit(fence)

    def close(self, last_words: Callable[[], object] = bool) -> None:
        """End what is under way and take nothing more; `last_words` still runs on one of the threads."""
        if self._ended:
            return
        self._ended = True
        self._leader.close()
        self._fencer.abandon()
        self._pool.submit(last_words)
        self._pool.shutdown(wait=False)

    def _submit(self, call: Callable[[], Stimulus]) -> None:
        if not self._ended:
            self._pool.submit(lambda: self._post(call()))
