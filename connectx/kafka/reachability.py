"""Whether this process can reach Kafka with a producer's settings; Spark's executors run it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.cluster import collect_hosts

from connectx.errors.base import ConnectxError
from connectx.kafka.core_client import connection_settings
from connectx.kafka.net import KafkaNet
from connectx.kafka.settings.client_config import ClientConfig
from connectx.kafka.settings.producer_options import producer_options

_CONNECT_S: Final = 2.0


def connection_obstacle(config: Mapping[str, Any], timeout_s: float) -> str | None:
    """Connect and log in to every broker that Kafka names; returns None, or why that failed.

    Args:
        config: of a producer, as `ClientConfigs` makes it.
        timeout_s: for all brokers together; a bootstrap server that does not answer adds two seconds.
    """
    try:
        settings: ClientConfig = connection_settings(config, producer_options(config))
        refusals = _refusals(settings["bootstrap_servers"])
        if refusals is not None:
            return refusals
        net = KafkaNet(settings)
        net.start()
        try:
            net.run(net.connect_to_all, time.monotonic() + timeout_s)
        finally:
            net.abandon()
    except kafka_errors.KafkaTimeoutError:
        return f"not all brokers answered in {timeout_s:g} s"
    except (ConnectxError, kafka_errors.KafkaError, OSError) as error:
        return str(error) or repr(error)
    return None


def _refusals(servers: Iterable[str]) -> str | None:
    """Why no bootstrap server accepts a connection; None if one does."""
    refusals = []
    for host, port, *_ in collect_hosts(list(servers), randomize=False):
        try:
            socket.create_connection((host, port), _CONNECT_S).close()
        except OSError as error:
            refusals.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return None
    return ", ".join(refusals)
