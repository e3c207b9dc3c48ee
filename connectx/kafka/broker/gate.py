"""A small TCP gate between the workers and the embedded broker: what makes `partition` and `pause` real.

Every worker's clients connect through it. It learns whose connection one is from the client id in the first request:
the worker's name is the client id up to the first `/`. It then passes bytes on unchanged, unless told to cut or to
hold that worker. It never looks at a later request, never answers one, and knows nothing of groups or topics.

One thread moves all bytes. A direction that is held is simply not read any more: the bytes wait in the system's
socket buffers and the sender is slowed down by TCP, as on a link that lost its way. So memory stays bounded.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Literal

Direction = Literal["both", "in", "out"]
"""Seen from the worker: `out` is what it sends to the broker, `in` what the broker sends to it."""

READ_BYTES = 1 << 19
PENDING_LIMIT_BYTES = 1 << 20
_HEADER = struct.Struct(">ihhih")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Flow:
    """One direction of one link: where bytes come from, where they go, and what could not be sent yet."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.pending = bytearray()
        self.held = False
        self.ended = False


class _Link:
    """One client connection and its connection to the broker. `worker` is None until the first request is in."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        self.out = _Flow(client, broker)
        self.into = _Flow(broker, client)
        self.worker: str | None = None


class Gate:
    """The gate. `start` opens it on a free port of 127.0.0.1; every verb returns when it is in force.

    Verbs may be called from any thread, also for a worker that has no connection yet.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)
        self._mailbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._broker = ("127.0.0.1", 0)
        self._links: list[_Link] = []
        self._events: dict[socket.socket, int] = {}
        self._cuts: dict[str, Direction] = {}
        self._frozen: set[str] = set()
        self._buffer = memoryview(bytearray(READ_BYTES))

    def start(self, broker_host: str, broker_port: int) -> None:
        """Begin to accept connections on `port` and to pass them on to the broker."""
        self._broker = (broker_host, broker_port)
        self._watch(self._listener, selectors.EVENT_READ)
        self._watch(self._wakes, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="connectx-gate", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the gate and every connection through it. A second call does nothing."""
        if self._thread is not None:
            self._run_in_thread(self._begin_close)
            self._thread.join()
            self._thread = None
        for end in (self._listener, self._waker, self._wakes):
            end.close()
        self._selector.close()

    def cut(self, worker: str, direction: Direction = "both") -> None:
        """Cut the worker off until `heal`; a second cut replaces the first.

        `both`: its connections are reset and new ones closed as soon as it says its name.
        `in` or `out`: connections stay, but nothing in that direction is delivered until `heal`.
        """

        def cut() -> None:
            self._cuts[worker] = direction
            self._apply(worker)

        self._run_in_thread(cut)

    def heal(self, worker: str) -> None:
        """End `cut`: new connections are let through, and bytes that waited are delivered."""

        def heal() -> None:
            self._cuts.pop(worker, None)
            self._apply(worker)

        self._run_in_thread(heal)

    def hold(self, worker: str) -> None:
        """Freeze the worker's connections until `release`: they stay open, and no byte passes in either direction."""

        def hold() -> None:
            self._frozen.add(worker)
            self._apply(worker)

        self._run_in_thread(hold)

    def release(self, worker: str) -> None:
        """End `hold`: bytes that waited are delivered, as far as the worker is not cut off as well."""

        def release() -> None:
            self._frozen.discard(worker)
            self._apply(worker)

        self._run_in_thread(release)

    def connections(self) -> dict[str, int]:
        """How many connections each worker has open, by name."""
        found: Counter[str] = Counter()
        self._run_in_thread(lambda: found.update(link.worker for link in self._links if link.worker is not None))
        return dict(sorted(found.items()))

    def _run_in_thread(self, order: Callable[[], None]) -> None:
        """Run `order` on the gate's thread and wait until it has run."""
        if self._thread is None or not self._thread.is_alive():
            return
        ran = threading.Event()

        def run() -> None:
            order()
            ran.set()

        self._mailbox.put(run)
        self._waker.send(b"!")
        while not ran.wait(0.5) and self._thread.is_alive():
            pass

    # What follows runs on the gate's thread only.

    def _run(self) -> None:
        while not self._closing:
            for key, events in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._wakes:
                    self._run_orders()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._events:
                    self._move(key.data, key.fileobj, events)
        for link in list(self._links):
            self._drop(link, reset=True)

    def _begin_close(self) -> None:
        self._closing = True

    def _run_orders(self) -> None:
        with suppress(BlockingIOError):
            self._wakes.recv(4096)
        with suppress(Empty):
            while True:
                self._mailbox.get_nowait()()

    def _accept(self) -> None:
        with suppress(OSError):
            client, _ = self._listener.accept()
            broker = socket.socket()
            for end in (client, broker):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, broker)
            self._links.append(link)
            self._attend(link)

    def _move(self, link: _Link, end: socket.socket, events: int) -> None:
        outgoing, incoming = (link.out, link.into) if end is link.client else (link.into, link.out)
        try:
            if events & selectors.EVENT_READ:
                self._read(link, outgoing)
            if events & selectors.EVENT_WRITE:
                self._flush(incoming)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._drop(link, reset=True)
            return
        if any(flow.ended and (not flow.pending or link.worker is None) for flow in (link.out, link.into)):
            self._drop(link, reset=False)
        elif link.client in self._events or link.broker in self._events:
            self._attend(link)

    def _read(self, link: _Link, flow: _Flow) -> None:
        count = flow.source.recv_into(self._buffer)
        if count == 0:
            flow.ended = True
            return
        received = self._buffer[:count]
        if link.worker is None:
            flow.pending += received
            self._identify(link)
        elif flow.pending or flow.held:
            flow.pending += received
        else:
            try:
                sent = flow.target.send(received)
            except BlockingIOError:
                sent = 0
            if sent < count:
                flow.pending += received[sent:]

    def _flush(self, flow: _Flow) -> None:
        if flow.pending and not flow.held:
            sent = flow.target.send(flow.pending)
            del flow.pending[:sent]

    def _identify(self, link: _Link) -> None:
        """Read the client id of the first request (Kafka protocol, request header v1 and later)."""
        first = link.out.pending
        if len(first) < _HEADER.size:
            return
        client_id_bytes = max(0, _HEADER.unpack_from(first)[4])
        if len(first) < _HEADER.size + client_id_bytes:
            return
        client_id = bytes(first[_HEADER.size : _HEADER.size + client_id_bytes]).decode(errors="replace")
        link.worker = client_id.partition("/")[0]
        if self._cuts.get(link.worker) == "both":
            raise ConnectionResetError
        self._apply_hold(link)
        link.broker.connect_ex(self._broker)

    def _attend(self, link: _Link) -> None:
        """Watch exactly what can make progress: read where there is room, write where something waits."""
        for end, reading, writing in ((link.client, link.out, link.into), (link.broker, link.into, link.out)):
            events = 0
            known = link.worker is not None
            if len(reading.pending) < PENDING_LIMIT_BYTES and not reading.ended and not (known and reading.held):
                events |= selectors.EVENT_READ
            if writing.pending and not writing.held:
                events |= selectors.EVENT_WRITE
            if end is link.broker and not known:
                events = 0
            self._watch(end, events, link)

    def _watch(self, end: socket.socket, events: int, link: _Link | None = None) -> None:
        before = self._events.get(end, 0)
        if events == before:
            return
        if events == 0:
            self._selector.unregister(end)
            del self._events[end]
        elif before == 0:
            self._selector.register(end, events, link)
            self._events[end] = events
        else:
            self._selector.modify(end, events, link)
            self._events[end] = events

    def _drop(self, link: _Link, *, reset: bool) -> None:
        if link not in self._links:
            return
        self._links.remove(link)
        for end in (link.client, link.broker):
            self._watch(end, 0)
            if reset:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            end.close()

    def _apply(self, worker: str) -> None:
        """Let the worker's connections feel what is in force for it now."""
        for link in [link for link in self._links if link.worker == worker]:
            if self._cuts.get(worker) == "both":
                self._drop(link, reset=True)
            else:
                self._apply_hold(link)
                self._attend(link)

    def _apply_hold(self, link: _Link) -> None:
        frozen, cut = link.worker in self._frozen, self._cuts.get(link.worker or "")
        link.out.held = frozen or cut == "out"
        link.into.held = frozen or cut == "in"
