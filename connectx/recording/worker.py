"""How a worker's core is recorded: its settings, the functions that it calls, and what is secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from connectx.core import messages
from connectx.core.config_writer import ConfigWriter
from connectx.core.connectors import Connectors
from connectx.core.context import Context, WorkerPhase
from connectx.core.fencing import FencingRounds
from connectx.core.group.leadership import Leadership
from connectx.core.group.membership import Membership
from connectx.core.group.rebalance import Rebalance
from connectx.core.requests import RequestHandler
from connectx.core.settings import CoreSettings
from connectx.core.takeovers import Takeovers
from connectx.core.tasks import Tasks
from connectx.core.worker import WorkerCore
from connectx.errors.plugins import ConfigError
from connectx.model.config_records import SessionKeyRecord
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig, own_kafka_config
from connectx.model.worker_keys import WorkerKeys
from connectx.recording.codec import Codec, Mask, Secrets
from connectx.recording.kind import Answers, CoreKind

SETTINGS: Final = tuple(
    key.name
    for key in (
        WorkerKeys.group_id,
        WorkerKeys.connect_protocol,
        WorkerKeys.exactly_once_source_support,
        WorkerKeys.transactional_id,
        WorkerKeys.session_timeout_ms,
        WorkerKeys.heartbeat_interval_ms,
        WorkerKeys.rebalance_timeout_ms,
        WorkerKeys.retry_backoff_ms,
        WorkerKeys.retry_backoff_max_ms,
        WorkerKeys.worker_sync_timeout_ms,
        WorkerKeys.worker_unsync_backoff_ms,
        WorkerKeys.scheduled_rebalance_max_delay_ms,
        WorkerKeys.task_shutdown_graceful_timeout_ms,
        WorkerKeys.inter_worker_key_ttl_ms,
        WorkerKeys.inter_worker_key_size,
        WorkerKeys.inter_worker_key_generation_algorithm,
        WorkerKeys.topic_tracking_enable,
        WorkerKeys.topic_tracking_allow_reset,
    )
)
"""Settings of a worker that its core reads. No other is in a recording."""

_OPEN_KEYS: Final = frozenset(
    {"name", "connector.class", "task.class", "tasks.max", "task.restart.max", "task.restart.backoff.ms"}
)
"""Keys of connectors and tasks whose values are shown: the core decides by them, and none can be a secret."""

_OPEN_REPLY_KEYS: Final = _OPEN_KEYS | {
    "connector",
    "state",
    "worker_id",
    "type",
    "version",
    "trace",
    "url",
    "member_id",
    "protocol",
    "leader",
    "leader_url",
}
_CONFIG_FIELDS: Final = (
    "properties",
    "config",
    "expected",
    "task_configs",
    "connector_config",
    "task_config",
    "generated",
    "expected_config",
    "_configs",
    "_task_configs",
    "_buffered",
    "_applied_configs",
)
"""Fields that hold configurations of connectors and tasks."""


def _listening(settings: CoreSettings, answers: Answers) -> CoreSettings:
    """Settings whose functions note what they return."""

    def type_of(config: Mapping[str, str | None]) -> ConnectorType:
        found = settings.connector_type_of(config)
        answers.learn(config.get("connector.class") or "", found.value)
        return found

    def check_signature(
        key: SessionKeyRecord | None, body: bytes, signature: str | None, algorithm: str | None
    ) -> tuple[int, str] | None:
        refusal = settings.check_signature(key, body, signature, algorithm)
        answers.given.append(refusal)
        return refusal

    return replace(settings, connector_type_of=type_of, check_signature=check_signature)


def _written(settings: CoreSettings, mask: Mask | None) -> dict[str, Any]:
    given = settings.worker.originals
    return {"url": settings.url, "worker": {name: given[name] for name in SETTINGS if name in given}}


def _read(written: Any, answers: Answers) -> CoreSettings:
    """Settings whose functions answer as they did when the recording was made."""

    def type_of(config: Mapping[str, str | None]) -> ConnectorType:
        return ConnectorType(answers.known.get(config.get("connector.class") or "", "unknown"))

    def check_signature(*of_request: object) -> tuple[int, str] | None:
        refusal = answers.given.pop(0) if answers.given else None
        return None if refusal is None else (refusal[0], refusal[1])

    try:
        worker = WorkerConfig.parse(own_kafka_config({"bootstrap.servers": "recorded:9092", **written["worker"]}))
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return CoreSettings(written["url"], worker, type_of, check_signature)


def _begins(core: WorkerCore, stimulus: messages.Stimulus) -> bool:
    """A recording begins when the worker has read the internal topics: what it reads before is in the state."""
    is_read = isinstance(stimulus, messages.ConfigRecordRead | messages.StatusRecordRead)
    return core.context.phase is not WorkerPhase.STARTING or not is_read


_CODEC: Final = Codec(
    (messages.Stimulus, messages.Effect),
    parts=(
        Context,
        Membership,
        ConfigWriter,
        FencingRounds,
        Leadership,
        Connectors,
        Tasks,
        Takeovers,
        Rebalance,
        RequestHandler,
    ),
    secrets=Secrets(
        {**dict.fromkeys(_CONFIG_FIELDS, _OPEN_KEYS), "body": _OPEN_REPLY_KEYS}, texts=frozenset({"signature"})
    ),
)
WORKER: Final = CoreKind("worker", WorkerCore, _CODEC, _listening, _written, _read, _begins)
"""The core of a worker."""
