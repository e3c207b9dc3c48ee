"""A Kafka cluster of several KRaft nodes on loopback, each a child process that can be killed and started again.

`EmbeddedKafka` is one node. What a leader's death or move does to transactions needs more of them.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.protocol.admin import AlterClientQuotasRequest

from connectx.jvm import archive, jars
from connectx.jvm.java import JavaHome, find_java
from connectx.jvm.process import ChildProcess
from connectx.kafka.broker import node
from connectx.kafka.net import KafkaNet
from tests.support.waiting import until

START_S = 90.0
_log = logging.getLogger(__name__)
REPLICATED: Mapping[str, str] = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
}


class KafkaNodes:
    """Three nodes, each broker and controller. Node ids are 1, 2 and 3.

    Args:
        folder: where their data and logs go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports: dict[int, tuple[int, int, int]] = {}
        self._children: dict[int, ChildProcess] = {}
        self._client: AdminClient | None = None
        self._java: JavaHome = find_java()
        self._class_path = jars.fetch(jars.KAFKA, self._java)

    @property
    def bootstrap_servers(self) -> str:
        """All three."""
        return ",".join(f"{node.HOST}:{ports[0]}" for ports in self._ports.values())

    def prepare(self) -> Self:
        """Format the nodes and choose their ports; none is started."""
        ports, cluster_id = node.free_ports(9), node.kafka_uuid()
        self._ports = {n: (ports[n - 1], ports[n + 2], ports[n + 5]) for n in (1, 2, 3)}
        voters = ",".join(f"{n}@{node.HOST}:{found[2]}" for n, found in self._ports.items())
        for n, found in self._ports.items():
            folder = self._folder / f"node-{n}"
            folder.mkdir()
            node.format_data(self._java, self._class_path, folder, n, cluster_id)
            own = {"node.id": str(n), "controller.quorum.voters": voters, **REPLICATED}
            node.write_settings(folder / "server.properties", node.node_settings(folder / "data", found, None, own))
        return self

    def start(self, *nodes: int) -> None:
        """Start nodes, all of them by default, and wait until every one has registered."""
        for n in nodes or tuple(self._ports):
            folder = self._folder / f"node-{n}"
            options = archive.use_options(self._java, node.archive_path(self._java, self._class_path))
            command = node.broker_command(self._java, self._class_path, options, folder / "server.properties")
            self._children[n] = ChildProcess(command, log=folder / "server.log", cwd=folder)
        admin = self._admin()
        until(lambda: set(self._children) <= _registered(admin), f"nodes {sorted(self._children)}", START_S)

    def kill(self, n: int) -> None:
        """SIGKILL a node; its data stays."""
        self._children.pop(n).kill()

    def restart(self, n: int) -> None:
        """End a node in an orderly way, which hands its partitions over, and start it again."""
        self._children.pop(n).stop(START_S)
        self.start(n)

    def stop(self) -> None:
        """Kill all that run."""
        for n in list(self._children):
            self.kill(n)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Node id of a partition's leader, -1 while there is none."""
        metadata = self._admin().list_topics(topic, timeout=10)
        return int(metadata.topics[topic].partitions[partition].leader)

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient({"bootstrap.servers": self.bootstrap_servers}, logger=_log)
        return self._client

    def throttle_producers(self, bytes_per_second: float | None) -> None:
        """Set the quota of every client's produce requests; None removes it."""
        request = AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequest.EntryData(
                    entity=[AlterClientQuotasRequest.EntryData.EntityData(entity_type="client-id", entity_name=None)],
                    ops=[
                        AlterClientQuotasRequest.EntryData.OpData(
                            key="producer_byte_rate", value=bytes_per_second or 0.0, remove=bytes_per_second is None
                        )
                    ],
                )
            ],
            validate_only=False,
        )
        net = KafkaNet({"bootstrap_servers": self.bootstrap_servers.split(","), "client_id": "nodes"})
        net.start()
        try:
            node_id = net.run(net.any_node, time.monotonic() + START_S)
            answer = net.run(net.send, request, node_id, 30_000)
        finally:
            net.close()
        assert [entry.error_code for entry in answer.entries] == [0], answer

    def move_leader(self, topic: str, partition: int = 0) -> int:
        """Make another replica of a partition its leader, while all nodes run; returns its node id."""
        old = self.leader(topic, partition)
        new = old % 3 + 1
        replicas = [new, *(n for n in (1, 2, 3) if n != new)]
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers.split(","))
        try:
            admin.alter_partition_reassignments({TopicPartition(topic, partition): replicas})
            admin.elect_leaders(0, {topic: [partition]}, raise_errors=False)  # 0: preferred, the first replica
        finally:
            admin.close()
        until(lambda: self.leader(topic, partition) == new, f"node {new} to lead {topic}-{partition}")
        return new


@contextmanager
def three_nodes(*started: int) -> Iterator[KafkaNodes]:
    """Three nodes, of which those named run, by default all; they are killed at the end."""
    with tempfile.TemporaryDirectory(prefix="connectx-nodes-", ignore_cleanup_errors=True) as folder:
        nodes = KafkaNodes(Path(folder)).prepare()
        try:
            nodes.start(*started)
            yield nodes
        finally:
            nodes.stop()


def _registered(admin: AdminClient) -> set[int]:
    try:
        return set(admin.list_topics(timeout=2).brokers)
    except KafkaException:
        return set()
