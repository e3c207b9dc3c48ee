"""HttpSink: sends the records of topics to a web service, at least once.

Keys are those of Confluent's HTTP sink connector. Requests of a task go one after the other, so that records with the
same URL arrive in order. A put that fails in the middle continues where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from typing_extensions import override

from connectx.connectors.http.config import CONFIG, HttpSettings, problems
from connectx.connectors.http.errors import HttpError, HttpUnavailableError, RequestRefusedError
from connectx.connectors.http.requests import Plan, Request, plan
from connectx.errors.plugins import RecordRejectedError
from connectx.model.ids import TopicPartition
from connectx.model.places import Place, bare_url
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.contexts import SinkTaskContext
from connectx.plugins.slices import SinkBatch
from connectx.plugins.tasks import SinkTask
from connectx.version import VERSION

log = logging.getLogger(__name__)


class HttpSink(SinkConnector):
    """Sends records to a web service, at least once."""

    summary = "requests to a web service; keys of Confluent's HTTP sink"
    java_class = "io.confluent.connect.http.HttpSinkConnector"
    version = VERSION
    config = CONFIG

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        url = bare_url(config.get("http.api.url") or "")
        return [Place(f"web service {url.replace('${topic}', topic)}") for topic in topics if url]

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """A login is complete, headers can be sent, and statuses mean one thing."""
        return problems(config)

    class Task(SinkTask):
        """One client; every put is a row of requests."""

        def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
            super().start(config, context)
            self._settings = HttpSettings.of(config)
            self._tolerates = config.get("errors.tolerance") == "all"
            from connectx.connectors.http.client import HttpTarget  # httpx: only tasks need it

            self._target = HttpTarget(self._settings)
            self._failures = 0
            self._is_cancelled = False
            self._begin({})

        def put(self, batch: SinkBatch) -> None:
            """Send the requests that this batch still needs, then report refused records.

            Raises:
                HttpUnavailableError: try again later.
                RecordRejectedError: a record is refused, with errors.tolerance=none.
                ConversionError: values of a type that JSON does not have.
                HttpError: the target accepts no such request, or could not be used max.retries times.
            """
            if batch.ranges != self._ranges:
                made = plan(batch.rows, next(iter(batch.ranges)).topic, self._settings)
                self._begin(batch.ranges)
                self._take_up(made)
            while self._requests:
                self._send(self._requests[-1])
            for partition, offset, cause in sorted(self._refused):
                self._report(partition, offset, cause)
            self._begin({})

        def cancel(self) -> None:
            """Send nothing after the request that runs, which ends within http.request.timeout.ms."""
            self._is_cancelled = True

        def stop(self) -> None:
            self._target.close()

        def abandon(self) -> None:
            self._target.close()

        def _begin(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
            """Forget the former put."""
            self._ranges = dict(ranges)
            self._requests: list[Request] = []
            """Still to be sent; the next one is the last."""
            self._refused: list[tuple[TopicPartition, int, str]] = []

        def _take_up(self, made: Plan) -> None:
            if self._settings.on_null == "log":
                for partition, offset in made.ignored:
                    log.info("%s ignores the record at offset %d of %s: no value", self.context.task, offset, partition)
            self._requests = made.requests[::-1]
            for refused in made.refused:
                self._refuse(*refused)

        def _send(self, request: Request) -> None:
            if self._is_cancelled:
                raise HttpUnavailableError(
                    "The task was cancelled before it sent all records.",
                    next_step="It sends them after its start.",
                )
            try:
                self._target.send(request)
            except RequestRefusedError as refused:
                self._requests.pop()
                if len(request.offsets) > 1:
                    self._requests += request.halves()[::-1]
                else:
                    self._refuse(request.partition, request.offsets[0], f"it {refused.message}.")
            except HttpUnavailableError as error:
                self._count(error)
                raise
            else:
                self._requests.pop()
            self._failures = 0

        def _refuse(self, partition: TopicPartition, offset: int, cause: str) -> None:
            """With errors.tolerance=all reports wait for the end of the put, which may be tried again before."""
            if not self._tolerates:
                self._report(partition, offset, cause)
            self._refused.append((partition, offset, cause))

        def _report(self, partition: TopicPartition, offset: int, cause: str) -> None:
            error = RecordRejectedError(str(partition), offset, self._settings.place, cause)
            self.context.report(partition, offset, error)

        def _count(self, error: HttpUnavailableError) -> None:
            """Ask for a pause, or end the retries."""
            settings = self._settings
            self._failures += 1
            if 0 <= settings.max_retries < self._failures:
                raise HttpError(
                    f"{error.message} It was tried {self._failures} times (max.retries={settings.max_retries}).",
                    next_step="Restart the task when the target can be used again, or raise max.retries.",
                ) from error
            pause_ms = min(settings.backoff_ms * 2 ** min(self._failures - 1, 20), settings.delay_max_ms)
            self.context.timeout(max(pause_ms, error.retry_after_ms))
