"""Settings of one Kafka client, for librdkafka and kafka-python."""

from __future__ import annotations

from typing import Any

from connectx.kafka.settings.security import for_kafka_python
from connectx.views import masked


class ClientConfig(dict[str, Any]):
    """Settings of one client. Its text form hides secrets."""

    def __repr__(self) -> str:
        hidden = {key: "[hidden]" for key in self if key.endswith(".pem") or key == "sasl.oauthbearer.config"}
        return f"ClientConfig({ {**masked(self), **hidden} })"

    __str__ = __repr__


def kafka_python_config(config: ClientConfig, **settings: int) -> ClientConfig:
    """Keyword arguments of a kafka-python client from those of a librdkafka client, with further ones.

    Raises:
        ClientSettingError: a security setting is one that kafka-python does not have.
    """
    return ClientConfig(
        bootstrap_servers=str(config["bootstrap.servers"]).split(","),
        client_id=config["client.id"],
        reconnect_backoff_ms=int(config["reconnect.backoff.ms"]),
        reconnect_backoff_max_ms=int(config["reconnect.backoff.max.ms"]),
        max_in_flight_requests_per_connection=10_000,  # a request beyond the limit is refused, not queued
        receive_message_max_bytes=100_000_000,
        **settings,
        **for_kafka_python(config),
    )
