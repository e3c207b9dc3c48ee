"""Runs one source task: its thread, producer and Spark session, around the pure loop of `connectx.core.source_task`.

It decides nothing about offsets or transactions: the core orders, this carries out and reports. Mirrors the thread of
Kafka Connect's AbstractWorkerSourceTask. Between any two effects the worker's pulse is felt: a frozen worker's task
stands still there, and a killed worker's ends.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from connectx.core.messages import (
    BeginTask,
    CancelTask,
    InitTaskProducer,
    PrepareTask,
    SetTaskTargetState,
    StopTask,
    TaskFailed,
    TaskPrepared,
    TaskProducerReady,
    TaskStateReached,
    TaskStopped,
    TopicUsed,
)
from connectx.core.source_messages import (
    Begin,
    CancelRequested,
    PauseRequested,
    ProducerReady,
    ReportFailed,
    ReportState,
    ReportStopped,
    ResumeRequested,
    SourceEffect,
    SourceRequest,
    SourceStimulus,
    StopRequested,
)
from connectx.core.source_task import Phase, SourceTaskCore
from connectx.errors import ProducerFencedError
from connectx.model.states import TargetState
from connectx.runtime.connector_host import trace_of
from connectx.runtime.mailbox import now_ms
from connectx.runtime.source_effects import SourceEffects, TaskCancelled
from connectx.runtime.source_setup import set_up
from connectx.runtime.task import TaskEffect, TaskServices, WorkerGone

if TYPE_CHECKING:
    from connectx.connectors.plugins import Plugins

log = logging.getLogger(__name__)

_Command = TaskEffect | None  # None wakes a thread whose worker was killed


class SourceRunner:
    """One instance of a source task (see `connectx.runtime.task.TaskRunner`).

    Args:
        order: the task and its configuration.
        services: what the worker offers.
        plugins: connector and converter classes.
    """

    def __init__(self, order: PrepareTask, services: TaskServices, plugins: Plugins) -> None:
        self._order = order
        self._services = services
        self._plugins = plugins
        self._commands: SimpleQueue[_Command] = SimpleQueue()
        self._taken: deque[_Command] = deque()
        self._killed = False
        self._cancelled = False
        self._ended = False
        self._paused = order.target_state is TargetState.PAUSED
        self._core: SourceTaskCore | None = None
        self._effects: SourceEffects | None = None
        self._thread = threading.Thread(target=self._run, name=f"source-task-{order.task}", daemon=True)

    # ------------------------------------------------------------------------- called by the worker, never blocking

    def start(self) -> None:
        """Start the thread: it makes the plugins and posts TaskPrepared or TaskFailed."""
        self._thread.start()

    def execute(self, effect: TaskEffect) -> None:
        """Queue an effect; a cancellation also ends what the thread is blocked in."""
        self._commands.put(effect)
        if isinstance(effect, CancelTask):
            self._cancelled = True
            self._unblock()
        if self._ended:
            self._answer_late()

    def kill(self) -> None:
        """End at once: no commit, no abort, no word to the worker."""
        self._killed = True
        self._unblock()
        self._commands.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; True when it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def facts(self) -> Mapping[str, object]:
        """Live numbers: records, bytes, slices, transactions, source_offset, and more once the task works."""
        return {} if self._effects is None else dict(self._effects.facts)

    def _unblock(self) -> None:
        if self._effects is not None:
            self._effects.unblock()

    # ---------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            if self._prepare():
                self._serve()
        except WorkerGone:
            log.debug("The source task %s ended with its worker", self._order.task)
        except BaseException as error:  # an invariant of this program is broken: the task has to say so
            log.exception("The source task %s has failed", self._order.task)
            self._post_failure(trace_of(error))
        finally:
            if self._effects is not None:
                self._effects.release()
            self._ended = True
            self._answer_late()

    def _prepare(self) -> bool:
        order = self._order
        try:
            setup = set_up(order, self._services, self._plugins)
            self._effects = SourceEffects(setup, self._services, self._checkpoint, self._wait, self._topic_used)
        except WorkerGone:
            raise
        except Exception as error:
            self._post_failure(trace_of(error))
            return False
        self._core = SourceTaskCore(setup.loop)
        self._services.post(TaskPrepared(order.task, order.instance, setup.version))
        return True

    def _serve(self) -> None:
        """Take the worker's orders until the loop begins, and then run the loop until it ends."""
        core = self._live_core()
        while core.phase is not Phase.ENDED:
            command = self._next_command()
            match command:
                case InitTaskProducer():
                    if not self._init_producer():
                        return
                case BeginTask():
                    self._loop(Begin(paused=self._paused))
                case SetTaskTargetState(target_state=target_state):
                    self._paused = target_state is TargetState.PAUSED
                case StopTask() | CancelTask():
                    self._loop(_request_of(command))

    def _init_producer(self) -> bool:
        order, effects = self._order, self._effects
        assert effects is not None, "prepared"
        try:
            producer_epoch = effects.init_producer()
        except TaskCancelled:
            return True  # the cancellation is the next command
        except Exception as error:
            self._stay_alive()
            self._post_failure(trace_of(error), fenced=isinstance(error, ProducerFencedError))
            return False
        self._live_core().handle(ProducerReady(producer_epoch), now_ms())
        self._services.post(TaskProducerReady(order.task, order.instance, producer_epoch))
        return True

    def _loop(self, stimulus: SourceStimulus) -> None:
        """Handle, carry out, feed back, until the core has ended; requests go in before the answer to an effect."""
        core = self._live_core()
        while True:
            answer = self._step(stimulus)
            if core.phase is Phase.ENDED:
                return
            if answer is None:
                stimulus = _request_of(self._next_command())
                continue
            while (request := self._waiting_request()) is not None:
                self._step(request)
            stimulus = answer

    def _step(self, stimulus: SourceStimulus) -> SourceStimulus | None:
        step = self._live_core().handle(stimulus, now_ms())
        for transition in step.transitions:
            self._services.record(transition)
        answer = None
        for effect in step.effects:
            self._stay_alive()
            answer = self._carry_out(effect)
        return answer

    def _carry_out(self, effect: SourceEffect) -> SourceStimulus | None:
        order, effects = self._order, self._effects
        assert effects is not None, "prepared"
        match effect:
            case ReportState(paused):
                self._services.post(TaskStateReached(order.task, order.instance, paused))
            case ReportFailed(error, fenced):
                self._post_failure(error, fenced=fenced)
            case ReportStopped():
                self._services.post(TaskStopped(order.task, order.instance))
            case _:
                return effects.carry_out(effect)
        return None

    def _live_core(self) -> SourceTaskCore:
        assert self._core is not None, "prepared"
        return self._core

    # ------------------------------------------------------------------------------------------------- commands

    def _next_command(self) -> TaskEffect:
        while True:
            command = self._taken.popleft() if self._taken else self._commands.get()
            self._stay_alive()
            if command is not None:
                return command

    def _waiting_request(self) -> SourceRequest | None:
        """The next request if one has come meanwhile."""
        try:
            command = self._taken.popleft() if self._taken else self._commands.get_nowait()
        except Empty:
            return None
        self._stay_alive()
        return None if command is None else _request_of(command)

    def _wait(self, timeout_s: float) -> bool:
        """Sleep until a command comes (True) or the time is over (False)."""
        if not self._taken:
            try:
                self._taken.append(self._commands.get(timeout=timeout_s))
            except Empty:
                self._stay_alive()
                return False
        self._stay_alive()
        return True

    def _stay_alive(self) -> None:
        """Between any two steps: stand still while the worker is frozen, end when it was killed."""
        self._services.pulse()
        if self._killed:
            raise WorkerGone

    def _checkpoint(self) -> None:
        """Inside calls that block: the same, and leave the call when the task was cancelled."""
        self._stay_alive()
        if self._cancelled:
            raise TaskCancelled

    def _answer_late(self) -> None:
        """A stop that came when the thread had ended, or was about to, is answered all the same."""
        while True:
            try:
                command = self._commands.get_nowait()
            except Empty:
                return
            if isinstance(command, StopTask | CancelTask) and not self._killed:
                self._services.post(TaskStopped(self._order.task, self._order.instance))

    def _post_failure(self, trace: str, *, fenced: bool = False) -> None:
        self._services.post(TaskFailed(self._order.task, self._order.instance, trace, fenced))

    def _topic_used(self, topic: str) -> None:
        if self._services.config.topic_tracking_enable:
            self._services.post(TopicUsed(self._order.task, topic))


def _request_of(command: Any) -> SourceRequest:
    match command:
        case StopTask():
            return StopRequested()
        case CancelTask():
            return CancelRequested()
        case SetTaskTargetState(target_state=TargetState.STARTED):
            return ResumeRequested()
        case SetTaskTargetState():
            return PauseRequested()
    raise AssertionError(f"{type(command).__name__} came to a source task that has begun")
