"""What a worker's core needs to know of its settings. Decides nothing; the rules are in `connectx.core`."""

from __future__ import annotations

from connectx.core.settings import CoreSettings, MembershipSettings
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.registry import Plugins
from connectx.protocol.signing import signature_error

_KEY_BITS = 256


def core_settings(config: WorkerConfig, plugins: Plugins, url: str) -> CoreSettings:
    """Settings of the core of a worker that is reached at `url` (with a trailing slash)."""
    return CoreSettings(
        url=url,
        group_id=config.group_id,
        membership=MembershipSettings(
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
        ),
        connector_type_of=plugins.connector_type,
        check_signature=lambda key, body, signature, algorithm: signature_error(
            key, body, signature, algorithm, config.inter_worker_verification_algorithms
        ),
        offered=config.connect_protocol,
        exactly_once=config.exactly_once_source_support,
        config_transactional_id=config.config_transactional_id,
        scheduled_rebalance_max_delay_ms=config.scheduled_rebalance_max_delay_ms,
        worker_sync_timeout_ms=config.worker_sync_timeout_ms,
        worker_unsync_backoff_ms=config.worker_unsync_backoff_ms,
        task_shutdown_graceful_timeout_ms=config.task_shutdown_graceful_timeout_ms,
        inter_worker_key_ttl_ms=config.inter_worker_key_ttl_ms,
        inter_worker_key_algorithm=config.inter_worker_key_generation_algorithm,
        inter_worker_key_bytes=(config.inter_worker_key_size or _KEY_BITS) // 8,
        topic_tracking_enable=config.topic_tracking_enable,
        topic_tracking_allow_reset=config.topic_tracking_allow_reset,
    )
