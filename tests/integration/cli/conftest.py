"""`connectx worker` processes on the broker of all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.worker_processes import WorkerProcess


@pytest.fixture
def start_worker(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """`start_worker(*options, **settings)`: a process on the broker of all tests, in a group of this test's own."""
    started: list[WorkerProcess] = []
    group = f"cli-{tmp_path.name}"

    def start(*options: str, **settings: str) -> WorkerProcess:
        own = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": group}
        own |= {f"{storage}_storage_topic": f"{group}-{storage}" for storage in ("config", "offset", "status")}
        started.append(WorkerProcess(tmp_path / str(len(started)), *options, **{**own, **settings}))
        return started[-1]

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()
