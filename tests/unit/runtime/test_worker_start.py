"""What REST answers while a worker starts: it listens first."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import cast

import httpx
import pytest

from connectx.core import verbs
from connectx.core.messages import Done
from connectx.errors.clusters import WorkerStoppedError
from connectx.kafka.group import GroupConnection
from connectx.kafka.internal.topics import InternalTopics
from connectx.plugins.registry import Plugins
from connectx.rest.stages import Stage
from connectx.runtime.worker import Worker, WorkerEnvironment
from connectx.spark.slices import SparkSessions
from tests.support.waiting import until
from tests.support.worker_script import worker_of

STAGE = "The worker is currently initializing and reading to the end of internal topics, which began at "
STARTING = f"Worker is still starting up. {STAGE}"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker whose group and internal topics stay silent."""
    monkeypatch.setattr(InternalTopics, "start", lambda topics: None)
    monkeypatch.setattr(GroupConnection, "start", lambda group: None)
    config, spark = worker_of(listeners="http://127.0.0.1:0"), cast("SparkSessions", None)
    made = Worker("w", WorkerEnvironment(config, "127.0.0.1:9", Plugins(), spark, lambda *_: None, lambda: 1_000))
    yield made
    made.kill()


def test_rest_listens_before_the_internal_topics_are_made_and_requests_wait_until_they_are_read(worker: Worker) -> None:
    asked: list[Future[object]] = []
    health: list[httpx.Response] = []

    def prepare() -> None:
        health.append(httpx.get(worker.url + "health"))
        asked.append(cast("Future[object]", worker.ask(verbs.ListConnectors())))
        assert isinstance(worker.ask(verbs.Worker()).result(10), Done), "it needs no topic"
        assert not asked[0].done()

    worker.start(prepare)
    assert (health[0].status_code, health[0].json()["status"]) == (503, "starting")
    assert health[0].json()["message"] == f"{STARTING}1970-01-01T00:00:01Z."
    done = asked[0].result(10)
    assert isinstance(done, Done)
    assert done.body == []


def test_requests_that_wait_are_refused_when_the_worker_cannot_start(worker: Worker) -> None:
    asked = []

    def prepare() -> None:
        asked.append(worker.ask(verbs.Delete("c")))
        raise WorkerStoppedError("w", "Kafka is away")

    with pytest.raises(WorkerStoppedError):
        worker.start(prepare)
    with pytest.raises(WorkerStoppedError):
        asked[0].result(10)


def test_a_request_that_waits_shows_its_stage(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InternalTopics, "execute", lambda topics, effect: None)
    worker.start()
    waiting = worker.ask(verbs.LoggerLevel("connectx", "DEBUG"))
    until(lambda: waiting.stage is not None, "the stage of the request")
    writing = Stage("writing a logger level to the config topic", 1_000)
    assert waiting.stage == writing
