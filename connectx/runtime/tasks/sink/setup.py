"""What a sink task is made of before it does anything: plugin, converters, and settings of its loop and clients.

It decides from configurations alone; nothing here talks to Kafka or Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectx.core.messages import PrepareTask
from connectx.core.sink.progress import SinkTaskSettings
from connectx.kafka.settings.client_config import ClientConfig
from connectx.model.configdef import ConfigDef
from connectx.model.ids import TaskId
from connectx.model.validators import at_least
from connectx.plugins.api import SinkConnector, SinkTask
from connectx.plugins.keys import LIMITS_CONFIG, RESTART_CONFIG
from connectx.plugins.settings import SinkSettings, sink_connector_settings
from connectx.runtime.tasks.services import TaskServices

if TYPE_CHECKING:
    from connectx.data.converter import Converter
    from connectx.data.headers import HeaderConverter
    from connectx.data.transforms.chain import Chain
    from connectx.plugins.registry import Plugins

BACKLOG_CONFIG = (
    ConfigDef()
    .define(
        "backlog.records",
        "LONG",
        -1,
        doc="Lag in records from which on Spark reads ranges of offsets in place of the task's consumer; -1 is never. "
        "It pays with many executors and partitions; on one machine of two cores the consumer is 2 to 3 times as fast.",
        importance="LOW",
    )
    .define(
        "backlog.slice.records",
        int,
        200_000,
        doc="The most records that Spark reads at a time; they are held in the worker's memory.",
        importance="LOW",
        validator=at_least(1),
    )
)
"""Keys of sink connectors that Kafka Connect does not have."""

_MAX_POLL_RECORDS = 10_000
_MAX_POLL_KEY = "consumer.override.max.poll.records"
_DELAY_KEY = "errors.retry.delay.max.ms"
"""Without it a put waits at most 5 s between two tries, not a minute as other operations in Kafka Connect."""


@dataclass(frozen=True, slots=True)
class SinkSetup:
    """Everything that one sink task instance needs.

    Attributes:
        task_config: what the plugin's start gets.
        settings: what the connector configures, `loop` what of it the core needs.
        subscription: topics, or one regular expression that starts with ^.
        backlog_options: `kafka.` options of Spark's reader.
        max_poll_records: most records of one batch.
        dead_letter_config: settings of the dead letter queue's producer; None: there is no such queue.
        masked: hides in a text what stood behind placeholders.
    """

    task: TaskId
    plugin: SinkTask
    version: str | None
    task_config: Mapping[str, str]
    key_converter: Converter
    value_converter: Converter
    header_converter: HeaderConverter
    chain: Chain
    settings: SinkSettings
    loop: SinkTaskSettings
    consumer_config: ClientConfig
    subscription: tuple[str, ...]
    backlog_options: Mapping[str, str]
    max_poll_records: int
    dead_letter_config: ClientConfig | None
    admin_config: ClientConfig
    masked: Callable[[str], str]


def set_up(order: PrepareTask, services: TaskServices, plugins: Plugins) -> SinkSetup:
    """Make the plugin and the converters, and work out the settings.

    Raises:
        ConfigError: a setting of the connector is wrong.
        ConnectxError: a class cannot be found or made.
    """
    task, config, worker = order.task, order.connector_config, services.config
    settings = sink_connector_settings(config)
    RESTART_CONFIG.parse(config)  # the core reads them, too, and takes what it cannot read for no restarts
    backlog, limits = BACKLOG_CONFIG.parse(config), LIMITS_CONFIG.parse(config)
    delay = {"retry_backoff_max_ms": settings.errors.retry_delay_max_ms} if _DELAY_KEY in config else {}
    chain = plugins.chain(config)
    plugin = services.created(plugins.create_task, config)
    assert isinstance(plugin, SinkTask), "only sink connectors are given to a sink runner"
    connector = plugins.connector_class(config.get("connector.class") or "")
    assert issubclass(connector, SinkConnector), "as its task"
    flush_interval_ms = connector.flush_interval_ms(config)
    loop = SinkTaskSettings(
        task=task,
        exactly_once=plugin.exactly_once and not plugin.buffers,
        offset_flush_interval_ms=(worker.offset_flush_interval_ms if flush_interval_ms is None else flush_interval_ms),
        offset_flush_timeout_ms=worker.offset_flush_timeout_ms,
        backlog_records=None if backlog["backlog.records"] < 0 else backlog["backlog.records"],
        backlog_slice_records=backlog["backlog.slice.records"],
        retry_timeout_ms=settings.errors.retry_timeout_ms,
        max_rows_per_s=limits["max.rows.per.second"] / settings.tasks_max or None,
        max_bytes_per_s=limits["max.bytes.per.second"] / settings.tasks_max or None,
        lag_alarm_records=None if limits["lag.alarm.records"] < 0 else limits["lag.alarm.records"],
        lag_alarm_ms=limits["lag.alarm.ms"],
        **delay,
    )
    for_client = {key: value for key, value in config.items() if key != _MAX_POLL_KEY}  # librdkafka does not have it
    consumer_config = services.clients.sink_consumer(task, for_client)
    isolation = str(consumer_config.get("isolation.level", "read_committed"))
    max_records = config.get(_MAX_POLL_KEY) or worker.originals.get("consumer.max.poll.records")
    return SinkSetup(
        task=task,
        plugin=plugin,
        version=connector.version,
        task_config={key: value for key, value in order.task_config.items() if value is not None},
        key_converter=_reading(plugins.converter("key", config, worker), fields=chain.reads("key")),
        value_converter=_reading(
            plugins.converter("value", config, worker), fields=plugin.reads_fields or not keeps_values(chain)
        ),
        header_converter=plugins.header_converter(config, worker),
        chain=chain,
        settings=settings,
        loop=loop,
        consumer_config=consumer_config,
        subscription=settings.topics or (_whole_name(settings.topics_regex or ""),),
        backlog_options={
            **services.clients.spark_kafka_options(task, config),
            "kafka.isolation.level": isolation,
        },
        max_poll_records=int(max_records or _MAX_POLL_RECORDS),
        dead_letter_config=(
            services.clients.dead_letter_producer(task, config) if settings.dead_letter_topic is not None else None
        ),
        admin_config=services.clients.admin(task.connector, config, f"connector-adminclient-{task}"),
        masked=services.providers.masked,
    )


def keeps_values(chain: Chain) -> bool:
    """True when values have the types that the sink wants of their topic: no transformation changes either."""
    return not (chain.reads("value") or chain.reads("topic"))


def _reading(converter: Converter, *, fields: bool) -> Converter:
    """With `fields` JSON without schemas is read as structs of what is in it: transformations need fields."""
    converter.infers_fields = fields
    return converter


def _whole_name(regex: str) -> str:
    """Java matches whole names; librdkafka takes a name that starts with ^ for an expression, and searches."""
    return f"^({regex.removeprefix('^').removesuffix('$')})$"
