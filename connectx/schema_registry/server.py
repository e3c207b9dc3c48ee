"""The embedded schema registry: store and REST on a thread.

Listens on this machine only unless another host is named. It has no logins and no TLS: it is for notebooks, tests and
one machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Final
from urllib.parse import urlsplit

from connectx.errors.rest import ListenerError
from connectx.extras import require
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.worker_config import WorkerConfig
from connectx.rest.guard import Address, Guard
from connectx.rest.server import QuietServer, listen
from connectx.schema_registry.api import create_app
from connectx.schema_registry.catalog import Catalog
from connectx.schema_registry.store import SchemaStore

TOPIC: Final = "_schemas"
_END_S: Final = 5.0
_MAX_REQUESTS: Final = 64


class SchemaRegistry:
    """A registry over a Kafka topic. `start` before use, `close` after it; or use it as a context manager.

    Args:
        config: a worker's settings, of which it uses those of the connection to Kafka.
        listener: where REST listens; port 0 is a free one.
        topic: name of the topic that keeps everything.

    Raises:
        MissingExtraError: the packages of the extra `avro` are not installed.
    """

    def __init__(self, config: WorkerConfig, *, listener: str = "http://127.0.0.1:0", topic: str = TOPIC) -> None:
        require("A schema registry", "avro", "fastavro")
        if urlsplit(listener).scheme != "http":
            raise ListenerError(
                f"The schema registry cannot listen on {listener!r}: it speaks http only.",
                next_step="Use something like http://127.0.0.1:8081, with a proxy for TLS before it.",
            )
        self._listener = listener
        self._store = SchemaStore(ClientConfigs(config, "schema-registry"), topic, Catalog())
        self._server: QuietServer | None = None
        self._thread: threading.Thread | None = None
        self._url = ""

    def __enter__(self) -> SchemaRegistry:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it listens, empty before `start`: a value for `schema.registry.url`."""
        return self._url

    def start(self) -> str:
        """Read the topic, then listen and serve from a thread; returns the URL.

        Raises:
            ListenerError, ListenerTakenError: it cannot listen there.
            ConnectxError: Kafka or the topic cannot be used, as `SchemaStore.start`.
        """
        listening = listen(self._listener)
        try:
            self._store.start()
        except BaseException:
            listening.close()
            self._store.close()
            raise
        host, port = listening.getsockname()[:2]
        guard = Guard(create_app(self._store), Address.of(listening), (), None, _MAX_REQUESTS)
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())
        self._server = server = QuietServer(guard)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listening])), name="schema-registry", daemon=True
        )
        self._thread.start()
        self._url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        return self._url

    def close(self) -> None:
        """Stop serving, then end the store. A second call does nothing."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        server.leave()
        with contextlib.suppress(RuntimeError):
            self._thread.join(_END_S)
        self._store.close()
