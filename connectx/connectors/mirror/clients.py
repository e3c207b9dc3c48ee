"""Clients of the two clusters of a mirror."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from connectx.kafka.settings.client_config import ClientConfig
from connectx.kafka.settings.client_keys import Layer, to_librdkafka
from connectx.kafka.settings.librdkafka_log import LibrdkafkaLog
from connectx.model.worker_config import with_prefix

log = logging.getLogger(__name__)

_OWN_KEYS: Final = ("alias", "max.poll.records", "auto.offset.reset")
"""Keys with these prefixes that are the connector's."""
_BUILT_IN: Final = {
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "1000",
    "socket.nagle.disable": "true",
    "log.connection.close": "false",
    "enable.metrics.push": "false",
}


def client_config(config: Mapping[str, str | None], prefixes: Sequence[str], client_id: str) -> ClientConfig:
    """Settings of a client from a connector's keys with these prefixes, later over earlier.

    Records that are not committed in the source are left out, unless source.consumer.isolation.level includes them.

    Raises:
        ClientSettingError: a value that no client takes.
    """
    layers = [
        Layer(prefix, {name: text for name, text in with_prefix(config, prefix).items() if name not in _OWN_KEYS})
        for prefix in prefixes
    ]
    own = {**_BUILT_IN, "client.id": client_id}
    return ClientConfig(to_librdkafka([Layer("", own), *layers], log.warning), logger=LibrdkafkaLog())
