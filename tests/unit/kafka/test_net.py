"""Timers on the network loop, whose threads the tests play themselves."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from connectx.kafka import net
from connectx.kafka.net import NetTasks, receive


class Loop:
    """Keeps what it is asked to run; nobody sleeps."""

    def __init__(self) -> None:
        self.spawned: list[tuple[Callable[..., Awaitable[None]], tuple[Any, ...]]] = []

    def spawn(self, coroutine: Callable[..., Awaitable[None]], *args: Any) -> None:
        self.spawned.append((coroutine, args))

    async def sleep(self, seconds: float) -> None:
        pass

    def run_next(self) -> None:
        coroutine, args = self.spawned.pop(0)

        async def run() -> None:
            await coroutine(*args)

        asyncio.run(run())


class Contended(int):
    """A time; when it is compared while the lock is free, another thread asks for an earlier time."""

    def __new__(cls, value: int, *_: Any) -> Contended:
        return super().__new__(cls, value)

    def __init__(self, _: int, lock: threading.RLock, ask: Callable[[], None]) -> None:
        self.lock = lock
        self.ask = ask

    def __eq__(self, other: object) -> bool:
        asking = threading.Thread(target=self.ask)
        asking.start()
        if not self.lock._is_owned():  # type: ignore[attr-defined]
            asking.join()  # else it waits for the lock
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


def test_a_time_that_another_thread_asks_for_during_a_wake_up_is_not_lost() -> None:
    loop, lock, fired = Loop(), threading.RLock(), threading.Event()
    tasks = NetTasks(loop, lock, fired.set)  # type: ignore[arg-type]
    asked = threading.Event()

    def ask() -> None:
        tasks.wake_at(5)
        asked.set()

    tasks.wake_at(Contended(10, lock, ask))
    loop.run_next()
    assert asked.wait(10)
    fired.clear()
    loop.run_next()
    assert fired.is_set()


def test_only_the_earliest_time_wakes() -> None:
    loop, fired = Loop(), []
    tasks = NetTasks(loop, threading.RLock(), lambda: fired.append(1))  # type: ignore[arg-type]
    for at_ms in (30, None, 20, 40):
        tasks.wake_at(at_ms)
    while loop.spawned:
        loop.run_next()
    assert fired == [1]


def test_a_loop_that_has_ended_runs_nothing() -> None:
    class Ended(Loop):
        def spawn(self, coroutine: Callable[..., Awaitable[None]], *args: Any) -> None:
            raise ConnectionError

    fired: list[int] = []
    loop = Ended()
    NetTasks(loop, threading.RLock(), lambda: fired.append(1)).wake_at(1)  # type: ignore[arg-type]
    assert (loop.spawned, fired) == ([], [])


def test_what_waits_at_a_socket_is_read_whole_and_an_empty_one_blocks_nobody() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        assert receive(near) == (b"", None)
        sent = bytes(range(256)) * 4096
        sender = threading.Thread(target=far.sendall, args=(sent,))
        sender.start()
        found = b""
        while len(found) < len(sent):
            data, error = receive(near)
            assert error is None
            found += data
        sender.join()
        assert found == sent


def test_a_connection_that_the_other_side_closed_is_an_error() -> None:
    near, far = socket.socketpair()
    with near:
        near.setblocking(False)
        far.close()
        assert isinstance(receive(near)[1], KafkaConnectionError)


def test_what_came_before_the_other_side_closed_is_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "_READ_BYTES", 1024)
    near, far = socket.socketpair()
    with near:
        near.setblocking(False)
        far.sendall(bytes(64 * 1024))
        far.close()
        assert receive(near) == (bytes(64 * 1024), None)
        assert isinstance(receive(near)[1], KafkaConnectionError)
