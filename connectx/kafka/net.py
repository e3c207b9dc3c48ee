"""kafka-python's network loop and connections, for the requests that librdkafka has no call for.

One loop thread and one connection manager, started and ended explicitly. It carries requests to brokers and decides
nothing about groups or producers. kafka-python is pinned exactly, because its loop and manager are reached here.
"""

from __future__ import annotations

import logging
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, TypeVar

import kafka.errors as kafka_errors
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest

_log = logging.getLogger(__name__)
_STOP_MS: Final = 1_000
_OTHER_NAMES: Final = {"MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE", "UNKNOWN": "UNKNOWN_SERVER_ERROR"}
_READ_BYTES: Final = 256 * 1024
_AGAIN_S: Final = 0.1
_NEW_TOPIC_S: Final = 2.0  # until a topic that was just created is known to every broker

T = TypeVar("T")

AUTHENTICATION_ERRORS: Final = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)
"""A broker does not accept the credentials. No retry helps."""


class KafkaNet:
    """Connections of kafka-python on a separate thread.

    Args:
        config: keyword arguments of a kafka-python client (`ClientConfigs.kafka_python`).
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._client: Any = None

    def start(self) -> None:
        """Start the loop's thread; connects to nothing yet."""
        quiet_kafka_python()
        loop = NetworkSelector(**self._config)
        self._client = KafkaNetClient(net=loop, manager=_Connections(loop, **self._config))
        self._client._net.start()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._config["bootstrap_servers"])

    @property
    def broker_version(self) -> tuple[int, ...] | None:
        """Version of the broker that responded first; None before `bootstrap`."""
        version: tuple[int, ...] | None = self._client._manager.broker_version
        return version

    def spawn(self, coroutine: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a coroutine function on the loop, from any thread, without waiting.

        Raises:
            ConnectionError: the loop has ended.
        """
        try:
            self._client._net.call_soon_threadsafe(lambda: coroutine(*args))
        except (RuntimeError, kafka_errors.KafkaError, OSError) as error:
            raise ConnectionError("the network loop of the worker has ended") from error

    def run(self, coroutine: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run a coroutine function on the loop and wait for its result; never from the loop's own thread."""
        return self._client._net.run(coroutine, *args)

    async def gather(self, coroutine: Callable[[Any], Awaitable[Any]], items: Iterable[Any]) -> list[Any]:
        """Run a coroutine function for every item side by side; results in the order of the items."""
        running = [self._client._net.call_soon_with_future(coroutine, item) for item in items]
        return [await future for future in running]

    async def sleep(self, seconds: float) -> None:
        await self._client._net.sleep(seconds)

    async def retry(self, call: Callable[[], Awaitable[T]], deadline_s: float) -> T:
        """Await `call`, again while it raises a RetriableError, until `deadline_s`; for an unknown topic at most 2 s.

        Raises:
            KafkaError: the last one.
        """
        new_topic_until_s = min(deadline_s, time.monotonic() + _NEW_TOPIC_S)
        while True:
            try:
                return await call()
            except kafka_errors.RetriableError as error:
                is_topic = isinstance(error, kafka_errors.UnknownTopicOrPartitionError)
                if time.monotonic() + _AGAIN_S >= (new_topic_until_s if is_topic else deadline_s):
                    raise
                await self.sleep(_AGAIN_S)

    async def bootstrap(self, deadline_s: float) -> None:
        """Learn the cluster's brokers, unless they are known.

        Raises:
            KafkaError: no broker answered before `deadline_s` of the monotonic clock.
        """
        manager = self._client._manager
        if not manager.cluster.brokers():
            remaining_ms = max(1.0, (deadline_s - time.monotonic()) * 1000)
            await manager.wait_for(manager.bootstrap_async(remaining_ms), remaining_ms)

    async def authenticate(self, deadline_s: float) -> None:
        """Connect to a bootstrap server unless brokers are known: `bootstrap` hides why a server refuses it.

        Raises:
            SaslAuthenticationFailedError, UnsupportedSaslMechanismError, IllegalSaslStateError: for the credentials.
        """
        manager = self._client._manager
        if manager.cluster.brokers():
            return
        server = random.choice(manager.cluster.bootstrap_brokers())
        remaining_ms = max(1.0, (deadline_s - time.monotonic()) * 1000)
        try:
            await manager.get_connection(server.node_id, timeout_ms=remaining_ms, refresh_metadata_on_err=False)
        except AUTHENTICATION_ERRORS:
            raise
        except (kafka_errors.KafkaError, OSError) as error:
            _log.debug("%s:%s cannot be reached yet: %s", server.host, server.port, error)

    async def connect(self, node_id: int | str, deadline_s: float) -> None:
        """Connect to a node, or find that it is connected, after the back-off that earlier failures earned.

        Raises:
            NodeNotReadyError: the brokers do not name it, though they were asked again.
            KafkaError: it cannot be reached.
        """
        manager = self._client._manager
        if manager.cluster.broker_metadata(node_id) is None:  # it may have joined after brokers were discovered
            await manager.cluster.refresh_metadata()
            if manager.cluster.broker_metadata(node_id) is None:
                raise kafka_errors.NodeNotReadyError(f"broker {node_id} is not known")
        delay_s = manager.connection_delay(node_id)
        if delay_s > 0:
            await self.sleep(min(delay_s, max(0.0, deadline_s - time.monotonic())))
        await manager.get_connection(node_id)

    async def connect_to_all(self, deadline_s: float) -> None:
        """Connect to every broker of the cluster.

        Raises:
            KafkaError: one cannot be reached, or not in time.
        """
        manager = self._client._manager
        await self.any_node(deadline_s)
        for broker in manager.cluster.brokers():
            connecting = self._client._net.call_soon_with_future(manager.get_connection, broker.node_id)
            await manager.wait_for(connecting, max(1.0, (deadline_s - time.monotonic()) * 1000))

    async def send(self, request: Any, node_id: int | str, timeout_ms: float) -> Any:
        """Send a request to a node and wait for its answer. A connection that does not answer in time is closed.

        Raises:
            KafkaError: no answer.
        """
        return await self._client._manager.send(request, node_id=node_id, request_timeout_ms=timeout_ms)

    async def any_node(self, deadline_s: float) -> int | str:
        """A broker for requests that any broker can answer. Discovers brokers again when no known one can be reached.

        Raises:
            KafkaError: there is none.
        """
        manager = self._client._manager
        await self.bootstrap(deadline_s)
        node_id = manager.least_loaded_node()
        if node_id is None:
            remaining_ms = max(1.0, (deadline_s - time.monotonic()) * 1000)
            await manager.wait_for(manager.bootstrap_async(remaining_ms), remaining_ms)
            node_id = manager.least_loaded_node()
        if node_id is None:
            raise kafka_errors.NodeNotReadyError("no broker can be reached")
        await self.connect(node_id, deadline_s)
        return node_id  # type: ignore[no-any-return]

    async def find_coordinator(self, kind: CoordinatorType, key: str, deadline_s: float) -> Any:
        """Coordinator of a group or transactional id: an object with `node_id`, `host`, `port`.

        Raises:
            KafkaError: no broker answered, or it does not know.
        """
        node_id = await self.any_node(deadline_s)
        request = FindCoordinatorRequest(key=key, key_type=kind.value, coordinator_keys=[key])
        remaining_ms = max(1.0, (deadline_s - time.monotonic()) * 1000)
        reply = await self.send(request, node_id, remaining_ms)
        found = reply.coordinators[0] if reply.coordinators else reply
        error = kafka_errors.for_code(found.error_code)
        if error is not kafka_errors.NoError:
            raise error(found.error_message or f"coordinator of {key}")
        return found

    async def metadata(self, topics: Iterable[str], deadline_s: float, *, create: bool = False) -> Any:
        """MetadataResponse for topics, its brokers are known from here on. `create`: as the brokers' settings allow."""
        await self.authenticate(deadline_s)
        node = await self.any_node(deadline_s)
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
            max_version=9,
        )
        reply = await self.send(request, node, max(1.0, (deadline_s - time.monotonic()) * 1000))
        self.learn_brokers(reply)
        return reply

    def learn_brokers(self, metadata: Any) -> None:
        """Take in the brokers of a MetadataResponse. On the loop's thread only."""
        self._client.cluster.update_metadata(metadata)

    def add_node(self, node_id: str, coordinator: Any) -> None:
        """Name a further connection to a broker, for requests that must not queue after others."""

        class Named:
            host, port, error_code = coordinator.host, coordinator.port, 0

        Named.node_id = node_id  # type: ignore[attr-defined]
        self._client.cluster.add_coordinator(Named, CoordinatorType.GROUP, node_id, synthesize_node_id=False)

    def disconnect(self, node_id: str, reason: str) -> None:
        """Close a node's connection, if it has one; its unanswered requests fail. On the loop's thread only."""
        connection = self._client._manager._conns.get(node_id)
        if connection is not None:
            connection.close(kafka_errors.KafkaConnectionError(reason))

    def close(self) -> None:
        """Close every connection and end the thread. A second call does nothing."""
        self._end(self._client._manager.close)

    def abandon(self) -> None:
        """Drop every connection as it is, unsent bytes too, and end the thread."""
        self._end(self._drop_connections)

    def _end(self, close_connections: Callable[[], None]) -> None:
        if self._client is None or self._client._net._closed:
            return
        net = self._client._net
        thread = net._io_thread
        try:
            net.call_soon_threadsafe(close_connections)
            net.stop(timeout_ms=_STOP_MS)
        except (RuntimeError, kafka_errors.KafkaError) as error:
            _log.debug("the network loop had ended before: %s", error)
        if thread is not None and thread.is_alive():
            _log.warning("the network loop %s did not end; its thread is abandoned", thread.name)
        else:
            net.close()

    def _drop_connections(self) -> None:
        manager = self._client._manager
        manager.closed = True
        for connection in list(manager._conns.values()):
            connection.close(kafka_errors.KafkaConnectionError("abandoned"))
        manager.cluster.close()


class _Connections(KafkaConnectionManager):  # type: ignore[misc]
    """kafka-python's connections, which read from their sockets in large pieces.

    Its own read 4 KB at a time: a system call each, after which the network thread waits for Python's lock.
    """

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        transport._sock_recv = partial(receive, transport._sock)
        return transport


def receive(sock: socket.socket) -> tuple[bytes, kafka_errors.KafkaConnectionError | None]:
    """Read what is there from a socket that does not block; the error is set when the connection has ended."""
    is_tls = isinstance(sock, ssl.SSLSocket)  # its decrypted bytes wake up no selector: they are all read
    pieces: list[bytes] = []
    while True:
        try:
            piece = sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            break
        except (OSError, ValueError) as error:
            if pieces:
                break  # first what was read; the next call meets the error again
            return b"", kafka_errors.KafkaConnectionError(error)
        if not piece:
            if pieces:
                break
            return b"", kafka_errors.KafkaConnectionError("socket disconnected")
        pieces.append(piece)
        if len(piece) < _READ_BYTES and not is_tls:
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), None


class NetTasks:
    """Coroutines and one timer on a net's loop, for the driver of a core. Once the loop has ended they do nothing.

    Args:
        net: has been started.
        lock: guards the driver's state; reentrant.
        on_time: called on the loop's thread when the earliest time that was asked for has come.
    """

    def __init__(self, net: KafkaNet, lock: AbstractContextManager[Any], on_time: Callable[[], None]) -> None:
        self._net = net
        self._lock = lock
        self._on_time = on_time
        self._wakes_ms: int | None = None

    def spawn(self, coroutine: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a coroutine function on the loop, from any thread, without waiting."""
        try:
            self._net.spawn(coroutine, *args)
        except ConnectionError:
            _log.debug("The network loop has ended; %s is not run", coroutine)

    def wake_at(self, at_ms: int | None) -> None:
        """Call `on_time` at a time of `monotonic_ms` or earlier; None asks for nothing. From any thread."""
        with self._lock:
            if at_ms is not None and (self._wakes_ms is None or at_ms < self._wakes_ms):
                self._wakes_ms = at_ms
                self.spawn(self._wake, at_ms)

    async def _wake(self, at_ms: int) -> None:
        await self._net.sleep(max(0, at_ms - monotonic_ms()) / 1000)
        with self._lock:  # a time that another thread asks for meanwhile must not be lost
            is_next = self._wakes_ms == at_ms
            if is_next:
                self._wakes_ms = None
        if is_next:
            self._on_time()


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def error_name(code: int) -> str | None:
    """Kafka's name of an error code, None for success."""
    return None if code == 0 else name_of(kafka_errors.for_code(code))


def name_of(error: Any) -> str:
    """Kafka's name of an error or a class of errors, where kafka-python has another."""
    return _OTHER_NAMES.get(str(error.message), str(error.message))


def quiet_kafka_python() -> None:
    """Limit kafka-python's logging to its critical errors, unless the application has set a level for it.

    It logs every lost connection as an error, and the caller of a request reports that already.
    """
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
