"""Blocking calls of a worker: to its leader over REST, and to Kafka to fence producers.

Each call ends in a stimulus. The core decides what is retried, and when.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from connectx.core import messages
from connectx.errors.base import ConnectxError
from connectx.errors.rest import SignatureRefusedError
from connectx.kafka.admin.fencing import ProducerFencer
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.config_records import SessionKeyRecord
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.config_providers import ConfigProviders
from connectx.rest.client import InternalClient
from connectx.runtime.tasks.connector_host import trace_of

_log = logging.getLogger(__name__)

_THREADS = 4


class Calls:
    def __init__(
        self,
        name: str,
        clients: ClientConfigs,
        config: WorkerConfig,
        post: Callable[[messages.Stimulus], None],
        providers: ConfigProviders,
    ) -> None:
        self._providers = providers
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"{name}-calls")
        self._leader = InternalClient(config)
        self._fencer = ProducerFencer(clients)
        self._post = post
        self._ended = False

    def send_task_configs(self, effect: messages.SendTaskConfigs, key: SessionKeyRecord | None) -> None:
        def call() -> None:
            self._leader.send_task_configs(effect.leader_url, effect.connector, effect.task_configs, key)

        self._submit(call, lambda failure: messages.TaskConfigsSent(effect.request_id, self._text(failure)))

    def send_fence_request(self, effect: messages.SendFenceRequest, key: SessionKeyRecord | None) -> None:
        """PUT a fencing request to the leader."""

        def call() -> None:
            self._leader.fence(effect.leader_url, effect.connector, key)

        def answer(failure: Exception | None) -> messages.Stimulus:
            retriable = isinstance(failure, ConnectxError) and failure.retriable
            refused = isinstance(failure, SignatureRefusedError)
            return messages.FenceRequestAnswered(effect.request_id, self._text(failure), retriable, refused)

        self._submit(call, answer)

    def fence_producers(self, effect: messages.FenceProducers) -> None:
        def call() -> None:
            self._fencer.fence(effect.connector, self._providers.resolve(effect.config), effect.transactional_ids)

        self._submit(call, lambda failure: messages.ProducersFenced(effect.request_id, self._text(failure)))

    def close(self) -> None:
        """End what is under way and take nothing more. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        self._leader.close()
        self._fencer.abandon()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, call: Callable[[], None], answer: Callable[[Exception | None], messages.Stimulus]) -> None:
        """Call on another thread, then post the answer for its failure, None for success."""

        def run() -> None:
            failure: Exception | None = None
            try:
                call()
            except ConnectxError as error:
                failure = error
            except Exception as error:  # whatever it is, the core must not wait forever
                _log.error("a call of a worker failed unexpectedly\n%s", trace_of(error))
                failure = error
            self._post(answer(failure))

        with contextlib.suppress(RuntimeError):  # the worker has ended meanwhile
            self._pool.submit(run)

    def _text(self, failure: Exception | None) -> str | None:
        if failure is None:
            return None
        return str(failure) if isinstance(failure, ConnectxError) else f"{type(failure).__name__}: {failure}"
