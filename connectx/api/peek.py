"""Shows data: the newest records of a topic, the last rows of a target, the dead letters of a sink.

Its consumer belongs to no group and commits nothing. Only `DeadLetters.send_again` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connectx.data_frames import text_column, time_column
from connectx.errors.base import ConnectxError
from connectx.errors.checks import PeekError
from connectx.errors.kafka import TopicMissingError
from connectx.errors.rest import ConnectorNotFoundError
from connectx.extras import require
from connectx.history.render.frame import clock_time
from connectx.kafka.admin.topic_snapshot import TopicSnapshot, take_snapshot
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TaskId
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.settings import sink_connector_settings
from connectx.values import Value
from connectx.views import Form, Listed, Shown, masked_text

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.registry import Plugins
    from connectx.rest.client import RestClient

ERRORS = "__connect.errors."
"""Prefix of the headers that a sink adds to a dead letter (`errors.deadletterqueue.context.headers.enable`)."""
_MARKERS = 2
"""Offsets to read for each record: each may be a transaction, whose end takes an offset, too."""
_CHARS = 200
_SEND_S = 30.0

Correct = Callable[["bytes | None"], "bytes | None"]
Send = Callable[["Sequence[Record]"], None]


class Record(Shown, Value):
    """One record of a topic.

    Attributes:
        key, value: as the converters read them; as text where they cannot.
        headers: names to texts; of several headers of a name the last one.
        raw_key, raw_value: the bytes.
        error: why the converters cannot read it, otherwise empty.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int | None
    key: Any
    value: Any
    headers: Mapping[str, str]
    raw_key: bytes | None
    raw_value: bytes | None
    error: str = ""

    @property
    def reason(self) -> str:
        """Context that the sink wrote into the headers of a dead letter."""
        return self.headers.get(f"{ERRORS}exception.message", "")

    def _shown(self) -> Form:
        return Form(f"Record of {self.topic}", self.row())

    def row(self) -> dict[str, object]:
        """One line of a table of records."""
        headers = {name: text for name, text in self.headers.items() if not name.startswith(ERRORS)}
        shown = {
            "partition": self.partition,
            "offset": self.offset,
            "time (UTC)": "" if self.time_ms is None else clock_time(self.time_ms),
            "key": short_text(self.key),
            "value": short_text(self.value),
            "headers": short_text(", ".join(f"{name}={text}" for name, text in headers.items())),
        }
        return {**shown, "reason": short_text(self.reason or self.error)} if self.reason or self.error else shown


class Records(Listed[Record]):
    """Records of a topic, oldest first."""

    def to_pandas(self) -> pd.DataFrame:
        """Columns `partition`, `offset`, `time` (UTC), `key`, `value`, `headers`, `reason`; values as read."""
        require("A data frame of records", "notebook", "pandas")
        import pandas as pd

        return pd.DataFrame(
            {
                "partition": pd.Series([each.partition for each in self], dtype="int64"),
                "offset": pd.Series([each.offset for each in self], dtype="int64"),
                "time": time_column(each.time_ms for each in self),
                "key": pd.Series([each.key for each in self], dtype=object),
                "value": pd.Series([each.value for each in self], dtype=object),
                "headers": pd.Series([dict(each.headers) for each in self], dtype=object),
                "reason": text_column(each.reason or each.error for each in self),
            }
        )


class DeadLetters(Records):
    """Dead letters of a sink, oldest first. Get them by `cluster.dead_letters(name)`."""

    def __init__(self, items: Sequence[Record], sink: str, topic: str, send: Send) -> None:
        super().__init__(items, f"dead letters of {sink} in {topic}")
        self._sink, self._topic = sink, topic
        self._send = send

    def only(self, partition: int, offset: int) -> DeadLetters:
        """The one letter at this place of the queue, to send it again alone.

        Raises:
            PeekError: none of these letters exists.
        """
        found = [one for one in self if (one.partition, one.offset) == (partition, offset)]
        if not found:
            raise PeekError(
                f"There is no dead letter at offset {offset} of {self._topic}-{partition} among these {len(self)}.",
                next_step="Ask for more with cluster.dead_letters(name, rows).",
            )
        return DeadLetters(found, self._sink, self._topic, self._send)

    def send_again(self, correct: Correct | None = None) -> int:
        """Send the records to the topics that they came from, without the headers of errors; returns how many.

        `correct` is called with each value (bytes) and returns the new one. The dead letters stay in their queue: a
        second call sends them again. Keys and other headers stay as they are.

        Raises:
            PeekError: a record does not name the topic that it came from, or Kafka does not acknowledge it.
            ProducerError, RecordRefusedError and other errors of Kafka: see their docstrings.
        """
        letters = [one if correct is None else replace(one, raw_value=correct(one.raw_value)) for one in self]
        if letters:
            self._send(letters)
        return len(letters)


class Peeker(Value):
    """Reads the data of one cluster."""

    client: RestClient
    plugins: Plugins
    config: WorkerConfig

    @property
    def _clients(self) -> ClientConfigs:
        return ClientConfigs(self.config, "peek", self.config.bootstrap_servers)

    def peek(self, name: str, rows: int, where: Callable[[Any], bool] | None) -> Listed[Any]:
        """The last `rows` of a topic, or of a connector: the topic of a source, the target of a sink."""
        try:
            config = self._resolved(name)
        except ConnectorNotFoundError:
            return Records(self._records(name, rows, where), f"newest records of topic {name}")
        if not issubclass(self.plugins.connector_class(config.get("connector.class") or ""), SinkConnector):
            topics = self.client.topics(name) or [config.get("topic") or name]
            return Records(self._records(topics[0], rows, where), f"newest records of topic {topics[0]}")
        return self._rows(name, config, rows, where)

    def dead_letters(self, sink: str, rows: int) -> DeadLetters:
        """The newest dead letters of a sink."""
        config = self._resolved(sink)
        if not (config.get("topics") or config.get("topics.regex")):
            raise PeekError(f"The connector {sink} is not a sink.", next_step="Name a sink with a dead letter queue.")
        settings = sink_connector_settings(config)
        if settings.dead_letter_topic is None:
            raise PeekError(
                f"The connector {sink} has no dead letter queue.",
                next_step="Set errors.tolerance=all and errors.deadletterqueue.topic.name.",
            )
        topic = settings.dead_letter_topic
        try:
            found = self._records(topic, rows, None)
        except TopicMissingError:  # no task has started yet
            found = []
        only = settings.topics[0] if len(settings.topics) == 1 else None
        return DeadLetters(found, sink, topic, lambda letters: self._send(sink, letters, only))

    def _records(self, topic: str, rows: int, where: Callable[[Any], bool] | None) -> list[Record]:
        import pyarrow as pa

        chunks = list(newest(take_snapshot(self._clients, topic), rows if where is None else None).read())
        if not chunks or not rows:
            return []
        table = pa.concat_tables(chunks, promote_options="default")
        table = table.sort_by([(name, "ascending") for name in ("timestamp", "partition", "offset")])
        if where is None:
            table = table.slice(max(0, table.num_rows - rows))
        return [record for record in self._decoded(topic, table) if where is None or where(record)][-rows:]

    def _decoded(self, topic: str, table: pa.Table) -> Iterator[Record]:
        from connectx.data.converters import decode

        config = self._user_of(topic)
        key = self.plugins.converter("key", config, self.config)
        value = self.plugins.converter("value", config, self.config)
        key.infers_fields = value.infers_fields = True
        try:
            read = decode(table, key, value)
            columns = [read[column].to_pylist() for column in ("key", "value", "error")]
        except ConnectxError as error:  # schemas of one batch that no one type can hold
            columns = [[None] * table.num_rows, [None] * table.num_rows, [error.message] * table.num_rows]
        for row, one_key, one_value, problem in zip(table.to_pylist(), *columns, strict=True):
            yield Record(
                topic,
                row["partition"],
                row["offset"],
                row["timestamp"],
                _text(row["key"]) if problem else one_key,
                _text(row["value"]) if problem else one_value,
                {header["key"]: _text(header["value"]) or "" for header in row["headers"] or ()},
                row["key"],
                row["value"],
                problem or "",
            )

    def _user_of(self, topic: str) -> Mapping[str, str | None]:
        """Configuration of a connector that has used the topic; empty: the worker's converters are used."""
        for name in self.client.connectors():
            if topic in self.client.topics(name):
                return self._resolved(name)
        return {}

    def _rows(
        self, sink: str, config: Mapping[str, str | None], rows: int, where: Callable[[Any], bool] | None
    ) -> Listed[Any]:
        cls = self.plugins.connector_class(config.get("connector.class") or "")
        assert issubclass(cls, SinkConnector), "only sinks have targets"
        topics = sink_connector_settings(config).topics or tuple(self.client.topics(sink))
        stored = next(filter(None, (cls.stored(config, topic) for topic in topics)), None)
        if stored is None:
            raise PeekError(f"The connector {sink} cannot read its target.", next_step="Read the target yourself.")
        found: list[dict[str, Any]] = []
        for table in stored.read():
            part = table.to_pylist() if where is not None else table.slice(max(0, table.num_rows - rows)).to_pylist()
            found = [*found, *(row for row in part if where is None or where(row))][-rows:] if rows else []
        return Listed(found, f"last rows of {stored.place}")

    def _resolved(self, connector: str) -> Mapping[str, str | None]:
        return self.plugins.providers(self.config).resolve(self.client.config(connector))

    def _send(self, sink: str, letters: Sequence[Record], only: str | None) -> None:
        import pyarrow as pa

        from connectx.data.headers import HEADERS
        from connectx.kafka.producer.producer import KafkaProducer

        topics = [letter.headers.get(f"{ERRORS}topic", only) for letter in letters]
        if None in topics:
            raise PeekError(
                f"Dead letters of {sink} do not name the topic that they came from.",
                next_step="Set errors.deadletterqueue.context.headers.enable=true; send these records yourself.",
            )
        headers = [
            [{"key": key, "value": text.encode()} for key, text in letter.headers.items() if not key.startswith(ERRORS)]
            for letter in letters
        ]
        table = pa.table(
            {
                "topic": pa.array(topics, pa.string()),
                "key": pa.array([letter.raw_key for letter in letters], pa.binary()),
                "value": pa.array([letter.raw_value for letter in letters], pa.binary()),
                "headers": pa.array(headers, HEADERS),
            }
        )
        config = self._clients.dead_letter_producer(TaskId(sink, 0), self._resolved(sink))
        producer = KafkaProducer(config, checkpoint=lambda: None)
        producer.init()
        try:
            producer.send(table, None)
            if not producer.flush(_SEND_S):
                raise PeekError(
                    f"Kafka did not acknowledge all of the records within {_SEND_S:g} s.",
                    next_step="Check the brokers, and see with cluster.peek() what arrived.",
                )
        finally:
            producer.close(0)


def newest(snapshot: TopicSnapshot, rows: int | None) -> TopicSnapshot:
    """The part of a topic that holds its newest records, at least that many of each partition; None: all of it."""
    if rows is None:
        return snapshot
    starts = {
        partition: max(snapshot.starts[partition], end - rows * _MARKERS) for partition, end in snapshot.ends.items()
    }
    return replace(snapshot, starts=starts)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def short_text(value: object) -> str:
    """A value as a cell shows it: masked, and cut after 200 characters."""
    text = "" if value is None else masked_text(str(value))
    return text if len(text) <= _CHARS else f"{text[: _CHARS - 1]}…"
