"""Fencing of real producers."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer

from connectx.errors.kafka import ClientClosedError, KafkaRequestError
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.fencing import ProducerFencer
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TaskId, TopicPartition
from connectx.model.worker_config import WorkerConfig
from tests.support.records import read_all
from tests.support.waiting import until

pytestmark = pytest.mark.rule("618.2.2", "always.1")


@pytest.fixture
def clients(kafka: EmbeddedKafka, config: WorkerConfig) -> ClientConfigs:
    return ClientConfigs(config, "w-fence", kafka.worker_bootstrap_servers)


def producer_in_transaction(clients: ClientConfigs, number: int, topic: str) -> Producer:
    producer = Producer(clients.source_task_producer(TaskId("c", number), {}, True))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value=b"uncommitted")
    producer.flush(30)
    return producer


def test_a_fenced_producer_cannot_commit_and_its_open_transaction_is_aborted(
    clients: ClientConfigs, topic: Callable[..., str]
) -> None:
    name = topic()
    producers = [producer_in_transaction(clients, number, name) for number in range(3)]
    ids = [f"{clients.worker.group_id}-c-{number}" for number in range(4)]  # the last one was never used
    ProducerFencer(clients).fence("c", {}, ids)
    for producer in producers:
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(30)
        assert raised.value.args[0].fatal()
    admin = Admin(clients.admin())
    partition = [TopicPartition(name, 0)]
    assert admin.end_offsets(partition, committed=True) == admin.end_offsets(partition)


def test_ids_can_be_fenced_again_and_a_producer_after_the_last_fence_commits(
    clients: ClientConfigs, topic: Callable[..., str]
) -> None:
    name = topic()
    ids = [f"{clients.worker.group_id}-c-{number}" for number in range(20)]
    ProducerFencer(clients).fence("c", {}, ids)
    between = producer_in_transaction(clients, 0, name)
    ProducerFencer(clients).fence("c", {}, ids)
    with pytest.raises(KafkaException) as raised:
        between.commit_transaction(30)
    assert raised.value.args[0].fatal()
    producer_in_transaction(clients, 0, name).commit_transaction(30)
    assert [message.value() for message in read_all(clients.bootstrap_servers, name)] == [b"uncommitted"]


def test_a_broker_that_cannot_be_reached_is_named_with_the_ids(clients: ClientConfigs) -> None:
    override = {"admin.override.bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(KafkaRequestError, match="id-0"):
        ProducerFencer(clients, timeout_s=1).fence("c", override, ["id-0"])


def test_a_killed_worker_gives_up_fencing(clients: ClientConfigs) -> None:
    fencer = ProducerFencer(clients)
    raised: list[BaseException] = []

    def fence() -> None:
        try:
            fencer.fence("c", {"admin.override.bootstrap.servers": "127.0.0.1:1"}, ["id-0"])
        except ClientClosedError as error:
            raised.append(error)

    thread = threading.Thread(target=fence)
    thread.start()
    until(lambda: fencer._in_use, "a call that waits")
    fencer.abandon()
    thread.join(20)
    assert len(raised) == 1
