"""Clusters for the rules of KIP-618: three workers to break, a flow of known rows, and a link that can be shut."""

from __future__ import annotations

import itertools
import json
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import connectx as cx
from connectx.model.events import Event, EventKind
from tests.integration.cluster.conftest import QUICK, WAIT_S, MakeCluster, events, until

if TYPE_CHECKING:
    from connectx.api.workers import Worker

JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
EOS = {**QUICK, "task.shutdown.graceful.timeout.ms": "20000"}
"""Tasks that were told to stop end by themselves, so that a zombie meets its fence and is not cancelled before."""


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


def committed_reader(cluster: cx.Cluster, topic: str) -> Consumer:
    """A consumer that belongs to nobody, at the beginning of a topic of one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "outside",
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


class Rows:
    """A Generator with two tasks: task t makes the ids t, t + 2, ... without end, for a topic of one partition."""

    def __init__(self, cluster: cx.Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.topic = f"{name}-rows"
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(self.topic, 1)])[self.topic].result(30)
        self._consumer = committed_reader(cluster, self.topic)
        self._seen: list[int] = []

    def start(self, tasks: int = 2, **settings: str) -> cx.Connector:
        """Create the connector; keys have underscores for dots."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        given = {"connector.class": "Generator", "topic": self.topic, "tasks.max": str(tasks), "rate": "20",
                 "fields": "id:long", **JSON, **config}  # fmt: skip
        return self.cluster.create(self.name, given).wait("RUNNING", WAIT_S)

    def ids(self, task: int | None = None, of: int = 2) -> list[int]:
        """Ids committed up to now in the order of the topic, of one task or of all. Rows never end to come."""
        messages = self._consumer.consume(10_000, 0.05)
        self._seen += [int(json.loads(m.value() or b"")["id"]) for m in messages if m.error() is None]
        return self._seen if task is None else [number for number in self._seen if number % of == task]

    def wait_for_more(self, task: int = 0, count: int = 3, of: int = 2) -> None:
        """Until a task has committed some more rows."""
        before = len(self.ids(task, of))
        until(lambda: len(self.ids(task, of)) >= before + count, f"{count} more rows of {self.name}-{task}")

    def check_exactly_once(self, tasks: int = 2) -> None:
        """Each task's ids are all there up to the last one, once, in order."""
        for task in range(tasks):
            ids = self.ids(task, tasks)
            assert ids == [task + tasks * number for number in range(len(ids))], f"{self.name}-{task}"
            assert ids, f"{self.name}-{task} wrote something"

    def close(self) -> None:
        self._consumer.close()


def names_of_steps(cluster: cx.Cluster, worker: str, task: str, since: int) -> list[str]:
    """The steps that a worker took for a task, in order, over all its instances."""
    connector, _, number = task.rpartition("-")
    found = events(cluster, EventKind.TASK_STEP, since, worker=worker, connector=connector, task=int(number))
    return [event.data["step"] for event in found]


def explained(cluster: cx.Cluster, worker: str, task: str, since: int) -> Event:
    """What a worker says of who fenced its task, once it knows."""
    connector, _, number = task.rpartition("-")
    wanted = {"worker": worker, "connector": connector, "task": int(number), "known": True}
    return until(lambda: events(cluster, EventKind.FENCED_BY, since, **wanted), f"who fenced {task} of {worker}")[0]


def netloc(worker: Worker) -> str:
    return urlsplit(worker.url).netloc


def ask(worker: Worker, method: str, path: str, body: Any = None) -> httpx.Response:
    """One REST request to this very worker."""
    return httpx.request(method, worker.url.rstrip("/") + path, json=body, timeout=120, trust_env=False)


def ask_settled(worker: Worker, method: str, path: str) -> httpx.Response:
    """The same, again while the group rebalances: work of a worker that was killed before may move at any moment."""

    def answer() -> httpx.Response | None:
        given = ask(worker, method, path)
        return None if given.status_code == 409 else given

    return until(answer, f"an answer to {method} {path}")


@pytest.fixture
def asked() -> Iterator[Callable[..., Future[httpx.Response]]]:
    """`asked(worker, method, path)`: a request on a thread of its own, answered later."""
    with ThreadPoolExecutor(4) as pool:
        yield lambda *args: pool.submit(ask, *args)


@pytest.fixture(scope="session")
def group(make_cluster: MakeCluster) -> Iterator[cx.Cluster]:
    """Three workers to break."""
    with make_cluster(workers=3, config=EOS) as made:
        yield made


@pytest.fixture
def workers(group: cx.Cluster) -> cx.Cluster:
    """Three workers that run and agree, and no connectors."""
    for worker in group.workers:
        if worker.state in ("paused", "stalled"):
            worker.resume()
        if worker.cut is not None and worker.state == "running":
            worker.heal()
    for connector in group.connectors:
        connector.delete()
    for _ in range(3 - len([worker for worker in group.workers if worker.state == "running"])):
        group.add_worker(WAIT_S)
    group.wait_stable(WAIT_S)
    return group


@pytest.fixture
def valve(group: cx.Cluster) -> Iterator[Valve]:
    made = Valve(group.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture(scope="session")
def row_names() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def make_rows(row_names: Iterator[int]) -> Iterator[Callable[[cx.Cluster], Rows]]:
    made: list[Rows] = []

    def make(cluster: cx.Cluster) -> Rows:
        rows = Rows(cluster, f"rows{next(row_names)}")
        made.append(rows)
        return rows

    yield make
    for rows in made:
        rows.close()


class OpenTransaction:
    """A foreign transaction on the config topic: whoever reads committed records only cannot reach its end."""

    def __init__(self, cluster: cx.Cluster) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "outside"}
        self._producer = Producer(settings)
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        self._producer.produce(cluster.config.config_topic.name, key="of nobody", value=b"{}")
        self._producer.flush(30)

    def end(self) -> None:
        self._producer.abort_transaction(30)


def config_records(cluster: cx.Cluster, prefix: str) -> list[tuple[str, Any]]:
    """Committed records of the config topic whose keys begin so, in order."""
    consumer = committed_reader(cluster, cluster.config.config_topic.name)
    found: list[tuple[str, Any]] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        key, value = (message.key() or b"").decode(), message.value()
        if key.startswith(prefix):
            found.append((key, None if value is None else json.loads(value)))
    consumer.close()
    return found
