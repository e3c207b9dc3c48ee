"""`cx.read_topic`: the records of a topic as a data frame.

Decides only how records are shown; `connectx.kafka.admin.topic_snapshot` decides what is read, and up to which offset.
It joins no group and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from connectx.data_frames import text_column, time_column
from connectx.errors.kafka import TopicMissingError
from connectx.errors.rest import WaitTimeoutError
from connectx.extras import require
from connectx.kafka.admin.topic_snapshot import take_snapshot
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.worker_config import own_kafka_config
from connectx.plugins.registry import worker_config

if TYPE_CHECKING:
    import pandas as pd


_PAUSE_S = 0.2


def read_topic(
    topic: str,
    bootstrap_servers: str,
    *,
    at_least: int = 0,
    timeout: float = 60.0,
    config: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """All committed records of a topic up to now, in order within each partition.

    Columns: `partition`, `offset` (int64), `time` (timestamp, UTC), `key`, `value` (text, None for null). Records of
    aborted and open transactions are not there. Internal topics are shown as they are: the config topic holds the
    workers' session key.

    Args:
        at_least: wait until there are so many records (and the topic), `timeout` seconds at most.
        config: settings of the client by Kafka Connect's worker keys, for example security.

    Raises:
        WaitTimeoutError: fewer than `at_least` records have come.
        TopicMissingError, TopicUnreadableError, Kafka*Error: see their docstrings.
    """
    require("A data frame of records", "notebook", "pandas")
    import pandas as pd

    worker = worker_config(own_kafka_config({**(config or {}), "bootstrap.servers": bootstrap_servers}))
    clients, deadline = ClientConfigs(worker, "read"), time.monotonic() + timeout
    records = _records(clients, topic, wait=at_least > 0)
    while len(records) < at_least:
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(
                f"Topic {topic} has {len(records):,} records and not {at_least:,} after {timeout:g} s.",
                next_step="Wait longer with timeout=, or see cluster.events for what happened.",
            )
        time.sleep(_PAUSE_S)
        records = _records(clients, topic, wait=True)
    return pd.DataFrame(
        {
            "partition": pd.Series([record["partition"] for record in records], dtype="int64"),
            "offset": pd.Series([record["offset"] for record in records], dtype="int64"),
            "time": time_column(record["timestamp"] for record in records),
            "key": text_column(_text(record["key"]) for record in records),
            "value": text_column(_text(record["value"]) for record in records),
        }
    )


def _records(clients: ClientConfigs, topic: str, *, wait: bool) -> list[dict[str, Any]]:
    try:
        records = [record for chunk in take_snapshot(clients, topic).read() for record in chunk.to_pylist()]
    except TopicMissingError:
        if not wait:
            raise
        return []
    return sorted(records, key=itemgetter("partition", "offset"))


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
