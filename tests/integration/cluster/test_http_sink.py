"""HttpSink in a cluster whose worker is killed, against a web service that fails, refuses and knows keys."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import connectx as cx
from connectx.connectors.http.sink import HttpSink
from tests.support.clusters import MakeCluster, owner_of
from tests.support.http_server import Answer, Received, Service, http_service
from tests.support.profiles import JSON, QUICK
from tests.support.records import read_all
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

REFUSED = 400


class Store:
    """What a service keeps that drops requests whose Idempotency-Key it knows."""

    def __init__(self, service: Service) -> None:
        self._known: set[str] = set()
        self._numbers = itertools.count()
        self.lines: list[str] = []
        service.answer = self.answer

    def answer(self, request: Received) -> Answer:
        if next(self._numbers) % 25 == 24:
            return Answer(503, "busy", {"Retry-After": "0"})
        if json.loads(request.body)["id"] == REFUSED:
            return Answer(422, "unlucky")
        if request.headers["Idempotency-Key"] in self._known:
            return Answer()
        self._known.add(request.headers["Idempotency-Key"])
        self.lines.append(request.body)
        return Answer(201)


@pytest.fixture
def store() -> Iterator[tuple[Service, Store]]:
    with http_service() as service:
        yield service, Store(service)


def test_a_service_that_drops_known_keys_holds_each_record_once_after_a_kill(
    make_cluster: MakeCluster, store: tuple[Service, Store]
) -> None:
    service, kept = store

    class Checked(HttpSink):
        """An HttpSink that knows how to read its service."""

        @classmethod
        def stored(cls, config: Mapping[str, str | None], topic: str) -> cx.Stored:
            return cx.Stored("web service", lambda: iter([pa.table({"line": kept.lines})]), lines=True)

    with make_cluster(workers=2, config=QUICK) as cluster:
        topic, dead = create_topic(cluster.bootstrap_servers, "numbers", 2), "numbers-refused"
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

        def produce(numbers: range) -> None:
            for number in numbers:
                producer.produce(topic, json.dumps({"id": number}), partition=number % 2)
            producer.flush(30)

        produce(range(100))
        settings: dict[str, Any] = {
            "connector.class": Checked,
            "http.api.url": f"{service.url}/in",
            "retry.backoff.ms": "10",
            "topics": topic,
            "tasks.max": "2",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": dead,
            "errors.deadletterqueue.topic.replication.factor": "1",
        }
        cluster.create("web", settings | JSON)
        until(lambda: len(kept.lines) >= 50)
        produce(range(100, 400))
        owner_of(cluster, "web-0").kill()
        until(lambda: len(kept.lines) >= 400, "all records in the service")
        assert sorted(json.loads(line)["id"] for line in kept.lines) == list(range(400))
        verdict = cluster.check(timeout=WAIT_S)
        assert verdict.answer == "valid", verdict
        produce(range(REFUSED, REFUSED + 2))
        until(lambda: len(kept.lines) >= 401, "the record beside the refused one")
        (refused,) = until(lambda: read_all(cluster.bootstrap_servers, dead), "the refused record")
        assert json.loads(refused.value()) == {"id": REFUSED}
