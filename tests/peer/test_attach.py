"""A real Kafka Connect 4.3, seen from outside: by REST alone, and with its group and internal topics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import connectx as cx
from connectx.errors.clusters import NotSeenError
from connectx.errors.rest import ConnectorNotFoundError, WorkersUnreachableError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.events import EventKind
from connectx.verify.audit.findings import Severity
from tests.support.java_worker import FILE_SINK, FILE_SOURCE, JavaWorker
from tests.support.profiles import STRINGS
from tests.support.waiting import until

WAIT_S = 60.0


def states(cluster: cx.AttachedCluster, connector: str) -> list[str]:
    recorded = (
        event for event in cluster.events if event.kind is EventKind.TASK_STATE and event.connector == connector
    )
    return [event.data["state"] for event in recorded]


@pytest.mark.timeout(300)
def test_a_java_cluster_shows_its_group_its_topics_and_its_verbs(
    kafka: EmbeddedKafka, java_worker: JavaWorker, topic: Callable[..., str], tmp_path: Path, spark: object
) -> None:
    lines, path, out = topic("attached"), tmp_path / "in.txt", tmp_path / "out.txt"
    path.write_text("one\ntwo\n")
    with cx.attach(java_worker.url) as polled:
        source = polled.create("seen-in", {"connector.class": FILE_SOURCE, "file": str(path), "topic": lines})
        source.wait("RUNNING", WAIT_S)
        config = dict.fromkeys(("key.converter", "value.converter"), STRINGS)
        servers = kafka.bootstrap_servers
        with cx.attach(java_worker.url, bootstrap_servers=servers, config=config, poll_s=0.3) as cluster:
            assert (cluster.group_id, cluster.version) == ("java", polled.version)
            assert cluster.config.config_topic.name == "java-config"
            assert [worker.name for worker in cluster.workers] == [java_worker.worker_id]
            assert cluster.leader is not None
            assert cluster.workers[0].tasks == ["seen-in-0"]

            sink = cluster.create("seen-out", {"connector.class": FILE_SINK, "file": str(out), "topics": lines})
            sink.wait("RUNNING", WAIT_S)
            until(lambda: out.exists() and out.read_text() == "one\ntwo\n", "the rows", WAIT_S)
            until(lambda: "seen-out-0" in cluster.workers[0].tasks, "the group to show the task", WAIT_S)
            audit = cluster.audit()
            assert {finding.severity for finding in audit} == {Severity.NOTE}
            assert {finding.subject for finding in audit} == {
                "java-config (config.storage.topic)", "java-status (status.storage.topic)"
            }  # fmt: skip
            assert cluster.check(timeout=0.1).answer == "unknown", "commits cannot be seen"
            source.pause()
            source.wait("PAUSED", WAIT_S)
            until(lambda: states(cluster, "seen-in")[-1:] == ["PAUSED"], "the pause in the history", WAIT_S)
            assert "PAUSED" in repr(cluster)
            assert java_worker.worker_id in cluster._repr_html_()
            assert cluster.timeline().data
            assert {event.data["origin"] for event in cluster.events if event.kind is EventKind.TASK_STATE} == {
                "read from the status topic"
            }
            until(lambda: "PAUSED" in states(polled, "seen-in"), "the pause in the polled history", WAIT_S)
            head = polled.panel().snapshot["elements"]["head"]
            assert head["faults"] is False
            assert not polled.panel().stopped

            for connector in (source, sink):
                connector.delete()
            gone = {"seen-in", "seen-out"}
            until(
                lambda: gone <= {e.connector for e in cluster.events if e.kind is EventKind.CONNECTOR_DELETED},
                "the deletions in the history",
                WAIT_S,
            )
            with pytest.raises(ConnectorNotFoundError):
                cluster.status("seen-in")
        assert cluster.events[-1].kind is EventKind.DETACHED
        with pytest.raises(NotSeenError):
            _ = polled.bootstrap_servers
        assert any("neither the worker group nor" in spot for spot in polled.blind_spots)
    assert polled.events[-1].kind is EventKind.DETACHED
    assert "closed" in repr(polled)
    assert polled._panel.stopped


def test_nobody_at_the_address_is_said_at_once() -> None:
    with pytest.raises(WorkersUnreachableError, match=r"127\.0\.0\.1:9"):
        cx.attach("http://127.0.0.1:9")
