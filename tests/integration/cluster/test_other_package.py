"""Connectors of another package in a cluster: what its users see, from the list of plugins to the verdict."""

from __future__ import annotations

from pathlib import Path

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.other_package import answers, installed


def test_a_cluster_runs_and_checks_connectors_of_another_package(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    found = answers(installed(tmp_path), "live.py", kafka.bootstrap_servers, shelf)
    assert found["plugins"] == [
        "acme_shelf.FarShelfSink",
        "acme_shelf.ShelfSink",
        "org.acme.shelf.ShelfSourceConnector",
    ]
    assert found["classes"] == ["FarShelfSink", "ShelfSink", "ShelfSourceConnector"]
    assert found["form"]["shelf"]
    assert "acme_far_shelf" in found["missing extra"]
    assert f"The shelf {shelf}/none does not exist." in found["failed"]
    assert found["staged"] == 100
    assert found["verdict"] == ["valid"]
