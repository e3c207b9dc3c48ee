"""`cx.read_topic`: the records of a topic as a data frame, to look at what connectors and workers wrote.

Decides only how records are shown; what is read, and up to where, is `connectx.kafka.topic_snapshot`'s. It is no
consumer of anything: it joins no group and commits nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from connectx.connectors.plugins import worker_config
from connectx.kafka.clients import ClientConfigs
from connectx.kafka.topic_snapshot import take_snapshot
from connectx.model.worker_config import own_kafka_config

if TYPE_CHECKING:
    import pandas as pd


def read_topic(topic: str, bootstrap_servers: str, *, config: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """All committed records of a topic up to now, in order within each partition.

    Columns: `partition`, `offset` (int64), `time` (timestamp, UTC), `key`, `value` (text, None for null). Records of
    aborted and open transactions are not there. `config` are settings of the client by Kafka Connect's worker keys, for
    example security. Internal topics are shown as they are: the config topic holds the workers' session key.

    Raises:
        TopicMissingError, TopicUnreadableError, Kafka*Error: as they say.
    """
    import pandas as pd

    worker = worker_config(own_kafka_config({**(config or {}), "bootstrap.servers": bootstrap_servers}))
    snapshot = take_snapshot(ClientConfigs(worker, "read"), topic)
    messages = [message for chunk in snapshot.read() for message in chunk]
    messages.sort(key=lambda message: (message.partition() or 0, message.offset() or 0))
    table = pd.DataFrame(
        {
            "partition": pd.Series([message.partition() for message in messages], dtype="int64"),
            "offset": pd.Series([message.offset() for message in messages], dtype="int64"),
            "time": pd.Series([message.timestamp()[1] for message in messages], dtype="int64"),
            "key": pd.Series([_text(message.key()) for message in messages], dtype=object),
            "value": pd.Series([_text(message.value()) for message in messages], dtype=object),
        }
    )
    table["time"] = pd.to_datetime(table["time"], unit="ms", utc=True)
    return table


def _text(data: str | bytes | None) -> str | None:
    return data.decode(errors="replace") if isinstance(data, bytes) else data
