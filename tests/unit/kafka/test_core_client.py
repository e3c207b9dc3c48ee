"""Drivers read nothing of their core. What the cores of clients did is recorded and replayed."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import connectx.kafka
import connectx.runtime
from connectx.core.clients.messages import Answered
from connectx.core.producer import messages as msg
from connectx.kafka.fetcher.fetcher import RecordFetcher
from connectx.kafka.producer.producer import KafkaProducer
from connectx.model.ids import TopicPartition
from connectx.recording.recorder import Recorder
from connectx.recording.replay import first_difference, late_answers
from tests.support.waiting import until
from tests.unit.kafka.loopback import LoopbackBroker

KAFKA, RUNTIME = Path(connectx.kafka.__file__).parent, Path(connectx.runtime.__file__).parent
DRIVERS = (
    KAFKA / "core_client.py",
    *(path for name in ("producer", "fetcher") for path in (KAFKA / name).glob("*.py")),
    RUNTIME / "worker.py",
    *(RUNTIME / "tasks").rglob("*.py"),
)


@pytest.mark.parametrize("path", DRIVERS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_driver_reads_nothing_of_its_core(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("core", "_core") or ast.unparse(node.value).endswith("options"), ast.unparse(node)
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").rpartition(".")[2] not in ("state", "delivery", "invariants")


def test_the_cores_of_clients_are_recorded_under_their_client_ids_and_replayed() -> None:
    recorder = Recorder(1 << 20, None)
    with LoopbackBroker(2, {"t": 1}) as broker:
        config: dict[str, Any] = {"bootstrap.servers": broker.address, "client.id": "w/p", "transactional.id": "x"}
        producer = KafkaProducer(config, recorder=recorder)
        producer.init()
        producer.begin()
        producer.send(pa.table({"value": pa.array([b"secret-value"], pa.binary())}), "t")
        assert producer.commit(10)
        producer._take(Answered(99, msg.Produced({})))
        fetcher = RecordFetcher({"bootstrap.servers": broker.address, "client.id": "w/c"}, recorder)
        fetcher.start()
        fetcher.fetch_from({TopicPartition("t", 0): 0})
        until(lambda: len(recorder.recordings("a test")) == 2, "a step of each")
        fetched, produced = recorder.recordings("a test")
        producer.close()
        fetcher.close()
    assert [(one.kind, one.name) for one in (fetched, produced)] == [("fetcher", "w/c"), ("producer", "w/p")]
    assert (first_difference(fetched), first_difference(produced)) == (None, None)
    assert "secret-value" not in "\n".join(produced.lines())
    assert [line.rpartition(": ")[2] for line in late_answers(produced)] == ["request 99 is not pending"]


def test_the_core_of_a_client_that_is_gone_is_left_out() -> None:
    recorder = Recorder(1 << 20, None)
    fetcher = RecordFetcher({"bootstrap.servers": "127.0.0.1:9"}, recorder)
    del fetcher
    assert recorder.recordings("a test") == ()
