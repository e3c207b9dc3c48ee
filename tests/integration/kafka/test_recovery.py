"""What is done for a worker whose process has ended, where somebody else's workers have the same names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer

from connectx.kafka.admin.topics import describe_group, ensure_internal_topics
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.registry import Plugins
from connectx.rest.client import RestClient
from connectx.runtime.process.owner import ProcessEnvironment, ProcessWorker
from connectx.runtime.process.recovery import WorkerRecovery
from tests.support.waiting import until

CONNECTOR = "shared-out"


@contextmanager
def member(clients: ClientConfigs) -> Iterator[Consumer]:
    """A consumer of a sink task."""
    with closing(Consumer(dict(clients.sink_consumer(TaskId(CONNECTOR, 0), {})))) as consumer:
        consumer.subscribe([clients.worker.config_topic.name])  # any topic: librdkafka joins for one that exists
        yield consumer


def test_only_members_of_the_process_that_has_ended_leave_a_sink_group(
    kafka: EmbeddedKafka, own_config: Callable[..., WorkerConfig]
) -> None:
    config = own_config(kafka.bootstrap_servers)
    ensure_internal_topics(ClientConfigs(config, "cluster"), config)
    history: list[Transition] = []
    url: Future[str] = Future()
    given = ProcessEnvironment(config, kafka.bootstrap_servers, url, lambda recorded, worker: None, lambda worker: None)
    dead, namesake = ProcessWorker("worker-1", given), ProcessWorker("worker-1", given)
    tokens = (dead.process_token, namesake.process_token, "")  # a worker in threads has none
    of = [ClientConfigs(config, "worker-1", kafka.bootstrap_servers, token) for token in tokens]

    def client_ids(*consumers: Consumer) -> list[str]:
        for consumer in consumers:
            consumer.poll(0.05)
        return sorted(describe_group(of[0], f"connect-{CONNECTOR}").client_ids)

    with member(of[0]) as first, member(of[1]) as second, member(of[2]) as third:
        everybody = sorted(str(clients.sink_consumer(TaskId(CONNECTOR, 0), {})["client.id"]) for clients in of)
        until(lambda: client_ids(first, second, third) == everybody, "all three in the group")

        def record(recorded: Transition, worker: str | None) -> None:
            history.append(recorded)

        with closing(RestClient(list)) as client:
            WorkerRecovery(config, client, Plugins(), url, record, True)._leave_sink_group(dead, CONNECTOR, {})
        others: list[Any] = [mine for mine in everybody if dead.process_token not in mine]
        assert client_ids(second, third) == others
    (recorded,) = history
    assert recorded.kind is EventKind.MEMBER_REMOVED
    assert recorded.data["group"] == f"connect-{CONNECTOR}"
    (removed,) = recorded.data["members"]
    assert removed.startswith(f"worker-1/{dead.process_token}/")
