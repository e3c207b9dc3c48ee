"""Settings that many tests share: converters, and worker profiles with short times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
FILE_PROVIDER = {"config.providers": "file", "config.providers.file.class": "FileConfigProvider"}
QUICK = {
    "value.converter": STRINGS,
    "offset.flush.interval.ms": "500",
    "session.timeout.ms": "2000",
    "scheduled.rebalance.max.delay.ms": "1000",
    "consumer.session.timeout.ms": "2000",
    **FILE_PROVIDER,
}
"""A worker that is gone is noticed after 2 s, and its tasks move 1 s later."""
EOS = {**QUICK, "task.shutdown.graceful.timeout.ms": "20000"}
"""Tasks that must stop end by themselves: a zombie meets its fence and is not cancelled before."""


def dotted(settings: Mapping[str, V]) -> dict[str, V]:
    """Return settings whose keys have dots for underscores: keyword arguments as Kafka's keys."""
    return {key.replace("_", "."): value for key, value in settings.items()}
