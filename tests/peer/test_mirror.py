"""MirrorMaker 2's source connector and MirrorSource take a mirror over from each other, with the same offsets topic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.integration.cluster.test_mirror import Source, wait_mirrored
from tests.support.mixed_groups import Group

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
PARTITIONS = 2


@pytest.mark.timeout(400)
def test_a_mirror_that_java_and_python_workers_take_over_by_turns_has_every_record_once(
    group: Callable[..., Group], kafka: EmbeddedKafka, topic: Callable[..., str]
) -> None:
    ours, source = group(), Source(kafka.bootstrap_servers, topic("mirrored", PARTITIONS))
    source.produce(200, range(PARTITIONS))
    (first,) = ours.start_java()
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "source",
        "source.cluster.bootstrap.servers": kafka.bootstrap_servers,
        "target.cluster.alias": "target",
        "target.cluster.bootstrap.servers": kafka.bootstrap_servers,
        "source.consumer.isolation.level": "read_committed",
        "topics": source.topic,
        "replication.factor": "1",
        "emit.offset-syncs.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "header.converter": BYTES,
        "tasks.max": str(PARTITIONS),
    }
    ours.client.create("mirror", config)
    wait_mirrored(kafka.bootstrap_servers, source)

    python = ours.start_python()
    (own,) = [worker.url.split("/")[2] for worker in python.workers]
    source.produce(200, range(PARTITIONS))
    first.stop()
    source.produce(200, range(PARTITIONS))
    ours.wait_on("mirror", [own], PARTITIONS)
    wait_mirrored(kafka.bootstrap_servers, source)

    (last,) = ours.start_java()
    source.produce(200, range(PARTITIONS))
    python.workers[0].kill()
    source.produce(200, range(PARTITIONS))
    ours.wait_on("mirror", [last.worker_id], PARTITIONS)
    wait_mirrored(kafka.bootstrap_servers, source)
    stored = ours.client.offsets("mirror")
    assert sorted(each["partition"]["partition"] for each in stored) == list(range(PARTITIONS))
