"""The thread of one task instance: orders of the worker, a pure loop, and what carries out its effects.

It decides nothing: requests go to the loop's core as they come, and effects are carried out in their order. Between any
two effects it checks the worker's pulse: there the task of a frozen worker waits, and the task of a killed worker ends.
Mirrors the thread of Kafka Connect's WorkerTask.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from connectx.core import messages
from connectx.core.loops.messages import Answered, Asked, FailureKind, ReportFailed
from connectx.core.step import Step
from connectx.model.states import TargetState
from connectx.recording.kind import CoreKind, CoreT, SettingsT
from connectx.recording.ring import RecordedCore
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.plugin_names import TaskPlugins
from connectx.runtime.tasks.record_errors import RecordErrors
from connectx.runtime.tasks.services import TaskEffect, TaskServices, WorkerGone

if TYPE_CHECKING:
    from connectx.plugins.registry import Plugins

log = logging.getLogger(__name__)

StimulusT = TypeVar("StimulusT")
ActionT = TypeVar("ActionT")
ActionT_contra = TypeVar("ActionT_contra", contravariant=True)


class TaskCancelled(BaseException):
    """Raised inside a call that blocks when the task was cancelled; the loop's core then ends without commits."""


class World(Protocol[ActionT_contra]):
    """What carries out a loop's effects. The thread of the task calls all methods but `unblock` and `metrics`."""

    @property
    def abandoned(self) -> bool:
        """True once a stop has ended the task's wait for Spark's start, which fails the effect that waited."""

    def carry_out(self, effect: ActionT_contra) -> Any:
        """Do it and return its answer, None where it has none. Failures are answers, not exceptions."""

    def show(self, shown: Any) -> None:
        """Take over what a step shows to users."""

    def unblock(self) -> None:
        """From another thread: end what the task's thread waits for, because the task must end immediately."""

    def release(self) -> None:
        """The thread ends: close everything as it is. Does nothing after an orderly end."""

    def metrics(self) -> Mapping[str, object]:
        """Live numbers; from any thread, never blocks."""


class Runner(Generic[StimulusT, ActionT]):
    """One task instance (see `connectx.runtime.tasks.services.TaskRunner`). Subclasses define `set_up`.

    Args:
        order: the task and its configuration.
        services: what the worker offers.
        classes: of connectors and converters.

    `kind` is source or sink. `errors` counts what goes wrong with records, `plugins` and `recorded` are known once
    `set_up` has returned, `stopping` is done when the task is to stop.
    """

    kind: ClassVar[str]

    def __init__(self, order: messages.PrepareTask, services: TaskServices, classes: Plugins) -> None:
        self.order = order
        self.services = services
        self.classes = classes
        self._name = f"{self.kind} task {order.task}"
        self._commands: SimpleQueue[TaskEffect | None] = SimpleQueue()
        self._taken: deque[TaskEffect | None] = deque()
        self._killed = False
        self.stopping: Future[None] = Future()
        self._cancelled = False
        self._ended = False
        self.recorded: RecordedCore[Any] | None = None
        self._loop_ended = False
        self._world: World[ActionT] | None = None
        self.errors = RecordErrors(services.clock)
        self.plugins: TaskPlugins | None = None
        self._topics: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._run, name=f"{self.kind}-task-{order.task}", daemon=True)

    def init_producer(self) -> bool:
        """Carry out InitTaskProducer, which only exactly-once source tasks get; False when the task has failed."""
        raise TypeError(f"{type(self).__name__} must define init_producer")

    def set_up(self) -> tuple[RecordedCore[Any], World[ActionT], str | None]:
        """The loop, its world and the plugin's version; connects to nothing. Raises what makes the task fail."""
        raise TypeError(f"{type(self).__name__} must define set_up")

    def make_core(self, kind: CoreKind[SettingsT, CoreT], settings: SettingsT) -> RecordedCore[CoreT]:
        """Make the loop, whose latest steps its worker's recorder keeps."""
        return self.services.clients.recorder.part(kind, f"{self.services.worker}/{self.order.task}", settings)

    def start(self) -> None:
        """Start the thread: it makes the plugins and posts TaskPrepared or TaskFailed."""
        self._thread.start()

    def execute(self, effect: TaskEffect) -> None:
        """Queue an effect; a stop also ends a wait for Spark's start, a cancellation all that the thread waits for."""
        self._commands.put(effect)
        if isinstance(effect, messages.StopTask | messages.CancelTask):
            self._stop_waiting()
        if isinstance(effect, messages.CancelTask):
            self._cancelled = True
            self._unblock()
        if self._ended:
            self._answer_late()

    def kill(self) -> None:
        """End without a commit, a goodbye, or a report to the worker."""
        self._killed = True
        self._stop_waiting()
        self._unblock()
        self._commands.put(None)

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def metrics(self) -> Mapping[str, object]:
        """Live numbers of the task: those of its world, `topics` that it used, `retries` and `record_failures`.

        Values of placeholders are hidden in their texts.
        """
        if self._world is None:
            return {}
        masked = self.services.providers.masked
        shown = {name: masked(value) if type(value) is str else value for name, value in self._world.metrics().items()}
        counted = {"retries": self.errors.retries, "record_failures": self.errors.record_failures}
        return {**shown, **counted, "topics": sorted(self._topics)}

    def _stop_waiting(self) -> None:
        with suppress(InvalidStateError):  # reported before
            self.stopping.set_result(None)

    def _unblock(self) -> None:
        if self._world is not None:
            self._world.unblock()

    def stay_alive(self) -> None:
        """Between any two steps: wait while the worker is frozen, end when it was killed."""
        self.services.pulse()
        if self._killed:
            raise WorkerGone

    def checkpoint(self) -> None:
        """Inside calls that block: the same, and leave the call when the task was cancelled."""
        self.stay_alive()
        if self._cancelled:
            raise TaskCancelled

    @property
    def has_command(self) -> bool:
        """True when an order of the worker waits to be taken."""
        return bool(self._taken) or not self._commands.empty()

    def wait(self, timeout_s: float) -> bool:
        """Sleep until an order of the worker comes (True) or the time is over (False)."""
        if not self._taken:
            try:
                self._taken.append(self._commands.get(timeout=timeout_s))
            except Empty:
                self.stay_alive()
                return False
        self.stay_alive()
        return True

    def topic_used(self, topic: str) -> None:
        """Report a topic to the worker, once (KIP-558)."""
        if topic in self._topics:
            return
        self._topics |= {topic}
        if self.services.config.topic_tracking_enable:
            self.services.post(messages.TopicUsed(self.order.task, topic))

    def feed(self, stimulus: StimulusT) -> bool:
        """Hand the loop a stimulus that came in the middle of an effect, and carry out what it orders.

        False if the loop takes nothing from it, because it is late.
        """
        is_taken = True
        answer: Any = stimulus
        while answer is not None:
            step, answer = self._step(answer)
            is_taken = is_taken and (step.ignored is None or answer is not None)
        return is_taken

    def _run(self) -> None:
        try:
            if self._prepare():
                self._serve()
        except WorkerGone:
            log.debug("The %s ended with its worker", self._name)
        except BaseException as error:  # an invariant of this program is broken: the task must report it
            trace = trace_of(error)
            log.error("The %s has failed\n%s", self._name, trace)
            self.post_failure(trace)
        finally:
            if self._world is not None:
                self._world.release()
            self._ended = True
            self._answer_late()
            self.services.ended(self.order.task, self.order.instance)

    def _prepare(self) -> bool:
        try:
            self.recorded, self._world, version = self.set_up()
        except Exception as error:
            self.post_failure(trace_of(error))
            return False
        self.services.post(messages.TaskPrepared(self.order.task, self.order.instance, version))
        return True

    def _serve(self) -> None:
        """Run the loop until it ends: orders of the worker go in before the answer to an effect."""
        order, answer = self.order, None
        if order.target_state is TargetState.PAUSED:
            self._step(messages.SetTaskTargetState(order.task, order.instance, order.target_state))
        while not self._loop_ended:
            if answer is not None and not self.has_command:
                _, answer = self._step(answer)
            elif isinstance(command := self._next_command(), messages.InitTaskProducer):
                if not self.init_producer():
                    return
            else:
                _, ordered = self._step(command)
                answer = ordered or answer

    def _step(self, stimulus: Any) -> tuple[Step[Any], Any]:
        """One step of the core, and the answer to its last effect.

        If an effect before it fails, it is not carried out, and the failure is its answer.
        """
        assert self.recorded is not None, "prepared"
        assert self._world is not None, "prepared"
        step = self.recorded.handle(stimulus, self.services.clock())
        self._loop_ended |= any(isinstance(effect, messages.TaskStopped | ReportFailed) for effect in step.effects)
        if step.ignored is not None:
            log.debug("The %s ignores %s: %s", self._name, type(stimulus).__name__, step.ignored)
        for transition in step.transitions:
            self.services.record(transition)
        if step.shown is not None:
            self._world.show(step.shown)
        asked = step.effects[-1] if step.effects and isinstance(step.effects[-1], Asked) else None
        for effect in step.effects:
            self.stay_alive()
            answer = self._carry_out(self._world, effect)
            if answer is not None:
                return step, answer if asked is None else Answered(asked.number, answer)
        assert asked is None, f"{asked} has no answer"
        return step, None

    def _carry_out(self, world: World[ActionT], effect: Any) -> Any:
        order = self.order
        match effect:
            case Asked(_, action):
                return world.carry_out(action)
            case ReportFailed() if world.abandoned:  # not a failure: it was ordered to stop
                self.services.post(messages.TaskStopped(order.task, order.instance))
            case ReportFailed(error, kind, newer_epoch):
                self.errors.record_errors += kind is FailureKind.RECORD
                self.post_failure(error, fenced=kind is FailureKind.FENCED, newer_epoch=newer_epoch)
            case messages.TaskStateReached() | messages.TaskStopped():
                self.services.post(effect)
            case _:
                return world.carry_out(effect)
        return None

    def _next_command(self) -> TaskEffect:
        while True:
            command = self._taken.popleft() if self._taken else self._commands.get()
            self.stay_alive()
            if command is not None:
                return command

    def _answer_late(self) -> None:
        """A stop that came when the thread had ended, or was about to, is answered all the same."""
        while True:
            try:
                command = self._taken.popleft() if self._taken else self._commands.get_nowait()
            except Empty:
                return
            if isinstance(command, messages.StopTask | messages.CancelTask) and not self._killed:
                self.services.post(messages.TaskStopped(self.order.task, self.order.instance))

    def post_failure(self, trace: str, *, fenced: bool = False, newer_epoch: int | None = None) -> None:
        """Report to the worker that the task failed."""
        self.services.post(messages.TaskFailed(self.order.task, self.order.instance, trace, fenced, newer_epoch))
