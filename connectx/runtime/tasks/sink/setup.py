"""Set-up of a sink task: plugin, converters, and settings of its loop and clients.

It decides from configurations alone; nothing here talks to Kafka or Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from connectx.core.messages import PrepareTask
from connectx.core.sink.progress import SinkTaskSettings
from connectx.kafka.settings.client_config import ClientConfig
from connectx.model.ids import TaskId
from connectx.model.patterns import compiled
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.keys import BULK_CONFIG, LIMITS_CONFIG, RESTART_CONFIG
from connectx.plugins.settings import SinkSettings, lane_settings, sink_connector_settings
from connectx.plugins.tasks import SinkTask
from connectx.runtime.tasks.services import TaskServices
from connectx.runtime.tasks.sink.conversion import Conversion
from connectx.values import Value

if TYPE_CHECKING:
    from connectx.data.converter import Converter
    from connectx.data.headers import HeaderConverter
    from connectx.data.transforms.chain import Chain
    from connectx.plugins.registry import Plugins

_MAX_POLL_RECORDS = 10_000
_REPLICATION_FACTOR = "errors.deadletterqueue.topic.replication.factor"
_MAX_POLL_KEY = "consumer.override.max.poll.records"
_DELAY_KEY = "errors.retry.delay.max.ms"
"""Without it a put waits at most 5 s between two tries, not a minute as other operations in Kafka Connect."""


class SinkSetup(Value):
    """Everything that one sink task instance needs.

    Attributes:
        task_config: what the plugin's start gets.
        connector: the connector's class.
        connector_config: its configuration.
        conversion: converters and transformations.
        settings: what the connector configures, `loop` what of it the core needs.
        subscription: topics, or one regular expression that starts with ^.
        bulk_modules: Python modules that executors need besides those of the classes.
        max_executor_connections: most Spark tasks that stage at a time; None: as many as there are cores.
        max_poll_records: most records of one batch.
        dead_letter_config: settings of the dead letter queue's producer; None: there is no such queue.
    """

    task: TaskId
    plugin: SinkTask
    version: str | None
    connector: type[SinkConnector]
    connector_config: Mapping[str, str | None]
    task_config: Mapping[str, str]
    conversion: Conversion
    settings: SinkSettings
    loop: SinkTaskSettings
    consumer_config: ClientConfig
    subscription: tuple[str, ...]
    bulk_modules: tuple[str, ...]
    max_executor_connections: int | None
    max_poll_records: int
    dead_letter_config: ClientConfig | None
    admin_config: ClientConfig

    @property
    def key_converter(self) -> Converter:
        return self.conversion.key_converter

    @property
    def value_converter(self) -> Converter:
        return self.conversion.value_converter

    @property
    def header_converter(self) -> HeaderConverter:
        return self.conversion.header_converter

    @property
    def chain(self) -> Chain:
        return self.conversion.chain


def set_up(order: PrepareTask, services: TaskServices, plugins: Plugins) -> SinkSetup:
    """Make the plugin and the converters, and work out the settings.

    Raises:
        ConfigError: a setting of the connector is wrong, or it has more tasks than it may have.
        ConnectxError: a class cannot be found or made.
    """
    task, config, worker = order.task, order.connector_config, services.config
    plugins.check_task_count(config, order.task_count)
    of_worker = {_REPLICATION_FACTOR: str(worker.errors_deadletterqueue_topic_replication_factor)}
    settings = sink_connector_settings({**of_worker, **config})
    RESTART_CONFIG.parse(config)  # the core reads them, too, and takes what it cannot read for no restarts
    plugin = services.created(plugins.create_task, config)
    assert isinstance(plugin, SinkTask), "only sink connectors are given to a sink runner"
    connector = plugins.connector_class(config.get("connector.class") or "")
    assert issubclass(connector, SinkConnector), "as its task"
    for_client = {key: value for key, value in config.items() if key != _MAX_POLL_KEY}  # librdkafka does not have it
    consumer_config = services.clients.sink_consumer(task, for_client)
    max_records = config.get(_MAX_POLL_KEY) or worker.originals.get("consumer.max.poll.records")
    return SinkSetup(
        task=task,
        plugin=plugin,
        version=connector.version,
        connector=connector,
        connector_config=config,
        task_config={key: value for key, value in order.task_config.items() if value is not None},
        conversion=Conversion.of(
            plugins, config, worker, reads_fields=plugin.reads_fields, key_fields=connector.key_fields(config)
        ),
        settings=settings,
        loop=_loop_settings(order, worker, settings, plugin, connector),
        consumer_config=consumer_config,
        subscription=settings.topics or (compiled(settings.topics_regex or "").of_topics,),
        bulk_modules=tuple(BULK_CONFIG.parse(config)["bulk.modules"]),
        max_executor_connections=_max_executor_connections(config, settings),
        max_poll_records=int(max_records or _MAX_POLL_RECORDS),
        dead_letter_config=(
            services.clients.dead_letter_producer(task, config) if settings.dead_letter_topic is not None else None
        ),
        admin_config=services.clients.admin(task.connector, config, f"connector-adminclient-{task}"),
    )


def _loop_settings(
    order: PrepareTask, worker: WorkerConfig, settings: SinkSettings, plugin: SinkTask, connector: type[SinkConnector]
) -> SinkTaskSettings:
    """The settings of the pure loop, from those of connector, plugin and worker."""
    config = order.connector_config
    limits, flush_interval_ms = LIMITS_CONFIG.parse(config), connector.flush_interval_ms(config)
    obstacle = connector.bulk_obstacle(config)
    if limits["max.rows.per.second"] or limits["max.bytes.per.second"]:
        obstacle = "the target has a limit a second"
    elif obstacle is None and _max_executor_connections(config, settings) == 0:
        obstacle = "max.connections leaves no connection for executors"
    delay = {"retry_backoff_max_ms": settings.errors.retry_delay_max_ms} if _DELAY_KEY in config else {}
    return SinkTaskSettings(
        task=order.task,
        exactly_once=plugin.exactly_once and not plugin.buffers,
        offset_flush_interval_ms=worker.offset_flush_interval_ms if flush_interval_ms is None else flush_interval_ms,
        offset_flush_timeout_ms=worker.offset_flush_timeout_ms,
        retry_timeout_ms=settings.errors.retry_timeout_ms,
        max_rows_per_s=limits["max.rows.per.second"] / settings.tasks_max or None,
        max_bytes_per_s=limits["max.bytes.per.second"] / settings.tasks_max or None,
        lag_alarm_records=None if limits["lag.alarm.records"] < 0 else limits["lag.alarm.records"],
        lag_alarm_ms=limits["lag.alarm.ms"],
        lanes=lane_settings(config),
        bulk_obstacle=obstacle,
        instance=order.instance,
        puts_nothing=plugin.puts_nothing,
        **delay,
    )


def _max_executor_connections(config: Mapping[str, str | None], settings: SinkSettings) -> int | None:
    """The task's share of max.connections without its own one; None: no limit."""
    most: int = LIMITS_CONFIG.parse(config)["max.connections"]
    return max(0, most // settings.tasks_max - 1) if most else None
