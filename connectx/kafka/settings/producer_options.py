"""Settings of connectx's own producer, read from those of a librdkafka client.

`ClientConfigs` merges and checks layers in librdkafka's spelling; this module reads what a producer needs from them.
Keys without a value have Kafka Connect's producer defaults, with two exceptions: a batch may fill a request
(`batch.size`), and a topic may be missing for 60 s (`max.block.ms`; Kafka Connect waits forever). `linger.ms` has no
effect, because
records come in slices: there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectx.core.producer.messages import FOREVER_MS, ProducerSettings
from connectx.errors.kafka import ProducerError
from connectx.values import Value

_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
OWN_KEYS: Final = frozenset({"max.block.ms", *(f"compression.{name}.level" for name in ("gzip", "lz4", "zstd"))})
"""Java's keys for producers that librdkafka does not have."""

_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}


class ProducerOptions(Value):
    """Settings by their Kafka names.

    Attributes:
        core: what the core decides by.
        batch_bytes: `batch.size`.
        buffer_bytes: `buffer.memory`, the size of all encoded batches that Kafka has not taken.
        compression: `compression.type`, with the level in `compression_level` (None: the codec's default).
        request_timeout_ms: `request.timeout.ms`.
        metadata_max_age_ms: `metadata.max.age.ms`.
    """

    core: ProducerSettings
    batch_bytes: int
    buffer_bytes: int
    compression: str
    compression_level: int | None
    request_timeout_ms: int
    metadata_max_age_ms: int


def producer_options(config: Mapping[str, Any]) -> ProducerOptions:
    """Read the settings.

    Raises:
        ProducerError: a value is not allowed, or values contradict each other.
    """
    transactional_id = config.get("transactional.id")
    idempotent = transactional_id is not None or _flag(config, "enable.idempotence", "false")
    acks = _choice(config, "acks", "all", _ACKS)
    in_flight = _number(config, "max.in.flight.requests.per.connection", 5 if idempotent else 1)
    if idempotent and (acks != -1 or in_flight > 5):
        raise _not_allowed("acks=all and max.in.flight.requests.per.connection up to 5 are needed for idempotence")
    max_request_bytes = _number(config, "message.max.bytes", 1_048_576)
    timeout_ms = _number(config, "message.timeout.ms", FOREVER_MS)
    compression = _choice(config, "compression.type", "none", {name: name for name in _COMPRESSIONS})
    level = _number(config, f"compression.{compression}.level", _number(config, "compression.level", -1))
    settings = ProducerSettings(
        transactional_id=transactional_id,
        idempotent=idempotent,
        acks=acks,
        max_in_flight=in_flight,
        max_request_size_bytes=max_request_bytes,
        transaction_timeout_ms=_number(config, "transaction.timeout.ms", 60_000),
        delivery_timeout_ms=timeout_ms or FOREVER_MS,  # librdkafka's 0 is Java's largest number
        retry_backoff_ms=_number(config, "retry.backoff.ms", 100),
        retry_backoff_max_ms=_number(config, "retry.backoff.max.ms", 1_000),
        unknown_topic_ms=_number(config, "max.block.ms", 60_000),
    )
    return ProducerOptions(
        core=settings,
        batch_bytes=min(_number(config, "batch.size", 1_000_000), max_request_bytes),
        buffer_bytes=_number(config, "queue.buffering.max.kbytes", 64 * 1024) * 1024,
        compression=compression,
        compression_level=None if level < 0 else level,
        request_timeout_ms=_number(config, "request.timeout.ms", 30_000),
        metadata_max_age_ms=_number(config, "metadata.max.age.ms", 300_000),
    )


def _number(config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key, default)
    try:
        return int(float(value))
    except ValueError as error:
        raise _not_allowed(f"{key}={value} is no number") from error


def _flag(config: Mapping[str, Any], key: str, default: str) -> bool:
    return bool(_choice(config, key, default, {"true": True, "false": False}))


def _choice(config: Mapping[str, Any], key: str, default: str, choices: Mapping[str, Any]) -> Any:
    value = str(config.get(key, default)).lower()
    if value not in choices:
        raise _not_allowed(f"{key}={value} is none of {', '.join(choices)}")
    return choices[value]


def _not_allowed(why: str) -> ProducerError:
    return ProducerError(
        f"The producer cannot be created: {why}.",
        next_step="Correct the worker's producer.* or the connector's producer.override.* settings.",
    )
