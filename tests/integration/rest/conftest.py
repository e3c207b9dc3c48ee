"""REST servers on real sockets, over a stand-in for the core that answers what a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from connectx.core.verbs import Verb
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.rest.server import Limits, RestServer
from tests.support.rest_stand_ins import Answer, Beside, Core, Served


@pytest.fixture
def worker_config() -> WorkerConfig:
    return WorkerConfig.parse({**embedded_config({}), "bootstrap.servers": "127.0.0.1:9"})


@pytest.fixture
def serve(worker_config: WorkerConfig) -> Iterator[Callable[..., Served]]:
    """Starts servers; `serve(answers, settings, request_timeout_ms=...)`: settings of the worker, then limits."""
    started: list[RestServer] = []

    def start(
        answers: Mapping[type[Verb], Answer] | None = None, settings: Mapping[str, str] | None = None, **limits: int
    ) -> Served:
        core, services = Core(dict(answers or {})), Beside()
        config = WorkerConfig.parse({**worker_config.originals, **(settings or {})})
        server = RestServer(core.ask, services, config, limits=Limits(**limits) if limits else None)
        started.append(server)
        core.url = server.start()
        return Served(core.url.rstrip("/"), core, services, server, config)

    yield start
    for server in started:
        server.abandon()
