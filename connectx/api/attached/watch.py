"""Polls an attached cluster repeatedly and appends changes to its history.

One thread, the watch, makes every poll and handles every record. With Kafka, a second thread reads the config and
status topics and hands its records over by a queue. Both start in `start` and end in `close`. The module decides when
to poll; `connectx.api.attached.observation` decides what an observation means.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Final

from confluent_kafka import Message

from connectx.api.attached import observation
from connectx.errors.base import ConnectxError
from connectx.errors.kafka import TopicMissingError
from connectx.history.log import EventLog
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.group_view import STABLE, group_view
from connectx.kafka.admin.groups import GroupClient
from connectx.kafka.internal.topic_tail import TopicTail, as_bytes
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.clock import Clock
from connectx.model.decoding import Unreadable
from connectx.model.events import Transition
from connectx.model.ids import TopicPartition
from connectx.model.payloads import SightLost, SightRegained
from connectx.protocol.config_topic import decode_config_record
from connectx.protocol.status_topic import decode_status_record
from connectx.rest.client import RestClient
from connectx.values import Value
from connectx.views import masked_text

_log = logging.getLogger(__name__)
_READ_S: Final = 60.0
_JOIN_S: Final = 10.0
_REST_SHARE: Final = 4
"""A poll that takes long is followed by a pause of this many times its duration."""


class KafkaSide(Value):
    """The observed parts of Kafka: the group, and the config and status topics."""

    clients: ClientConfigs
    group: GroupClient
    config_topic: str
    status_topic: str


class Watch:
    """The polls of one cluster.

    Args:
        client: asks its workers.
        kafka: None: everything comes from polling REST.
        events: the history that changes are appended to.
        poll_s: pause between two polls, seconds.
        clock: the clock of the history.
    """

    def __init__(
        self,
        client: RestClient,
        kafka: KafkaSide | None,
        events: EventLog,
        poll_s: float,
        clock: Clock,
        scheme: str,
    ) -> None:
        self._client = client.impatient()
        self._kafka = kafka
        self._events = events
        self._poll_s = poll_s
        self._clock = clock
        self._records: SimpleQueue[Message | None] = SimpleQueue()
        self._admin: Admin | None = None
        self._tail: TopicTail | None = None
        self._polled_ms: int | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="connectx-attached", daemon=True)
        self._observation = observation.Observation(scheme=scheme)
        self.picture = observation.Picture()
        """State at the last poll."""
        self.lost: dict[str, tuple[int, str]] = {}
        """Origins that do not answer: since when (Unix time, milliseconds), and why."""

    def start(self) -> None:
        """Look once, here, and then continue on the watch's own thread.

        Raises:
            ConnectxError: the cluster cannot be observed.
        """
        if self._kafka is None:
            self._poll_rest()
        else:
            self._kafka.group.keep()
            self._read_topics(self._kafka)
            self._append(self._observation.begin())
            self._poll_group(self._kafka)
        self.picture = self._observation.picture()
        self._thread.start()

    def close(self) -> None:
        """End both threads. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        self._records.put(None)
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)
        if self._tail is not None:
            self._tail.close()
        if self._kafka is not None:
            self._kafka.group.close()
        if self._admin is not None:
            self._admin.close()

    def _run(self) -> None:
        due_s = time.monotonic() + self._poll_s
        while not self._ended:
            try:
                message = self._records.get(timeout=max(0.0, due_s - time.monotonic()))
                if message is not None:
                    self._take_news(message)
                if self._records.empty():
                    self.picture = self._observation.picture()
                continue
            except Empty:
                pass
            began_s = time.monotonic()
            self._poll()
            self.picture = self._observation.picture()
            took_s = time.monotonic() - began_s
            due_s = time.monotonic() + max(self._poll_s, _REST_SHARE * took_s)

    def _poll(self) -> None:
        origin = observation.POLLING if self._kafka is None else observation.GROUP
        try:
            if self._kafka is None:
                self._poll_rest()
            else:
                self._poll_group(self._kafka)
        except ConnectxError as error:
            self._lose(origin, error.message)
        except Exception as error:  # otherwise the history would stop without a report
            _log.exception("A poll of the attached cluster failed")
            self._lose(origin, f"{type(error).__name__}: {error}")
        else:
            self._regain(origin)

    def _regain(self, origin: str) -> None:
        if self.lost.pop(origin, None) is not None:
            self._events.append(Transition(SightRegained(origin)))

    def _lose(self, origin: str, why: str) -> None:
        if origin not in self.lost and not self._ended:
            error = masked_text(why)
            self.lost[origin] = (self._clock(), error)
            self._events.append(Transition(SightLost(origin, error)))

    def _poll_rest(self) -> None:
        now_ms = self._clock()
        shown = self._client.expanded()
        self._append(self._observation.observe_rest(shown, self._polled_ms))
        self._polled_ms = now_ms

    def _poll_group(self, kafka: KafkaSide) -> None:
        described = kafka.group.describe()
        if described.members and described.state != STABLE:
            self._append(self._observation.observe_rebalance())
            return
        view = group_view(described.group_id, described.protocol, described.details)
        if view is not None:
            departed = self._observation.departed(view)
            answering = [worker_id for worker_id, url in departed.items() if self._answers(url)]
            self._append(self._observation.observe_group(view, answering))

    def _answers(self, url: str) -> bool:
        try:
            self._client.of(url).root()
        except ConnectxError:
            return False
        return True

    def _append(self, news: Iterable[observation.WorkerTransition]) -> None:
        for transition, worker in news:
            self._events.append(transition, worker)

    def _read_topics(self, kafka: KafkaSide) -> None:
        """Read both topics to their present end, and continue. Records after that end are changes."""
        self._admin = Admin(kafka.clients.admin())
        counts = self._admin.partition_counts([kafka.config_topic, kafka.status_topic])
        missing = [topic for topic, count in counts.items() if not count]
        if missing:
            raise TopicMissingError(
                missing[0], "it was named as an internal topic", next_step="Check config.storage.topic and the like."
            )
        partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count or 0)]
        read, failed = threading.Event(), list[ConnectxError]()

        def done(error: ConnectxError | None) -> None:
            failed.extend([] if error is None else [error])
            read.set()

        consumer = kafka.clients.internal_consumer()
        self._tail = TopicTail(
            "connectx-attached-topics", consumer, self._admin, self._records.put, self._admin.serve, self._crashed
        )
        self._tail.start(partitions)
        self._tail.read_to_end(partitions, _READ_S, done)
        read.wait()
        if failed:
            raise failed[0]
        while not self._records.empty():
            message = self._records.get()
            if message is not None:
                self._take(message, silently=True)

    def _take_news(self, message: Message) -> None:
        is_config = self._kafka is not None and message.topic() == self._kafka.config_topic
        origin = observation.CONFIG_TOPIC if is_config else observation.STATUS_TOPIC
        try:
            self._take(message)
        except Exception as error:  # polls of the group must continue
            _log.exception("A record of the attached cluster could not be taken")
            self._lose(origin, f"{type(error).__name__}: {error}")
        else:
            self._regain(origin)

    def _take(self, message: Message, *, silently: bool = False) -> None:
        key, value = as_bytes(message.key()), as_bytes(message.value())
        offset, written_ms = int(message.offset() or 0), int(message.timestamp()[1])
        assert self._kafka is not None
        if message.topic() == self._kafka.config_topic:
            config = decode_config_record(key, value)
            if isinstance(config, Unreadable):
                _log.info("A record of the config topic is skipped: %s", config.reason)
            elif silently:
                self._observation.config.apply(offset, config)
            else:
                self._append(self._observation.observe_config(offset, config, written_ms))
            return
        status = decode_status_record(key, value)
        if isinstance(status, Unreadable):
            _log.info("A record of the status topic is skipped: %s", status.reason)
        elif silently:
            self._observation.status.apply(status, written_ms)
        else:
            self._append(self._observation.observe_status(status, written_ms))

    def _crashed(self, error: BaseException) -> None:
        self._lose(observation.CONFIG_TOPIC, f"{type(error).__name__}: {error}")
