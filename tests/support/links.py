"""A link to Kafka that a test can shut."""

from __future__ import annotations

import selectors
import socket
import threading
from typing import Any


class Valve:
    """A link to Kafka that the test can shut: connections that begin while it is shut stand still until it opens.

    Only a client's first connection goes through it, to learn of the brokers; that is enough to hold a client back.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.partition(":")
        self._kafka = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._is_open = threading.Event()
        self._is_open.set()
        self._closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()

    def close(self) -> None:
        self._closing = True
        self._is_open.set()
        socket.create_connection(self._listener.getsockname()).close()  # wakes the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            client, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._is_open.wait()
        with client, socket.create_connection(self._kafka) as kafka, selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, kafka)
            selector.register(kafka, selectors.EVENT_READ, client)
            while not self._closing:
                for key, _ in selector.select(0.5):
                    source: Any = key.fileobj
                    try:
                        data = source.recv(65_536)
                        if not data:
                            return
                        key.data.sendall(data)
                    except OSError:
                        return
