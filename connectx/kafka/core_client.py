"""A Kafka client around a core: its network thread, its lock, and the steps of its core."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Generic

from connectx.core.clients.messages import ClientStep, TimeReached
from connectx.kafka.net import KafkaNet, NetTasks, monotonic_ms
from connectx.kafka.settings.client_config import ClientConfig, kafka_python_config
from connectx.kafka.settings.fetcher_options import FetcherOptions
from connectx.kafka.settings.producer_options import ProducerOptions
from connectx.recording.kind import CoreKind, CoreT, SettingsT
from connectx.recording.recorder import Recorder

_log = logging.getLogger(__name__)
_CONNECTION_DEFAULTS: Final = {"client.id": "connectx", "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 1_000}


def connection_settings(config: Mapping[str, Any], options: ProducerOptions | FetcherOptions) -> ClientConfig:
    """Settings of a client's connections, for KafkaNet.

    Raises:
        ClientSettingError: a security setting cannot be used.
    """
    return kafka_python_config(
        ClientConfig({**_CONNECTION_DEFAULTS, **config}),
        request_timeout_ms=options.request_timeout_ms,
        metadata_max_age_ms=options.metadata_max_age_ms,
    )


class CoreClient(ABC, Generic[CoreT]):
    """Gives stimuli to a core, whose effects subclasses carry out. All state is guarded by one condition."""

    def __init__(self, config: Mapping[str, Any], recorder: Recorder | None) -> None:
        self._config = config
        self._recorder = recorder or Recorder(0, None)
        self._changed = threading.Condition(threading.RLock())
        self._net: KafkaNet | None = None
        self._crash: Exception | None = None

    @abstractmethod
    def _carry_out(self, effect: Any, cause: Any) -> Any | None:
        """Carry out an effect of the stimulus `cause`, under the lock; returns the stimulus that answers it, if any."""

    @abstractmethod
    def _show(self, shown: Any) -> None:
        """Take in what a step shows, under the lock."""

    def _make_core(self, kind: CoreKind[SettingsT, CoreT], settings: SettingsT) -> None:
        self._recorded = self._recorder.part(kind, str(self._config.get("client.id", "connectx")), settings)

    def _start(self, net: KafkaNet) -> None:
        with self._changed:  # abandon stops the thread, or finds none
            net.start()
            self._net = net
            self._tasks = NetTasks(net, self._changed, lambda: self._report(TimeReached()))

    def _take(self, stimulus: Any) -> None:
        """Let the core decide, and carry out its effects. From any thread."""
        with self._changed:
            stimuli = deque([stimulus])
            while stimuli:
                cause = stimuli.popleft()
                step: ClientStep[Any] = self._recorded.handle(self._stimulus(cause), monotonic_ms())
                if step.ignored is not None:
                    _log.debug("%s ignores %s: %s", self._recorded.name, type(cause).__name__, step.ignored)
                self._show(step.shown)
                for effect in step.effects:
                    if (answer := self._carry_out(effect, cause)) is not None:
                        stimuli.append(answer)
                self._tasks.wake_at(step.wake_at_ms)
            self._changed.notify_all()

    def _stimulus(self, cause: Any) -> Any:
        """What the core sees of a cause."""
        return cause

    def _report(self, event: Any) -> None:
        """Take a stimulus on the network thread, where an error, also one as the event, ends the client."""
        try:
            if isinstance(event, Exception):
                raise event
            self._take(event)
        except Exception as error:
            if error is not event:
                _log.exception("the client %s ended with an error", self._recorded.name)
            with self._changed:
                self._crash = error
                self._changed.notify_all()

    def abandon(self) -> None:
        """Disconnect as a killed process would, without ending anything. From any thread."""
        with self._changed:
            net, self._net = self._net, None
        if net is not None:
            net.abandon()
