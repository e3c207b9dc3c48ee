"""Set-up of a source task: plugin, converters, and settings of its loop and clients.

It decides from configurations alone; nothing here talks to Kafka or Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from connectx.core.messages import PrepareTask
from connectx.core.source.progress import SourceTaskSettings
from connectx.kafka.internal.offset_topics import OwnOffsets, offsets_topic
from connectx.kafka.settings.client_config import ClientConfig
from connectx.model.ids import TaskId
from connectx.model.states import TransactionBoundary
from connectx.plugins.keys import BULK_CONFIG, RESTART_CONFIG
from connectx.plugins.settings import SourceSettings, lane_settings, source_connector_settings
from connectx.plugins.tasks import SourceTask
from connectx.runtime.tasks.services import OffsetReader, TaskServices
from connectx.spark.shipping import modules_of
from connectx.values import Value

if TYPE_CHECKING:
    from connectx.data.converter import Converter
    from connectx.data.headers import HeaderConverter
    from connectx.data.transforms.chain import Chain
    from connectx.plugins.registry import Plugins


class SourceSetup(Value):
    """Everything that one source task instance needs.

    Attributes:
        task_config: what the plugin's start gets.
        settings: what the connector configures, `loop` what of it the core needs.
        offsets_topic: where source offsets go, `offsets` what is committed there.
        creates_topics: missing topics are not left to the broker.
        epoch_config: kafka-python settings to ask for the producer's epoch with; None: not transactional.
        bulk_modules: Python modules that executors need, as configured.
    """

    task: TaskId
    plugin: SourceTask
    version: str | None
    task_config: Mapping[str, str]
    key_converter: Converter
    value_converter: Converter
    header_converter: HeaderConverter
    chain: Chain
    settings: SourceSettings
    loop: SourceTaskSettings
    offsets_topic: str
    offsets: OffsetReader
    creates_topics: bool
    producer_config: ClientConfig
    admin_config: ClientConfig
    epoch_config: ClientConfig | None
    bulk_modules: tuple[str, ...]

    def modules(self) -> tuple[str, ...]:
        """Modules that executors need, once the plugin was started: those of its classes, and the configured ones."""
        steps = [part for step in self.chain.steps for part in (step.transform, step.predicate)]
        parts = [self.plugin, self.key_converter, self.value_converter, self.header_converter, *steps]
        return (*modules_of([*map(type, parts), *self.plugin.executor_classes]), *self.bulk_modules)

    @property
    def defines_transactions(self) -> bool:
        """True when the task itself defines where its transactions end."""
        return self.loop.exactly_once and self.loop.boundary is TransactionBoundary.CONNECTOR


def set_up(order: PrepareTask, services: TaskServices, plugins: Plugins) -> SourceSetup:
    """Make the plugin and the converters, and work out the settings.

    Raises:
        ConfigError: a setting of the connector does not work for its task, or it has more tasks than it may have.
        ConnectxError: a class cannot be found or made.
    """
    task, config, worker = order.task, order.connector_config, services.config
    plugins.check_task_count(config, order.task_count)
    RESTART_CONFIG.parse(config)  # the core reads them, too, and takes what it cannot read for no restarts
    settings = source_connector_settings(config, worker)
    topic, is_own = offsets_topic(services.clients, worker, config)
    plugin = plugins.create_task(config)
    assert isinstance(plugin, SourceTask), "only source connectors are given to a source runner"
    has_bulk = type(plugin).poll_bulk is not SourceTask.poll_bulk
    by_task = order.exactly_once and settings.boundary is TransactionBoundary.CONNECTOR
    loop = SourceTaskSettings(
        task=task,
        exactly_once=order.exactly_once,
        instance=order.instance,
        transactional_id=worker.task_transactional_id(task.connector, task.task) if order.exactly_once else "",
        boundary=settings.boundary,
        boundary_interval_ms=settings.boundary_interval_ms,
        offset_flush_interval_ms=worker.offset_flush_interval_ms,
        offset_flush_timeout_ms=worker.offset_flush_timeout_ms,
        copies_offsets=is_own,
        tolerate_all=settings.errors.tolerate_all,
        retry_timeout_ms=settings.errors.retry_timeout_ms,
        retry_delay_max_ms=settings.errors.retry_delay_max_ms,
        lanes=lane_settings(config) if has_bulk else None,
        bulk_obstacle="the task itself defines its transactions" if by_task else None,
    )
    admin_id = f"connector-adminclient-{task}"
    return SourceSetup(
        task=task,
        plugin=plugin,
        version=plugins.connector_class(config.get("connector.class") or "").version,
        task_config={key: value for key, value in order.task_config.items() if value is not None},
        key_converter=plugins.converter("key", config, worker),
        value_converter=plugins.converter("value", config, worker),
        header_converter=plugins.header_converter(config, worker),
        chain=plugins.chain(config),
        settings=settings,
        loop=loop,
        offsets_topic=topic,
        offsets=_offsets(order, services, topic) if is_own else services.offsets,
        creates_topics=worker.topic_creation_enable,
        producer_config=services.clients.source_task_producer(task, config, order.exactly_once),
        admin_config=services.clients.admin(task.connector, config, admin_id),
        epoch_config=services.clients.kafka_python(admin_id, task.connector, config) if order.exactly_once else None,
        bulk_modules=tuple(BULK_CONFIG.parse(config)["bulk.modules"]),
    )


def _offsets(order: PrepareTask, services: TaskServices, topic: str) -> OffsetReader:
    return OwnOffsets(
        services.clients,
        services.config,
        order.task,
        order.connector_config,
        topic=topic,
        exactly_once=order.exactly_once,
        workers=services.offsets,
    )
