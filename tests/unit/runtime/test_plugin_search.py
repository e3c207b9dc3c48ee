"""What a worker asks the others about a connector class that it does not know."""

from __future__ import annotations

import socket

import pytest

from connectx.errors.plugins import PluginNotFoundError
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.runtime.plugin_search import unknown_here


def test_a_worker_that_takes_connections_and_never_answers_does_not_hold_the_failure_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is frozen: the kernel takes the connection. A task waited for its answer for 95 seconds before it failed."""
    monkeypatch.setattr("connectx.runtime.plugin_search.ANSWER_S", 0.05)
    settings = WorkerConfig.parse(embedded_config({"bootstrap.servers": "127.0.0.1:1"}))
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        place = {"url": "http://127.0.0.1:1/", "leader_url": f"http://127.0.0.1:{frozen.getsockname()[1]}/"}
        error = unknown_here(PluginNotFoundError("No Nowhere"), {"connector.class": "Nowhere"}, place, settings)
    assert "no other that answered does" in str(error)
