"""Interfaces between the worker's driver and its task runners.

A runner owns one task instance: its thread, its Kafka clients, its Spark session. The worker's mailbox thread hands
it effects, which it takes without blocking; it answers with stimuli through `post`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from connectx.core.messages import (
    BeginTask,
    CancelTask,
    InitTaskProducer,
    PrepareTask,
    SetTaskTargetState,
    Stimulus,
    StopTask,
)
from connectx.errors.plugins import PluginNotFoundError
from connectx.model.clock import Clock
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.config_providers import ConfigProviders
from connectx.recording.ring import RecordedCore
from connectx.runtime.plugin_search import unknown_here
from connectx.runtime.tasks.plugin_names import TaskPlugins
from connectx.runtime.tasks.record_errors import RecordErrors
from connectx.values import Value

if TYPE_CHECKING:
    from connectx.kafka.settings.clients import ClientConfigs
    from connectx.spark.slices import SparkSessions

TaskEffect = InitTaskProducer | BeginTask | SetTaskTargetState | StopTask | CancelTask

T = TypeVar("T")


class WorkerGone(BaseException):
    """Raised inside a runner's thread when its worker was killed: end without commit, abort or goodbye.

    A BaseException so that no connector swallows it.
    """


class OffsetReader(Protocol):
    """Reads committed source offsets (the worker's offsets topic)."""

    def read(
        self, connector: str, partitions: list[SourcePartition], *, cancel: threading.Event | None = None
    ) -> list[SourceOffset | None]:
        """Read the offsets topic to its end (read_committed), then look up. Blocks until done or `cancel` is set.

        Raises ConnectxError on failure.
        """


class TaskServices(Value):
    """What a runner may use of its worker.

    Attributes:
        worker: the worker's name; client ids start with it and a slash, by which the gate recognises it.
        config: the worker's configuration.
        clients: builds client configurations (bootstrap servers, security, layers of overrides).
        spark: starts or borrows Spark; a runner takes a separate session when it first needs one.
        offsets: committed source offsets.
        post: puts a stimulus into the worker's mailbox, which hides values of placeholders in its errors; never blocks.
        record: puts a transition into the history, with these values hidden; never blocks.
        clock: the worker's clock.
        pulse: call between any two effects: waits while the worker is frozen, raises WorkerGone when it was killed.
        providers: resolve placeholders in configurations, and hide their values.
        place: this worker's place in the group (`connectx.core.verbs`, *worker*).
        ended: the last thing that a runner's thread calls, with task and instance: it uses nothing any more.
    """

    worker: str
    config: WorkerConfig
    clients: ClientConfigs
    spark: SparkSessions
    offsets: OffsetReader
    post: Callable[[Stimulus], None]
    record: Callable[[Transition], object]
    clock: Clock
    pulse: Callable[[], None]
    place: Callable[[], Mapping[str, Any]]
    ended: Callable[[TaskId, int], None]
    providers: ConfigProviders = field(default_factory=lambda: ConfigProviders({}, lambda path: (None, "")))

    def created(self, create: Callable[[Mapping[str, str | None]], T], config: Mapping[str, str | None]) -> T:
        """What `create` makes of a connector's configuration.

        Raises:
            PluginNotFoundError: its class is unknown here; names the workers that have it.
        """
        try:
            return create(config)
        except PluginNotFoundError as error:
            raise unknown_here(error, config, self.place(), self.config) from error

    def resolved(self, order: PrepareTask) -> PrepareTask:
        """A task's order with its configurations resolved.

        Raises:
            ConfigProviderError: a provider cannot read what a placeholder names.
        """
        return replace(
            order,
            connector_config=self.providers.resolve(order.connector_config),
            task_config=self.providers.resolve(order.task_config),
        )


class TaskRunner(Protocol):
    """One task instance of a worker. Created by PrepareTask; the constructor starts nothing."""

    errors: RecordErrors
    plugins: TaskPlugins | None
    recorded: RecordedCore[Any] | None

    def start(self) -> None:
        """Start the thread; it instantiates and validates the plugins, then posts TaskPrepared or TaskFailed."""

    def execute(self, effect: TaskEffect) -> None:
        """Queue an effect for the thread; CancelTask also acts immediately, on the caller's thread."""

    def kill(self) -> None:
        """A fault: end without commit, abort or goodbye; interrupt Spark; drop clients. Does not wait."""

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; True when it has ended."""

    def metrics(self) -> Mapping[str, object]:
        """Live numbers for panels: records, bytes, lag, last source offset. Never blocks."""
