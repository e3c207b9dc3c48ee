"""Reads partitions into Arrow tables, from offsets that the caller names; it belongs to no consumer group.

The core (`connectx.core.fetcher`) decides. This class sends requests on the thread of a KafkaNet that `start` starts
and `close` ends, keeps answers until they are taken, and decodes them on the caller's thread. Calls come from one
thread, but for `abandon`, which any thread may call.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import pyarrow as pa
from typing_extensions import override

from connectx.core.clients.messages import SendRequest
from connectx.core.fetcher import errors
from connectx.core.fetcher import messages as msg
from connectx.core.fetcher.fetcher import FetcherCore
from connectx.errors.base import ConnectxError
from connectx.errors.kafka import (
    KafkaLoginError,
    KafkaPermissionError,
    KafkaRequestError,
    OffsetOutOfRangeError,
    RecordBatchError,
)
from connectx.kafka.core_client import CoreClient, connection_settings
from connectx.kafka.fetcher.chunks import Chunk, take_rows
from connectx.kafka.fetcher.requests import FetcherRequests, Reply
from connectx.kafka.net import AUTHENTICATION_ERRORS, KafkaNet
from connectx.kafka.settings.fetcher_options import fetcher_options
from connectx.model.ids import TopicPartition
from connectx.recording.clients import FETCHER
from connectx.recording.recorder import Recorder
from connectx.values import Value

_log = logging.getLogger(__name__)

_FORBIDDEN: Final = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
_CAUSES: Final = {
    errors.OUT_OF_RANGE: "Broker: Offset out of range",
    errors.TRUNCATED: "the log was truncated",
}


class FetchedRecords(Value):
    """Records of one poll.

    `rows` has the columns topic (string), partition (int32), offset (int64), timestamp (int64, ms since 1970 or null),
    key and value (binary), headers (list of key, value). `ranges` holds per partition the first offset and the one
    after what was read; `ends` the latter for partitions of which everything fetched so far was read. Offsets after
    what was read lie after transaction markers, too.
    """

    rows: pa.Table
    ranges: Mapping[TopicPartition, tuple[int, int]]
    ends: Mapping[TopicPartition, int]


class RecordFetcher(CoreClient[FetcherCore]):
    """Fetches partitions in the background and hands out their records.

    Args:
        config: settings of a consumer in librdkafka's spelling, as `ClientConfigs` makes them.
        recorder: keeps the latest steps of its core.
    """

    def __init__(self, config: Mapping[str, Any], recorder: Recorder | None = None) -> None:
        super().__init__(config, recorder)
        self._options = fetcher_options(config)
        self._make_core(FETCHER, self._options.core)
        self._trouble = ""
        self.interruptions = 0
        """How often an attempt to fetch has failed. Until the next one a topic may have been created again."""
        self._ready: deque[Chunk | msg.FetchFailed] = deque()
        self._ends: dict[TopicPartition, int] = {}

    def start(self) -> None:
        """Start the network thread; nothing is fetched yet.

        Raises:
            ClientSettingError: a security setting cannot be used.
        """
        net = KafkaNet(connection_settings(self._config, self._options))
        self._requests = FetcherRequests(net, self._options, self._report)
        self._start(net)

    @property
    def trouble(self) -> str | None:
        """Why the last attempt to fetch failed; None after one that succeeded."""
        return self._trouble or None

    def fetch_from(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, or continue there if they are read already."""
        self._drop(offsets)
        self._take(msg.FetchFrom(dict(offsets)))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = tuple(partitions)
        self._drop(gone)
        self._take(msg.Forget(gone))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Read nothing of these until they are resumed."""
        paused = tuple(partitions)
        self._drop(paused)
        self._take(msg.Pause(paused))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these again, from where `poll` has come."""
        self._take(msg.Resume(tuple(partitions)))

    def poll(self, timeout_s: float, max_records: int) -> FetchedRecords | None:
        """Wait for the first records, then take what is there; None when the time is over.

        Raises:
            OffsetOutOfRangeError: the log no longer (or not yet) has the position.
            KafkaPermissionError: no ACL for a topic.
            KafkaLoginError: Kafka does not accept the credentials.
            KafkaRequestError: a partition cannot be read for another reason.
            RecordBatchError: a batch cannot be read. Records before it were returned. Each call raises this again
                until `fetch_from`, `pause` or `forget` names the partition, as in Java.
        """
        with self._changed:
            self._changed.wait_for(lambda: bool(self._ready) or self._crash is not None, timeout_s)
        if self._crash is not None:
            raise self._typed(self._crash)
        if not self._ready or max_records < 1:
            return None
        if isinstance(failed := self._ready[0], msg.FetchFailed):
            if failed.error != errors.BAD_BATCH:  # that stays until the partition is read from elsewhere
                self._ready.popleft()
            raise _failure(failed)
        chunks = itertools.takewhile(lambda item: isinstance(item, Chunk), tuple(self._ready))
        return self._fetched(*take_rows(cast(Iterator[Chunk], chunks), max_records))

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks of the latest answers; asks no broker."""
        return {partition: self._ends[partition] for partition in partitions if partition in self._ends}

    def close(self) -> None:
        net, self._net = self._net, None
        if net is not None:
            net.close()

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        dropped = set(partitions)
        with self._changed:
            self._ready = deque(item for item in self._ready if item.target not in dropped)

    def _fetched(self, rows: pa.Table, taken: Sequence[tuple[Chunk, int | None]]) -> FetchedRecords:
        """Note what was taken of chunks, and free those that are empty."""
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        ends: dict[TopicPartition, int] = {}
        sizes: dict[TopicPartition, int] = {}
        with self._changed:
            for chunk, first in taken:
                target = chunk.target
                if target in ranges or first is not None:
                    ranges[target] = ranges.get(target, (first or 0, 0))[0], chunk.position
                ends[target] = chunk.position
                sizes[target] = sizes.get(target, 0)
                if chunk.is_empty and self._ready and self._ready[0] is chunk:
                    self._ready.popleft()
                    sizes[target] += chunk.size_bytes
            last = taken[-1][0]
            self._take(msg.Taken({target: (ends[target], size_bytes) for target, size_bytes in sizes.items()}))
        if not last.is_empty:
            del ends[last.target]
        return FetchedRecords(rows, ranges, ends)

    @override
    def _stimulus(self, cause: Reply | msg.FetcherStimulus) -> msg.FetcherStimulus:
        if not isinstance(cause, Reply):
            return cause
        self._ends |= cause.ends
        return cause.stimulus

    @override
    def _show(self, shown: str) -> None:
        if shown and shown != self._trouble:
            self.interruptions += 1
        self._trouble = shown

    @override
    def _carry_out(self, effect: msg.FetcherEffect, cause: Reply | msg.FetcherStimulus) -> None:
        match effect:
            case SendRequest():
                self._tasks.spawn(self._requests.carry_out, effect)
            case msg.BufferRecords(target, _):
                assert isinstance(cause, Reply), "only an answer brings records"
                self._ready.append(cause.chunks[target])
            case msg.FetchFailed():
                self._ready.append(effect)

    def _typed(self, error: Exception) -> ConnectxError:
        if isinstance(error, ConnectxError):
            return error
        if isinstance(error, AUTHENTICATION_ERRORS):
            return KafkaLoginError(str(self._config["bootstrap.servers"]), str(error))
        return KafkaRequestError("read records", repr(error), next_step="Restart the task, and report this.")


def _failure(failed: msg.FetchFailed) -> ConnectxError:
    if failed.error in _CAUSES:
        cause = f"{_CAUSES[failed.error]}: {failed.message}" if failed.message else _CAUSES[failed.error]
        return OffsetOutOfRangeError(str(failed.target), failed.offset, cause)
    if failed.error == errors.BAD_BATCH:
        return RecordBatchError(str(failed.target), failed.offset, failed.message)
    if failed.error in _FORBIDDEN:
        return KafkaPermissionError(f"read {failed.target.topic}", failed.error)
    return KafkaRequestError(
        f"read {failed.target}", failed.error, next_step="Check the topic and the brokers, then restart the task."
    )
