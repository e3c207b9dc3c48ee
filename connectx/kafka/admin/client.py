"""Admin calls with typed errors: topics by librdkafka, groups and offsets of partitions by kafka-python.

Decides nothing; the rules for internal topics are in `connectx.kafka.admin.topics`. It never joins a group.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import ClientClosedError, ClientSettingError, KafkaRequestError
from connectx.kafka.admin.groups import GroupClient
from connectx.kafka.admin.partition_offsets import EARLIEST, LATEST, Offsets, OffsetsClient
from connectx.kafka.kafka_errors import is_permission_error, typed, worth_knowing
from connectx.kafka.settings.client_config import ClientConfig, kafka_python_config
from connectx.model.ids import TopicPartition
from connectx.values import Value

CALL_S: Final = 30.0
# A broker may not know a topic yet that another one has just created; librdkafka drops a request when it learns the id
# of the broker that it was sent to.
_NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers before Kafka 2.8 have in place of an id: 16 bytes of 0 in base64."""
_UNSETTLED: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._DESTROY_BROKER)
_NEW_TOPIC_S: Final = 5.0
_PAUSE_S: Final = 0.05
_CLOSED_CHECK_S: Final = 0.2

T = TypeVar("T")


class TopicSpec(Value):
    """A topic to create; -1 is the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    settings: Mapping[str, str] = field(default_factory=dict)


class ClusterView(Value):
    """A Kafka cluster as one login sees it.

    Attributes:
        brokers: `host:port` as the brokers announce themselves.
        rights: operations that the login may do with the cluster, in Kafka's names; None if Kafka does not report them.
        topics: of those asked for, the ones that exist, each with the operations that are allowed.
    """

    brokers: tuple[str, ...]
    rights: frozenset[str] | None
    topics: Mapping[str, frozenset[str] | None]


class Admin:
    """Admin calls of one worker. They block, from any thread; nothing is connected before the first.

    Every call may raise KafkaUnreachableError, KafkaLoginError, KafkaPermissionError, KafkaRequestError or
    ClientClosedError, the first ClientSettingError too. `timeout_s` is the limit of one call.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._client: AdminClient | None = None
        self._connection_error: KafkaError | None = None
        self._offsets: OffsetsClient | None = None
        self._lock = threading.Lock()
        self._closed = False

    def partition_counts(self, topics: Sequence[str], timeout_s: float = CALL_S) -> dict[str, int | None]:
        """Number of partitions of each topic, None for one that does not exist. Never creates one."""
        described = self._described(topics, timeout_s).items()
        return {topic: None if found is None else len(found.partitions) for topic, found in described}

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Ids of topics, which a topic that is created again does not keep. Topics without one are left out."""
        ids = {topic: str(found.topic_id) for topic, found in self._described(topics, CALL_S).items() if found}
        return {topic: found for topic, found in ids.items() if found != _NO_TOPIC_ID}

    def _described(self, topics: Sequence[str], timeout_s: float) -> dict[str, Any]:
        futures = self._rdkafka().describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s)
        found: dict[str, Any] = {}
        for topic, future in futures.items():
            found[topic], error = self._outcome(future)
            if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._typed(error, f"look at topic {topic}")
        return found

    def replica_counts(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """How many replicas each partition of each topic has; topics that do not exist are left out."""
        futures = self._rdkafka().describe_topics(TopicCollection(list(topics)), request_timeout=CALL_S)
        outcomes = {topic: self._outcome(future) for topic, future in futures.items()}
        return {
            topic: [len(partition.replicas) for partition in answer.partitions]
            for topic, (answer, error) in outcomes.items()
            if error is None
        }

    def broker_count(self, timeout_s: float = CALL_S) -> int:
        try:
            return len(self._rdkafka().list_topics(timeout=timeout_s).brokers)
        except KafkaException as error:
            raise self._typed(error.args[0], "list the brokers") from error

    def topics(self, timeout_s: float = CALL_S) -> list[str]:
        """Names of all topics that may be seen, sorted."""
        try:
            return sorted(self._rdkafka().list_topics(timeout=timeout_s).topics)
        except KafkaException as error:
            raise self._typed(error.args[0], "list the topics") from error

    def create_topics(self, specs: Sequence[TopicSpec], timeout_s: float = CALL_S) -> dict[str, KafkaError | None]:
        """Create topics; each one's error, None for success."""
        new = [NewTopic(s.name, s.partitions, s.replication_factor, config=dict(s.settings)) for s in specs]
        futures = self._rdkafka().create_topics(new, operation_timeout=timeout_s, request_timeout=timeout_s)
        return {topic: self._outcome(future)[1] for topic, future in futures.items()}

    def create_partitions(self, topic: str, count: int) -> KafkaError | None:
        """Add partitions until a topic has `count`; the error, None for success."""
        asked = [NewPartitions(topic, count)]
        (future,) = self._rdkafka().create_partitions(asked, request_timeout=CALL_S).values()
        return self._outcome(future)[1]

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str] | None]:
        """Settings of each topic; None where they cannot be read (no permission, or the broker is too old)."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        again_until_s = time.monotonic() + min(CALL_S, _NEW_TOPIC_S)
        while True:
            futures = self._rdkafka().describe_configs(resources, request_timeout=CALL_S)
            outcomes = {resource: self._outcome(future) for resource, future in futures.items()}
            is_settled = not any(error is not None and error.code() in _UNSETTLED for _, error in outcomes.values())
            if is_settled or time.monotonic() > again_until_s:
                break
            time.sleep(_PAUSE_S)
        found: dict[str, dict[str, str] | None] = {}
        for resource, (answer, error) in outcomes.items():
            hidden = error is not None and (
                is_permission_error(error) or error.code() == KafkaError.UNSUPPORTED_VERSION
            )
            if error is not None and not hidden:
                raise self._typed(error, f"read the settings of topic {resource.name}")
            found[resource.name] = None if hidden else {name: entry.value for name, entry in answer.items()}
        return found

    def cluster_id(self, timeout_s: float = CALL_S) -> str:
        answer, error = self._outcome(self._rdkafka().describe_cluster(request_timeout=timeout_s))
        if error is not None:
            raise self._typed(error, "ask for the cluster's id")
        return str(answer.cluster_id)

    def cluster_view(self, topics: Sequence[str], timeout_s: float = CALL_S) -> ClusterView:
        """The cluster's brokers, which of these topics exist, and what this login may do."""
        client = self._rdkafka()
        futures = client.describe_topics(
            TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout_s
        )
        asked = client.describe_cluster(include_authorized_operations=True, request_timeout=timeout_s)
        answer, error = self._outcome(asked)
        if error is not None:
            raise self._typed(error, "look at the cluster")
        brokers = tuple(f"{node.host}:{node.port}" for node in answer.nodes)
        found: dict[str, frozenset[str] | None] = {}
        for topic, future in sorted(futures.items()):
            described, error = self._outcome(future)
            if error is None:
                found[topic] = _rights(described.authorized_operations)
            elif is_permission_error(error):
                found[topic] = frozenset()
        return ClusterView(brokers, _rights(answer.authorized_operations), found)

    def end_offsets(self, partitions: Iterable[TopicPartition], *, committed: bool = False) -> Offsets:
        """End of each partition: offset of the next record, or with `committed` the last stable offset."""
        return self._offsets_of(partitions, LATEST, committed)

    def start_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Start of each partition: the offset of the first record that retention has left."""
        return self._offsets_of(partitions, EARLIEST, False)

    def _offsets_of(self, partitions: Iterable[TopicPartition], spec: int, committed: bool) -> Offsets:
        waiting: Future[Offsets] = Future()
        self._offsets_client().request(
            tuple(partitions), spec, waiting.set_result, waiting.set_exception, committed=committed, timeout_s=CALL_S
        )
        return self._wait(waiting)

    def request_end_offsets(
        self,
        partitions: Iterable[TopicPartition],
        on_found: Callable[[Offsets], object],
        on_failed: Callable[[ConnectxError], object],
        *,
        timeout_s: float = CALL_S,
    ) -> None:
        """Ask for the ends without waiting. Before `close`, one of the callbacks is called once, on another thread."""
        self._offsets_client().request(
            tuple(partitions), LATEST, on_found, on_failed, committed=False, timeout_s=timeout_s
        )

    def _offsets_client(self) -> OffsetsClient:
        with self._lock:
            if self._closed:
                raise ClientClosedError("The worker has ended.")
            if self._offsets is None:
                self._offsets = OffsetsClient(kafka_python_config(self._config))
            return self._offsets

    def group_offsets(self, group: str) -> Offsets:
        return self._group(group).offsets()

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set offsets of a consumer group without members."""
        self._group(group).alter_offsets(offsets)

    def delete_group(self, group: str) -> None:
        """Delete a consumer group without members, and its offsets; one that does not exist is fine."""
        self._group(group).delete()

    def _group(self, group: str) -> GroupClient:
        return GroupClient(kafka_python_config(self._config), group, CALL_S)

    def serve(self) -> None:
        """Serve librdkafka's callbacks (its log, lost connections). Call now and then; never blocks."""
        client = self._client
        if client is not None:
            client.poll(0)

    def close(self) -> None:
        """Release the clients; later calls raise ClientClosedError."""
        with self._lock:
            self._closed = True
        self._client = None
        if self._offsets is not None:
            self._offsets.close()

    def _rdkafka(self) -> AdminClient:
        client = self._client
        if client is not None:
            return client
        if self._closed:
            raise ClientClosedError("The worker has ended.")
        settings: dict[str, Any] = {**self._config, "error_cb": self._on_connection_error}
        try:
            client = self._client = AdminClient(settings)
        except KafkaException as failure:
            raise ClientSettingError(
                f"A Kafka client cannot be created: {failure.args[0].str()}.",
                next_step="Correct the ssl.*, sasl.* and other client settings of the worker or the connector.",
            ) from failure
        return client

    def _on_connection_error(self, error: KafkaError) -> None:
        if worth_knowing(error):
            self._connection_error = error

    def _outcome(self, future: Future[Any]) -> tuple[Any, KafkaError | None]:
        try:
            return self._wait(future), None
        except KafkaException as failure:
            return None, failure.args[0]

    def _wait(self, future: Future[T]) -> T:
        """Wait for an answer. A client that is closed meanwhile drops its futures as they are."""
        while True:
            try:
                return future.result(_CLOSED_CHECK_S)
            except TimeoutError:
                if self._closed:
                    raise ClientClosedError("The worker has ended.") from None

    def _typed(self, error: KafkaError, what: str) -> Exception:
        self.serve()
        return typed(error, what, str(self._config["bootstrap.servers"]), self._connection_error)

    def request_error(self, error: KafkaError, what: str, next_step: str) -> Exception:
        """The typed error for one that a call returned, with a next step where it is Kafka's own refusal."""
        found = self._typed(error, what)
        return (
            KafkaRequestError(what, error.str(), next_step=next_step) if isinstance(found, KafkaRequestError) else found
        )


def _rights(operations: Iterable[Any] | None) -> frozenset[str] | None:
    return None if operations is None else frozenset(operation.name for operation in operations)
