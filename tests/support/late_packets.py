"""A link to a broker on which one request is held, its connection cut towards the client, and delivered later.

That is what a long pause of a broker or a switch that fails over does: the client tries again on a new connection, and
the first attempt arrives when nobody waits for it any more.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.waiting import until

END_TXN, PRODUCE, ADD_PARTITIONS = 26, 0, 24
_RESET = struct.pack("ii", 1, 0)


class LateLink:
    """Passes requests on, one thread for each direction; replaces the gate of an embedded broker.

    `hold(api_key)` keeps the next request of that kind back. `deliver()` sends it on its own connection to the broker,
    which stays open, and waits for the reply that no client will see.
    """

    def __init__(self, port: int, broker_port: int) -> None:
        self._broker = "127.0.0.1", broker_port
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._wanted: int | None = None
        self._held: tuple[socket.socket, bytes] | None = None
        self._replied = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @classmethod
    def before(cls, kafka: EmbeddedKafka) -> LateLink:
        """Take the place of a broker's gate."""
        assert kafka.gate is not None
        port = kafka.gate.port
        kafka.gate.close()
        return cls(port, kafka._ports[1])

    def hold(self, api_key: int) -> None:
        with self._lock:
            self._wanted, self._held = api_key, None
            self._replied.clear()

    def wait_held(self) -> None:
        until(lambda: self._held, "a request that is held")

    def deliver(self) -> None:
        assert self._held is not None
        connection, frame = self._held
        connection.sendall(frame)
        assert self._replied.wait(30), "the broker answers the late request"
        connection.close()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker)
                for target, ends in ((self._requests, (client, broker)), (self._replies, (broker, client))):
                    threading.Thread(target=target, args=ends, daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            while (frame := _frame(client)) is not None:
                with self._lock:
                    if self._wanted == struct.unpack_from(">h", frame, 4)[0]:
                        self._wanted, self._held = None, (broker, frame)
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                        client.shutdown(socket.SHUT_RDWR)
                        client.close()
                        return  # the connection to the broker stays open
                broker.sendall(frame)
        with suppress(OSError):
            broker.shutdown(socket.SHUT_RDWR)

    def _replies(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while (frame := _frame(broker)) is not None:
                if self._held is not None and self._held[0] is broker:
                    self._replied.set()
                else:
                    client.sendall(frame)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def _frame(source: socket.socket) -> bytes | None:
    """One request or reply with its length."""
    head = _exactly(source, 4)
    body = None if head is None else _exactly(source, struct.unpack(">i", head)[0])
    return None if head is None or body is None else head + body


def _exactly(source: socket.socket, count: int) -> bytes | None:
    found = bytearray()
    while len(found) < count:
        more = source.recv(count - len(found))
        if not more:
            return None
        found += more
    return bytes(found)
