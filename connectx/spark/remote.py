"""Spark Connect sessions of workers in processes, and the end of sessions whose worker was killed.

A session's id is reported before the session is made: the jobs of a killed client continue, and ending them
requires the id. Decides nothing about tasks, and never starts or stops a server.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from connectx.errors.spark import SparkNotAwaitedError, SparkStartError
from connectx.extras import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_WAIT_S = 120.0
_CALL_S = 5.0
_RELEASE_S = 2.0


class RemoteSpark:
    """Sessions on a Spark Connect server whose address comes later.

    Args:
        on_session: called with the id of each session before it is made.
        on_released: called with the id of a session that has ended.
    """

    def __init__(
        self, on_session: Callable[[str], object], on_released: Callable[[str], object] = lambda session_id: None
    ) -> None:
        self._on_session = on_session
        self._on_released = on_released
        self._url: Future[str] = Future()

    def connect(self, url: str) -> None:
        """Spark is up: `sc://host:port/;name=value`."""
        self._url.set_result(url)

    def fail(self, reason: str) -> None:
        """Spark cannot be had."""
        self._url.set_exception(
            SparkStartError(
                f"did not start: {reason.rstrip('.')}",
                of="The Spark of this worker's cluster",
                next_step="Correct the cause in the process that started the cluster, and start the cluster again.",
            )
        )

    def task_session(self, stopping: Future[None] | None = None) -> SparkSession:
        """A new session; waits for the server's start, or until `stopping` is done.

        Raises:
            SparkStartError: there is no server, or not in time.
            SparkNotAwaitedError: `stopping` was done first.
        """
        require("A Spark session", "spark", "pyspark", "pandas")
        from pyspark.sql import SparkSession

        url = awaited(self._url, stopping)
        session_id = str(uuid.uuid4())
        self._on_session(session_id)
        made: SparkSession = SparkSession.builder.remote(with_params(url, session_id=session_id)).create()
        return closing_its_channel_only(made)

    def interrupt(self, session: SparkSession) -> None:
        """End everything that runs in `session`."""
        session.interruptAll()

    def release(self, session: SparkSession) -> None:
        """End `session`, which `task_session` made; one that the server kept for want of an answer stays known."""
        if close_session(session):
            self._on_released(cast(Any, session).session_id)


def awaited(started: Future[T], stopping: Future[None] | None = None, timeout_s: float = _WAIT_S) -> T:
    """What `started` brings, waiting for it at most `timeout_s` seconds, and no longer than until `stopping` is done.

    Raises:
        SparkNotAwaitedError: `stopping` was done first.
        SparkStartError: not in time; or what `started` failed with.
    """
    either: list[Future[Any]] = [started] if stopping is None else [started, stopping]
    done, _ = wait(either, timeout_s, FIRST_COMPLETED)
    if started in done:
        return started.result()
    if done:
        raise SparkNotAwaitedError()
    raise SparkStartError(f"was not up in {timeout_s:.0f} s", next_step="It may still be starting: restart the task.")


def closing_its_channel_only(session: SparkSession) -> SparkSession:
    """Let the end of a new Spark Connect session leave the other sessions of the process alone.

    Until Spark 4.2, closing a client shuts down the thread pool in which all sessions release their results. The
    garbage collector closes clients, too, sometimes on a thread of that pool: the pool then stays shut down, and every
    later query of every session fails or blocks (SPARK-55362, SPARK-55406).
    """
    client = cast(Any, session).client
    client.close = partial(_close_channel, client)
    return session


def _close_channel(client: Any) -> None:
    client._channel.close()
    client._closed = True


def close_session(session: Any) -> bool:
    """End a Spark Connect session, what runs in it, and its channel; False when the server did not say so in time.

    Not `session.stop()`: this waits for a server that is gone, as long as its retries take, under a lock that all
    sessions share.
    """
    import grpc
    import pyspark.sql.connect.proto as pb2

    client = session.client
    user = pb2.UserContext(user_id=client._user_id or "")
    forget = pb2.ReleaseSessionRequest(session_id=session.session_id, user_context=user)
    try:
        client._stub.ReleaseSession(forget, timeout=_RELEASE_S, metadata=client._builder.metadata())
    except (grpc.RpcError, ValueError):  # the server is gone; or the channel was closed before
        return False
    else:
        return True
    finally:
        _close_channel(client)


def with_params(url: str, **params: str) -> str:
    """A Spark Connect address with further parameters; those that it has stay."""
    base, _, given = url.partition("/;")
    own = [part for part in given.split(";") if part]
    named = {part.partition("=")[0] for part in own}
    added = [f"{name}={value}" for name, value in params.items() if name not in named]
    return f"{base.rstrip('/')}/;{';'.join([*own, *added])}"


def release_sessions(url: str, session_ids: Iterable[str]) -> None:
    """End sessions whose client is gone, and what runs in them. A server that is gone, too, is no error."""
    import grpc
    import pyspark.sql.connect.proto as pb2
    import pyspark.sql.connect.proto.base_pb2_grpc as services
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    builder = DefaultChannelBuilder(url)
    channel = builder.toChannel()
    stub = cast(Any, services).SparkConnectServiceStub(channel)
    user, metadata = pb2.UserContext(user_id=builder.userId or ""), builder.metadata()
    everything = pb2.InterruptRequest.InterruptType.INTERRUPT_TYPE_ALL
    try:
        with suppress(grpc.RpcError):
            for session_id in session_ids:
                end = pb2.InterruptRequest(session_id=session_id, user_context=user, interrupt_type=everything)
                stub.Interrupt(end, timeout=_CALL_S, metadata=metadata)
                forget = pb2.ReleaseSessionRequest(session_id=session_id, user_context=user)
                stub.ReleaseSession(forget, timeout=_CALL_S, metadata=metadata)
    finally:
        channel.close()
