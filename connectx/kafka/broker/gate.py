"""A TCP gate between the workers and the embedded broker, for the faults `partition` and `pause`.

Every worker's clients connect through it. It learns whose connection one is from the client id in the first request:
the worker's name is the client id up to the first `/`. It then passes bytes on unchanged, unless asked to cut, hold or
delay that worker. Of later requests it reads only size and kind. It never answers one, and does not interpret groups or
topics.

One thread moves all bytes. A direction that is held is simply not read any more: the bytes wait in the system's
socket buffers and the sender is slowed down by TCP, as on a network that lost its route. So memory stays bounded.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from typing import Literal

from connectx.kafka.broker.request_kinds import RequestStarts, kind_name

Direction = Literal["both", "in", "out"]
"""Seen from the worker: `out` is what it sends to the broker, `in` what the broker sends to it."""

Arrived = Callable[[Mapping[str, int]], object]
"""Takes the number of requests of each kind that arrived late."""

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


class _Delay:
    """One call of `Gate.delay`, and the connections on which it holds requests."""

    def __init__(self, worker: str, kinds: frozenset[int], due_s: float, arrived: Arrived) -> None:
        self.worker = worker
        self.kinds = kinds
        self.due_s = due_s
        self.arrived = arrived
        self.held: list[_Held] = []
        self.delivered: Counter[str] = Counter()
        self.has_arrived = False


class _Held:
    """Requests of a connection that was cut towards the client, and its connection to the broker, which stays open."""

    def __init__(self, delay: _Delay, broker: socket.socket, data: bytearray, kinds: Counter[str]) -> None:
        self.delay = delay
        self.broker = broker
        self.data = data
        self.kinds = kinds


class _Link:
    """One client connection and its connection to the broker. `worker` is None until the first request is in.

    `delay` waits for a request to hold. `late` are the bytes from that request on, until it is complete, and
    `late_starts` the positions and kinds of the requests in them.
    """

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        self.out = _Flow(client, broker)
        self.into = _Flow(broker, client)
        self.worker: str | None = None
        self.starts = RequestStarts()
        self.delay: _Delay | None = None
        self.late = bytearray()
        self.late_starts: list[tuple[int, int]] = []


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
        self._delays: list[_Delay] = []
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

        `both`: its connections are reset and new ones closed as soon as they send its client id.
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

    def delay(
        self, worker: str, kinds: Collection[int], for_s: float, arrived: Arrived = lambda requests: None
    ) -> None:
        """Hold back the next request on each of the worker's connections, and cut that connection towards the worker.

        What is held arrives after `for_s` seconds, or by `deliver`, on the connection on which it was sent. Its answer
        is dropped. Connections that are made later are not delayed; one that sends no such request is left alone.

        Args:
            kinds: API keys of requests.
            for_s: seconds from now.
            arrived: called once on the gate's thread with the number of requests of each kind that were sent late.
        """
        delay = _Delay(worker, frozenset(kinds), time.monotonic() + for_s, arrived)

        def hold_next() -> None:
            self._delays.append(delay)
            for link in self._links:
                if link.worker == worker and not link.late:
                    link.delay = delay

        self._run_in_thread(hold_next)

    def deliver(self, worker: str) -> None:
        """End every `delay` of the worker now."""

        def deliver() -> None:
            for delay in self._delays:
                if delay.worker == worker:
                    delay.due_s = 0.0
            self._deliver_due()

        self._run_in_thread(deliver)

    def delayed(self, worker: str) -> dict[str, int]:
        """How many requests of each kind are held back, or on their way after that, and not answered yet."""
        found: Counter[str] = Counter()

        def count() -> None:
            for held in (held for delay in self._delays if delay.worker == worker for held in delay.held):
                found.update(held.kinds)

        self._run_in_thread(count)
        return dict(sorted(found.items()))

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
            for key, events in self._selector.select(self._seconds_to_next_delivery()):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._wakes:
                    self._run_orders()
                elif isinstance(key.data, _Held):
                    self._move_held(key.data, events)
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._events:
                    self._move(key.data, key.fileobj, events)
            self._deliver_due()
        for link in list(self._links):
            self._drop(link, reset=True)
        for held in [held for delay in self._delays for held in delay.held]:
            self._close_end(held.broker, reset=True)

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
        elif link in self._links:
            self._attend(link)

    def _read(self, link: _Link, flow: _Flow) -> None:
        count = flow.source.recv_into(self._buffer)
        if count == 0:
            flow.ended = True
            return
        received = self._buffer[:count]
        begun = link.starts.read(received) if flow is link.out else []
        if link.worker is None:
            flow.pending += received
            self._identify(link)
        elif flow is link.out and link.delay is not None:
            self._read_delayed(link, link.delay, received, begun)
        else:
            self._pass_on(flow, received)

    def _pass_on(self, flow: _Flow, received: memoryview) -> None:
        if flow.pending or flow.held:
            flow.pending += received
            return
        try:
            sent = flow.target.send(received)
        except BlockingIOError:
            sent = 0
        flow.pending += received[sent:]

    def _read_delayed(self, link: _Link, delay: _Delay, received: memoryview, begun: list[tuple[int, int]]) -> None:
        """Keep the bytes from the first wanted request on, and cut the connection as soon as that one is complete."""
        first = 0 if link.late else next((begin for begin, kind in begun if kind in delay.kinds), len(received))
        if first:
            self._pass_on(link.out, received[:first])
        link.late_starts += [(len(link.late) + begin - first, kind) for begin, kind in begun if begin >= first]
        link.late += received[first:]
        ends = [begin for begin, _ in link.late_starts[1:]]
        if link.late and link.starts.between:
            ends.append(len(link.late))
        if ends:
            self._keep_late(link, delay, ends[-1])

    def _keep_late(self, link: _Link, delay: _Delay, complete_bytes: int) -> None:
        kinds = Counter(kind_name(kind) for begin, kind in link.late_starts if begin < complete_bytes)
        held = _Held(delay, link.broker, link.out.pending + link.late[:complete_bytes], kinds)
        delay.held.append(held)
        link.out.pending.clear()
        self._links.remove(link)
        self._close_end(link.client, reset=True)
        self._watch(link.broker, 0)
        self._watch(link.broker, selectors.EVENT_READ, held)

    def _seconds_to_next_delivery(self) -> float | None:
        due_s = min((delay.due_s for delay in self._delays), default=inf)
        return None if due_s == inf else max(0.0, due_s - time.monotonic())

    def _deliver_due(self) -> None:
        for delay in [delay for delay in self._delays if delay.due_s <= time.monotonic()]:
            delay.due_s = inf
            for link in [link for link in self._links if link.delay is delay]:
                link.delay = None
                link.out.pending += link.late  # not complete yet: nothing was cut
                link.late.clear()
                link.late_starts.clear()
                self._attend(link)
            for held in (held for held in delay.held if held.data):
                self._watch(held.broker, selectors.EVENT_READ | selectors.EVENT_WRITE, held)
            self._report_arrival(delay)
            self._remove_if_answered(delay)

    def _move_held(self, held: _Held, events: int) -> None:
        """Send what is due, end that direction, and read until Kafka has answered and closed the connection."""
        ended = False
        try:
            if events & selectors.EVENT_WRITE:
                del held.data[: held.broker.send(held.data)]
                if not held.data:
                    held.delay.delivered.update(held.kinds)
                    held.broker.shutdown(socket.SHUT_WR)
                    self._watch(held.broker, selectors.EVENT_READ, held)
                    self._report_arrival(held.delay)
            if events & selectors.EVENT_READ:
                ended = held.broker.recv_into(self._buffer) == 0
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            ended = True
        if ended:
            self._close_end(held.broker, reset=False)
            held.delay.held.remove(held)
            self._report_arrival(held.delay)
            self._remove_if_answered(held.delay)

    def _report_arrival(self, delay: _Delay) -> None:
        """Report that everything was sent. Kafka never answers some late requests, such as a superseded JoinGroup."""
        if delay.due_s == inf and not delay.has_arrived and not any(held.data for held in delay.held):
            delay.has_arrived = True
            delay.arrived(dict(sorted(delay.delivered.items())))

    def _remove_if_answered(self, delay: _Delay) -> None:
        if delay.due_s == inf and not delay.held:
            self._delays.remove(delay)

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

    def _watch(self, end: socket.socket, events: int, link: _Link | _Held | None = None) -> None:
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
            self._close_end(end, reset=reset)

    def _close_end(self, end: socket.socket, *, reset: bool) -> None:
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
