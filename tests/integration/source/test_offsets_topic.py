"""A connector's own offsets topic (`offsets.storage.topic`), on real Kafka: which topic counts, copies, deletions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from connectx.kafka.group import GroupRequests
from connectx.kafka.internal.offset_writer import write_source_offsets
from connectx.kafka.internal.topics import InternalTopics
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.protocol.offsets_topic import encode_offset_key
from connectx.rest.bodies import NewOffset
from connectx.rest.loggers import WorkerLoggers
from connectx.rest.stages import Stage
from connectx.runtime.metrics import WorkerMetrics
from connectx.runtime.rest_services import RestServices
from tests.support.profiles import dotted
from tests.support.records import read_all
from tests.support.task_harness import Place, Task
from tests.support.waiting import until

pytestmark = pytest.mark.rule("618.6.4")

Lines = Callable[..., Task]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "in.txt"
    made.write_text("")
    return made


@pytest.fixture
def lines(place: Place, path: Path) -> Lines:
    def make(instance: int = 1, exactly_once: bool = True, **more: str) -> Task:
        given = dotted(more)
        config = {"connector.class": "FileStreamSource", "file": str(path), "topic": f"{place.group}-t"}
        own = {"offsets.storage.topic": mine(place)}
        worker = {"offset.flush.interval.ms": "50", "offset.storage.partitions": "3"}
        return place.task({**config, **own, **given}, instance=instance, exactly_once=exactly_once, worker=worker)

    return make


def mine(place: Place) -> str:
    return f"{place.group}-mine"


def append(path: Path, *values: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{value}\n" for value in values)


def offset_in(place: Place, topic: str, path: Path) -> Any:
    """The newest offset of the file in a topic."""
    key = encode_offset_key("c", {"filename": str(path)})
    found = [record.value() for record in read_all(place.bootstrap_servers, topic) if record.key() == key]
    return json.loads(found[-1]) if found and found[-1] is not None else None


def put(place: Place, topic: str, path: Path, position: int) -> None:
    producer = Producer({"bootstrap.servers": place.bootstrap_servers, "partitioner": "murmur2_random"})
    key = encode_offset_key("c", {"filename": str(path)})
    producer.produce(topic, key=key, value=json.dumps({"position": position}).encode())
    assert producer.flush(10) == 0


@pytest.mark.parametrize("exactly_once", [True, False])
def test_offsets_go_to_the_connectors_topic_and_are_copied_to_the_workers(
    place: Place, lines: Lines, path: Path, exactly_once: bool
) -> None:
    append(path, "a")
    task = lines(exactly_once=exactly_once).begin()
    until(lambda: offset_in(place, mine(place), path) == {"position": 2}, "the offset in the connector's topic")
    until(lambda: offset_in(place, place.offsets_topic, path) == {"position": 2}, "its copy in the worker's topic")
    admin = AdminClient({"bootstrap.servers": place.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, mine(place))
    assert admin.describe_configs([resource])[resource].result(10)["cleanup.policy"].value == "compact"
    assert len(admin.list_topics(mine(place), 10).topics[mine(place)].partitions) == 3
    task.stop()
    append(path, "b")
    again = lines(2, exactly_once=exactly_once).begin()
    assert place.wait_for_values(f"{place.group}-t", 2) == ["a", "b"]
    again.stop()


def test_the_connectors_topic_goes_before_the_workers_which_counts_where_it_has_nothing(
    place: Place, lines: Lines, path: Path
) -> None:
    append(path, "a", "b", "c")
    put(place, place.offsets_topic, path, 2)
    first = lines().begin()
    assert place.wait_for_values(f"{place.group}-t", 2) == ["b", "c"]
    first.runner.kill()
    put(place, mine(place), path, 4)
    second = lines(2).begin()
    assert place.wait_for_values(f"{place.group}-t", 3) == ["b", "c", "c"]
    second.stop()


def test_offsets_of_a_transaction_that_is_not_committed_do_not_count_whatever_the_overrides_say(
    place: Place, lines: Lines, path: Path
) -> None:
    append(path, "a")
    interval = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "600000"}
    first = lines(**interval).begin()
    until(lambda: place.values(f"{place.group}-t", "read_uncommitted") == ["a"], "the record in its open transaction")
    first.runner.kill()
    second = lines(2, **{"consumer.override.isolation.level": "read_uncommitted"}).begin()
    assert place.wait_for_values(f"{place.group}-t", 1) == ["a"]
    second.stop()


def test_the_workers_own_topic_gets_no_copies(place: Place, lines: Lines, path: Path) -> None:
    append(path, "a")
    task = lines(offsets_storage_topic=place.offsets_topic).begin()
    assert place.wait_for_values(f"{place.group}-t", 1) == ["a"]
    task.stop()
    assert len(read_all(place.bootstrap_servers, place.offsets_topic)) == 1


@pytest.mark.rule("618.6.5")
def test_a_task_may_not_write_to_the_connectors_offsets_topic(place: Place, lines: Lines, path: Path) -> None:
    append(path, "a")
    assert "its own source offsets go to" in lines(topic=mine(place)).begin_and_fail().trace


@pytest.fixture
def services(place: Place) -> Iterator[tuple[RestServices, InternalTopics, dict[str, str], Any]]:
    """What REST asks of a worker, with the configuration of a connector that has a topic of its own."""
    given = {"bootstrap.servers": place.bootstrap_servers, "group.id": place.group, "offset.storage.partitions": "1"}
    worker = WorkerConfig.parse(embedded_config(given))
    clients = ClientConfigs(worker, "w1")
    topics = InternalTopics(worker, clients, lambda stimulus: None)
    topics.start()
    plugins = Plugins()
    jvm: Any = None  # the connector is in Python
    made = RestServices(
        worker, clients, plugins, topics, dict, lambda transition: None, plugins.providers(worker),
        WorkerMetrics(dict, dict, lambda: None, lambda: 0, GroupRequests()), WorkerLoggers(),
        jvm, stage=lambda: Stage("awaiting startup", 0), heartbeat_ms=lambda: None, clock=lambda: 0,
    )  # fmt: skip
    config = {"name": "c", "connector.class": "FileStreamSource", "offsets.storage.topic": mine(place)}
    yield made, topics, config, (clients, worker)
    made.close()
    topics.close()


def test_a_users_offsets_are_read_set_and_deleted_in_both_topics(place: Place, services: Any, path: Path) -> None:
    rest, _, config, _ = services
    source, file = ConnectorType.SOURCE, {"filename": str(path)}
    assert rest.read_offsets("c", source, config) == []
    rest.alter_offsets("c", source, config, [NewOffset(file, {"position": 2})])
    assert offset_in(place, mine(place), path) == offset_in(place, place.offsets_topic, path) == {"position": 2}
    put(place, mine(place), path, 4)
    assert rest.read_offsets("c", source, config) == [{"partition": file, "offset": {"position": 4}}]
    rest.reset_offsets("c", source, config)
    assert rest.read_offsets("c", source, config) == []
    assert (offset_in(place, mine(place), path), offset_in(place, place.offsets_topic, path)) == (None, None)


def test_a_deletion_that_the_workers_topic_does_not_take_is_not_done_at_all(
    place: Place, services: Any, path: Path
) -> None:
    """Otherwise the copy in the worker's topic would be taken for the offset again (KAFKA-15018)."""
    _, _, config, (clients, worker) = services
    file = {"filename": str(path)}
    write_source_offsets(clients, worker, "c", config, [(file, {"position": 2})])
    admin = AdminClient({"bootstrap.servers": place.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, place.offsets_topic)
    resource.set_config("max.message.bytes", "10")
    admin.alter_configs([resource])[resource].result(10)
    with pytest.raises(Exception, match="could not be written"):
        write_source_offsets(clients, worker, "c", config, [(file, None)])
    assert offset_in(place, mine(place), path) == {"position": 2}
    write_source_offsets(clients, worker, "c", config, [(file, {"position": 4})])  # a copy that fails is only told
    assert offset_in(place, mine(place), path) == {"position": 4}
