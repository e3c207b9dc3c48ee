"""Clients of the two clusters of a mirror."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from connectx.connectors.mirror.config import client_settings
from connectx.kafka.settings.client_config import ClientConfig
from connectx.kafka.settings.client_keys import Layer, to_librdkafka
from connectx.kafka.settings.librdkafka_log import LibrdkafkaLog

log = logging.getLogger(__name__)

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
    layers = [Layer(prefix, client_settings(config, prefix)) for prefix in prefixes]
    own = {**_BUILT_IN, "client.id": client_id}
    return ClientConfig(to_librdkafka([Layer("", own), *layers], log.warning), logger=LibrdkafkaLog())
