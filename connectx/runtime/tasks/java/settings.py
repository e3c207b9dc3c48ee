"""Settings of the JVM that runs Java connectors, and of the Kafka clients of its tasks.

Client ids begin with the worker's name and a slash, by which the fault gate recognises a worker. Those of tasks are
overridden for each task alone: a connector that copies its configuration into those of its tasks would otherwise change
them with each worker that it comes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from connectx.kafka.settings.client_keys import SECURITY_PREFIXES
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TaskId
from connectx.model.worker_config import SPARK, WorkerConfig

_ROLES: Final = ("producer", "consumer", "admin")
_NOT_JAVAS: Final = (SPARK, "listeners", "admin.listeners", "rest.", "config.providers", "plugin.path")
"""REST and placeholders are Python's."""
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic"
_ISOLATION: Final = "isolation.level"
_CREATION: Final = "topic.creation.default."


def worker_settings(
    worker: str, config: WorkerConfig, clients: ClientConfigs, *, in_manifests: bool, plugins: Path
) -> dict[str, str]:
    """A worker's settings, with values in the place of placeholders, as Kafka Connect's DistributedConfig takes them.

    As for Python connectors, the worker's security settings are also those of its clients.

    Args:
        worker: its name.
        config: its settings.
        clients: where its clients connect.
        in_manifests: whether Java may look for plugins in service manifests alone, which saves seconds.
        plugins: a folder with the plugins.
    """
    originals = {name: text for name, text in config.originals.items() if not name.startswith(_NOT_JAVAS)}
    discovery = {"plugin.discovery": "service_load"} if in_manifests else {}
    security = {name: text for name, text in originals.items() if name.startswith(SECURITY_PREFIXES)}
    base = originals.get("client.id") or config.group_id
    settings = {f"{role}.{name}": text for role in _ROLES for name, text in security.items()}
    settings |= originals | discovery
    settings |= {"plugin.path": str(plugins), "bootstrap.servers": clients.bootstrap_servers}
    settings["client.id"] = f"{worker}/{base}-java"
    for role in _ROLES:
        own = originals.get(f"{role}.client.id") or f"{base}-java-{role}"
        settings[f"{role}.client.id"] = f"{worker}/{own}"
    return settings


def link_plugins(locations: Iterable[Path], folder: Path) -> Path:
    """Make a folder with a link to each location of plugins, so that the JVM sees what the worker has found."""
    linked = folder / "plugins"
    linked.mkdir()
    for number, location in enumerate(locations):
        (linked / f"{number:03}-{location.name}").symlink_to(location.resolve())
    return linked


def task_settings(
    worker: str, config: WorkerConfig, task: TaskId, connector_config: Mapping[str, str | None], *, sink: bool
) -> dict[str, str | None]:
    """A connector's configuration for one of its tasks: with its client ids and with connectx's defaults.

    As for Python connectors, a source's topics are created with the broker's defaults unless it has other settings,
    sinks read committed records, and the worker has a default for dead letter queues.
    """
    given = {"name": task.connector, **connector_config}
    kinds = {"producer": "producer", "consumer": "consumer", "admin": "adminclient"}
    for role, kind in kinds.items():
        key = f"{role}.override.client.id"
        given[key] = f"{worker}/{given.get(key) or f'connector-{kind}-{task}'}"
    if not sink:
        if config.topic_creation_enable:
            defaults = {f"{_CREATION}partitions": "-1", f"{_CREATION}replication.factor": "-1"}
            return {**defaults, **given}
        return given
    if f"consumer.{_ISOLATION}" not in config.originals:
        given.setdefault(f"consumer.override.{_ISOLATION}", "read_committed")
    if given.get(f"{_DEAD_LETTERS}.name"):
        factor = str(config.errors_deadletterqueue_topic_replication_factor)
        given.setdefault(f"{_DEAD_LETTERS}.replication.factor", factor)
    return given
