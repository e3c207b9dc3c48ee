"""A server on loopback that others' clients meet in the place of the real one: with a certificate, or without TLS.

It notes what clients send once they trust it, and may pass them on to a real server.
"""

from __future__ import annotations

import socket
import ssl
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Final

import trustme

_SSL_REQUEST: Final = struct.pack(">ii", 8, 80877103)
_GSS_REQUEST: Final = struct.pack(">ii", 8, 80877104)
_CLIENT_SSL: Final = 0x0800


@dataclass
class TlsServer:
    """A server that runs. `received`: what clients sent it in all, decrypted or never encrypted."""

    port: int
    received: bytearray = field(default_factory=bytearray)


Opening = Callable[[socket.socket, ssl.SSLContext | None], socket.socket]
"""How a protocol comes to TLS: returns the socket on which its first message will be."""


def at_once(client: socket.socket, context: ssl.SSLContext | None) -> socket.socket:
    """TLS from the first byte, as https and Kafka have it."""
    return client if context is None else context.wrap_socket(client, server_side=True)


def after_a_request(client: socket.socket, context: ssl.SSLContext | None) -> socket.socket:
    """TLS after a request for it, as PostgreSQL has it; a client may also begin without one."""
    while (asked := client.recv(8, socket.MSG_PEEK)) in (_GSS_REQUEST, _SSL_REQUEST):
        client.recv(8)
        if asked == _SSL_REQUEST and context is not None:
            client.sendall(b"S")
            return context.wrap_socket(client, server_side=True)
        client.sendall(b"N")
    return client


@contextmanager
def tls_server(
    certificate: trustme.LeafCert | None,
    opening: Opening = at_once,
    target: str | None = None,
    note: Callable[[bytes], None] = lambda _: None,
) -> Iterator[TlsServer]:
    """Run a server; `target` is the Unix socket of a real one, to which it passes what it gets.

    `note` is called with what is passed on, before; a connection ends if it raises an OSError.
    """

    def noted(data: bytes) -> None:
        server.received.extend(data)
        note(data)

    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate.private_key_and_cert_chain_pem.bytes())
            file.flush()
            context.load_cert_chain(file.name)

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(30)
            opened = opening(client, context)
            with opened:
                if target is None:
                    server.received.extend(opened.recv(1 << 16))
                    return
                with socket.socket(socket.AF_UNIX) as real:
                    real.connect(target)
                    _pass_on(opened, real, noted)

    with _listening(serve) as port:
        server = TlsServer(port)
        yield server


@contextmanager
def without_tls(target: str) -> Iterator[TlsServer]:
    """A man in the middle before MySQL's socket who removes TLS from what the server offers."""

    def serve(client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as real, suppress(OSError):
            client.settimeout(30)
            real.connect(target)
            greeting = bytearray(real.recv(1 << 16))
            flags = greeting.index(0, 5) + 1 + 4 + 8 + 1  # after the version: thread, salt, filler
            (offered,) = struct.unpack_from("<H", greeting, flags)
            struct.pack_into("<H", greeting, flags, offered & ~_CLIENT_SSL)
            client.sendall(greeting)
            _pass_on(client, real, server.received.extend)

    with _listening(serve) as port:
        server = TlsServer(port)
        yield server


def _pass_on(client: socket.socket, real: socket.socket, note: Callable[[bytes], None]) -> None:
    """Both ways, until one side ends, in one thread: OpenSSL lets no two threads use a connection."""
    client.setblocking(False)  # a record of TLS may be there in part, or hold no data
    while True:
        ready = [client] if _pending(client) else wait([client, real], 30)
        if not ready:
            return
        if real in ready:
            if not (data := real.recv(1 << 16)):
                return
            client.settimeout(30)
            client.sendall(data)
            client.setblocking(False)
        if client in ready:
            with suppress(ssl.SSLWantReadError, BlockingIOError):
                if not (data := client.recv(1 << 16)):
                    return
                note(data)
                real.sendall(data)


def _pending(client: socket.socket) -> bool:
    """Whether decrypted bytes wait in the library, where the socket does not show them."""
    return isinstance(client, ssl.SSLSocket) and client.pending() > 0


@contextmanager
def _listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    threads: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(client,), daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads.append(threading.Thread(target=accept, daemon=True))
        threads[0].start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(30)
