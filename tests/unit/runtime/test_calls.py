"""What a worker's calls answer when they fail."""

from __future__ import annotations

import logging
from queue import SimpleQueue

import pytest

from connectx.core.messages import FenceProducers, ProducersFenced, Stimulus
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.runtime.calls import Calls
from connectx.runtime.masking import masked_errors

SECRET = "s3cret-of-the-admin-client"


def test_what_stood_behind_a_placeholder_is_neither_told_nor_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OF_THE_TEST", SECRET)
    provider = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}
    config = WorkerConfig.parse({**embedded_config({}), "bootstrap.servers": "127.0.0.1:9", **provider})
    posted: SimpleQueue[Stimulus] = SimpleQueue()
    providers = Plugins().providers(config)
    calls = Calls("w", ClientConfigs(config, "w"), config, posted.put, providers)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "${env:OF_THE_TEST}"}
    connector = {f"admin.override.{key}": text for key, text in login.items()}
    with caplog.at_level(logging.DEBUG):
        calls.fence_producers(FenceProducers(1, "orders", connector, ("g-orders-0",)))
        answer = masked_errors(posted.get(timeout=30), providers.masked)  # as a worker's mailbox does
    calls.close()
    assert isinstance(answer, ProducersFenced)
    assert "[hidden]" in str(answer.error)
    assert SECRET not in f"{answer.error}{caplog.text}"
