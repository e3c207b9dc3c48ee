"""Connectors move from Kafka Connect to connectx and back through a file: no line is lost, none is there twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import connectx as cx
from connectx.api.transfer.exporter import Backup, export_to
from connectx.api.transfer.importer import import_from
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.rest.client import RestClient
from tests.support.java_worker import FILE_SINK, FILE_SOURCE, JavaWorker, peer_config
from tests.support.records import Reader
from tests.support.waiting import until

WAIT_S = 90.0
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="geheim";'


def test_connectors_move_to_connectx_and_back_with_their_offsets(
    java_worker: JavaWorker, kafka: EmbeddedKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    lines, out, path, name = tmp_path / "in.txt", tmp_path / "out.txt", tmp_path / "export.json", topic("moved")
    lines.touch()
    source, sink, java = f"{name}-in", f"{name}-out", RestClient([java_worker.url])
    reader = Reader(kafka.bootstrap_servers, name, 1, "read_committed")
    expected: list[str] = []

    def goes_on() -> None:
        """Ten more lines come through, and all are there once, in order."""
        more = [str(number) for number in range(len(expected), len(expected) + 10)]
        expected.extend(more)
        with lines.open("a") as file:
            file.writelines(f"{line}\n" for line in more)
        until(lambda: out.exists() and len(out.read_text().splitlines()) >= len(expected), "the new lines", WAIT_S)
        assert out.read_text().splitlines() == expected
        # A sink reads uncommitted records by default, so that the file may be ahead of the transaction.
        until(lambda: len(reader.values()) >= len(expected), "the new lines as committed records", WAIT_S)
        assert reader.values() == expected

    ours = peer_config(kafka.bootstrap_servers, f"{name}-ours")
    try:
        java.create(source, {"connector.class": FILE_SOURCE, "file": str(lines), "topic": name})
        java.create(sink, {"connector.class": FILE_SINK, "file": str(out), "topics": name,
                           "consumer.override.sasl.jaas.config": JAAS})  # fmt: skip
        goes_on()
        backup = export_to(java, path, stop=True)
        assert [(one.name, one.state) for one in backup.connectors] == [(source, "running"), (sink, "running")]
        assert backup.connectors[1].masked == ("consumer.override.sasl.jaas.config",)
        assert Backup.read(path) == backup
        assert "geheim" not in path.read_text()
        secrets = {sink: {"consumer.override.sasl.jaas.config": JAAS}}
        with cx.Cluster(workers=1, config=ours, bootstrap_servers=kafka.bootstrap_servers) as cluster:
            moved = cluster.import_from(path, secrets=secrets)
            assert [one.did[0] for one in moved] == ["created stopped", "created stopped"]
            goes_on()
            cluster.export_to(path, stop=True)
        back = import_from(java, path)
        assert back[0].did == ("offsets of 1 partition set", "resumed")
        assert back[1].did == ("resumed",), "offsets of a sink are in its group, which both clusters share"
        goes_on()
    finally:
        for connector in (source, sink):
            if connector in java.connectors():
                java.delete(connector)
        java.close()
        reader.close()
