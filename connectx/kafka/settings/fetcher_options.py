"""Settings of connectx's own fetcher, read from those of a librdkafka client.

`ClientConfigs` merges and checks layers in librdkafka's spelling; this module reads what a fetcher needs from them.
Keys without a value have librdkafka's defaults, but for `check.crcs`, which is Java's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectx.core.fetcher.messages import FetcherSettings
from connectx.values import Value

_LARGEST_ANSWER_BYTES: Final = 90_000_000  # below what the connections take, with room for headers


class FetcherOptions(Value):
    """Settings by their Kafka names.

    Attributes:
        core: what the core decides by.
        max_wait_ms: `fetch.max.wait.ms`.
        min_bytes: `fetch.min.bytes`.
        read_committed: `isolation.level`.
        check_crcs: `check.crcs`.
        rack: `client.rack`.
        request_timeout_ms: `request.timeout.ms`.
        metadata_max_age_ms: `metadata.max.age.ms`.
    """

    core: FetcherSettings
    max_wait_ms: int
    min_bytes: int
    read_committed: bool
    check_crcs: bool
    rack: str
    request_timeout_ms: int
    metadata_max_age_ms: int


def fetcher_options(config: Mapping[str, Any]) -> FetcherOptions:
    """Read the settings, which librdkafka has checked."""
    metadata_max_age_ms = int(config.get("metadata.max.age.ms", 300_000))
    settings = FetcherSettings(
        max_bytes=min(int(config.get("fetch.max.bytes", 52_428_800)), _LARGEST_ANSWER_BYTES),
        partition_max_bytes=int(config.get("max.partition.fetch.bytes", 1_048_576)),
        buffer_bytes=int(config.get("queued.max.messages.kbytes", 65_536)) * 1024,
        retry_backoff_ms=int(config.get("retry.backoff.ms", 100)),
        retry_backoff_max_ms=int(config.get("retry.backoff.max.ms", 1_000)),
        replica_max_age_ms=metadata_max_age_ms,
    )
    return FetcherOptions(
        core=settings,
        max_wait_ms=int(config.get("fetch.wait.max.ms", 500)),
        min_bytes=int(config.get("fetch.min.bytes", 1)),
        read_committed=str(config.get("isolation.level", "read_committed")).lower() == "read_committed",
        check_crcs=str(config.get("check.crcs", "true")).lower() == "true",
        rack=str(config.get("client.rack", "")),
        request_timeout_ms=int(config.get("request.timeout.ms", 30_000)),
        metadata_max_age_ms=metadata_max_age_ms,
    )
