"""Settings of one worker's core and of its membership in the group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from connectx.model.config_records import SessionKeyRecord
from connectx.model.group import ProtocolVersion
from connectx.model.states import ConnectorType, ExactlyOnceSupport

ConnectorTypeOf = Callable[[Mapping[str, str | None]], ConnectorType]
SignatureCheck = Callable[[SessionKeyRecord | None, bytes, str | None, str | None], tuple[int, str] | None]


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """Times in ms: worker settings of nearly the same names. Back-off doubles from the first to the maximum."""

    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """Settings of one worker's core. Times are in milliseconds; `url` is the advertised URL with a trailing slash.

    `config_transactional_id` is the leader's for the config topic,
    `connector_type_of` tells a connector's direction from its configuration, `check_signature` an HTTP status and a
    message for a wrong signature of an internal request (key, body, signature, algorithm): both pure functions.
    """

    url: str
    group_id: str
    membership: MembershipSettings
    connector_type_of: ConnectorTypeOf
    check_signature: SignatureCheck
    offered: tuple[ProtocolVersion, ...] = (
        ProtocolVersion.SESSIONED,
        ProtocolVersion.COMPATIBLE,
        ProtocolVersion.EAGER,
    )
    exactly_once: ExactlyOnceSupport = ExactlyOnceSupport.DISABLED
    config_transactional_id: str = ""
    scheduled_rebalance_max_delay_ms: int = 300_000
    worker_sync_timeout_ms: int = 3_000
    worker_unsync_backoff_ms: int = 300_000
    task_shutdown_graceful_timeout_ms: int = 5_000
    inter_worker_key_ttl_ms: int = 3_600_000
    inter_worker_key_algorithm: str = "HmacSHA256"
    inter_worker_key_bytes: int = 32
    topic_tracking_enable: bool = True
    topic_tracking_allow_reset: bool = True

    @property
    def worker_id(self) -> str:
        """host:port of the advertised URL, as statuses carry it."""
        return urlsplit(self.url).netloc

    def __deepcopy__(self, memo: dict[int, Any]) -> CoreSettings:
        return self  # nothing changes in it, and its functions are not the core's to copy
