"""What Kafka Connect has and connectx has not is refused when a connector is created, never ignored."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from connectx.connectors.plugins import Plugins
from connectx.connectors.validation import validate_connector
from connectx.errors import PluginNotFoundError
from connectx.model.worker_config import WorkerConfig, embedded_config

WORKER = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1"}))
SOURCE = {"name": "c", "connector.class": "FileStreamSource", "file": "in.txt", "topic": "t"}
SINK = {"name": "c", "connector.class": "FileStreamSink", "file": "out.txt", "topics": "t"}


def problems(config: dict[str, str]) -> list[str]:
    return validate_connector(Plugins(), config, WORKER).errors


def test_a_dead_letter_queue_is_refused() -> None:
    assert problems({**SINK, "errors.deadletterqueue.topic.name": ""}) == []
    (problem,) = problems({**SINK, "errors.deadletterqueue.topic.name": "dead"})
    assert problem.startswith(
        "Invalid value dead for configuration errors.deadletterqueue.topic.name: There is no dead"
    )


@pytest.mark.parametrize("path", ["..Connector", "os.system", "connectx_broken_plugin.Connector"])
def test_a_path_that_cannot_be_loaded_is_no_connector_whatever_its_module_raises(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "connectx_broken_plugin.py").write_text("raise RuntimeError('the module is broken')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(PluginNotFoundError):
        Plugins().connector_class(path)
