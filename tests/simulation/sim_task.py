"""The thread of one task instance in virtual time: orders of the worker, a pure loop, and what carries out its effects.

The counterpart of `runtime.tasks.runner.Runner`: requests go into the loop before the answer to an effect, a frozen
worker's thread stands still between any two effects, and a killed one's does nothing more - but what it had sent may
still arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from connectx.core.loops.messages import Answered, Asked, EffectFailed, FailureKind, ReportFailed
from connectx.core.messages import (
    BeginTask,
    CancelTask,
    InitTaskProducer,
    PrepareTask,
    SetTaskTargetState,
    StopTask,
    TaskFailed,
    TaskStateReached,
    TaskStopped,
)
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.recording.ring import RecordedCore
from tests.simulation.invariants import must
from tests.support.task_loops import numbered

if TYPE_CHECKING:
    from tests.simulation.sim_worker import SimWorker

Act = Callable[[], Any]
RETRY_MS = 500  # until a client asks a broker again that did not answer


class SimTask:
    """One instance; it exists until its thread ends, cancelled or not. Subclasses carry out the effects of a loop.

    `task_set` is the config offset behind the commit record of the task configs that it was made from.
    """

    recorded: RecordedCore[Any]

    def __init__(self, worker: SimWorker, order: PrepareTask, task_set: int) -> None:
        self.worker = worker
        self.world = worker.world
        self.order = order
        self.task_set = task_set
        self.producer_epoch: int | None = None
        self.begun = self.stopping = self.cancelled = self.ended = self.dead = False
        self.commands: list[Any] = []
        if order.target_state is TargetState.PAUSED:
            self.commands.append(SetTaskTargetState(*self.key, order.target_state))
        self.busy = False  # an effect's answer is awaited
        self.token = 0
        self.held: list[Callable[[], None]] = []

    @property
    def core(self) -> Any:
        """Its loop."""
        return self.recorded.core

    @property
    def name(self) -> str:
        """Of its core in recordings."""
        return f"{self.worker.name}/{self.order.task}"

    @property
    def key(self) -> tuple[TaskId, int]:
        return self.order.task, self.order.instance

    @property
    def running(self) -> bool:
        """True while its loop runs, paused or not."""
        return self.begun and not self.ended

    @property
    def can_commit(self) -> bool:
        """True for a source task in a transaction that nobody has fenced."""
        return False

    def execute(self, command: Any) -> None:
        """Queue an order; a cancellation ends what the thread is blocked in, sooner or later."""
        self.commands.append(command)
        if isinstance(command, StopTask):
            self.stopping = True
        if isinstance(command, CancelTask):
            self.stopping = self.cancelled = True
            if self.busy:
                self.answer(self.cancellation(), self.world.stop_ms())
        self.turn()

    def turn(self) -> None:
        """Take orders until one has to be waited for."""
        if self.worker.tasks_frozen or self.dead:
            return
        while self.commands and not self.busy and not self.ended:
            command = self.commands.pop(0)
            if isinstance(command, InitTaskProducer):
                self.init_producer()
                continue
            if isinstance(command, BeginTask):
                self.world.checks.on_begin(self)
                self.begun = True
            self.loop(command)
        if self.commands and self.busy:
            self.interrupted()

    def records_came(self) -> None:
        """There is something new to read."""

    def on_cut(self) -> None:
        """The worker has lost its connections."""

    def init_producer(self) -> None:
        raise TypeError("only source tasks have producers")

    def cancellation(self) -> Any:
        """What the outstanding effect is answered by when it was cut off."""
        return EffectFailed("the task was cancelled")

    def interrupted(self) -> None:
        """An order waits while the loop waits for the world: cut the waiting short where that is possible."""

    def loop(self, stimulus: Any) -> None:
        """Handle, carry out, feed back, until something takes time."""
        while stimulus is not None:
            step = self.step(numbered(self.core, stimulus))
            for transition in step.transitions:
                self.world.note(self.worker, transition)
            stimulus = None
            for effect in step.effects:
                assert stimulus is None, "only the last effect is answered"
                stimulus = self.carry_out(effect.effect if isinstance(effect, Asked) else effect)
        if self.core.ended and not self.ended:
            self.end()

    def step(self, stimulus: Any) -> Any:
        """A sound step; an answer that comes twice changes nothing."""
        before = self.core.marks()
        step = self.recorded.handle(stimulus, self.world.now_ms)
        must(10, not (found := self.core.check(before)), f"{stimulus} breaks {'; '.join(map(str, found))}")
        if isinstance(stimulus, Answered):
            again = self.recorded.handle(stimulus, self.world.now_ms)
            must(10, again.ignored is not None and not again.effects, f"{stimulus} is taken twice")
        return step

    def carry_out(self, effect: Any) -> Any:
        """Do it; returns an answer that comes at once."""
        match effect:
            case TaskStateReached() | TaskStopped():
                self.worker.deliver(effect, self.key)
            case ReportFailed(error, kind):
                self.worker.deliver(TaskFailed(*self.key, error, kind is FailureKind.FENCED), self.key)
            case _:
                return self.effect(effect)
        return None

    def effect(self, effect: Any) -> Any:
        raise NotImplementedError

    def end(self) -> None:
        """The thread ends; an order that comes later is answered by the worker."""
        self.ended = True
        self.worker.tasks.pop(self.key, None)
        if not self.dead and any(isinstance(command, StopTask | CancelTask) for command in self.commands):
            self.worker.deliver(TaskStopped(*self.key), self.key)

    def fail(self, trace: str) -> None:
        """The thread ends by a failure of its own."""
        if not self.ended:
            self.worker.deliver(TaskFailed(*self.key, trace), self.key)
            self.end()

    def answer(self, stimulus: Any, delay_ms: int) -> None:
        """Answer the outstanding effect after a while; what answers first counts."""
        self.busy = True
        token = self.token
        self.world.at(delay_ms, lambda: self.answered(token, stimulus))

    def answered(self, token: int, stimulus: Any) -> None:
        """The outstanding effect is done: what the worker has ordered meanwhile goes in first."""
        if self.dead or self.ended or token != self.token:
            return
        if self.worker.tasks_frozen:
            self.held.append(lambda: self.answered(token, stimulus))
            return
        self.token += 1
        self.busy = False
        self.take_requests()
        if not self.ended:
            self.loop(stimulus)
            self.turn()

    def take_requests(self) -> None:
        """Requests come to a loop that does not wait for them: it only remembers them."""
        while self.begun and self.commands and not self.ended:
            self.loop(self.commands.pop(0))

    def thaw(self) -> None:
        """The worker goes on: so does its thread."""
        held, self.held = self.held, []
        for action in held:
            action()
        self.turn()

    def ask_broker(self, act: Act, no_answer: Any = None) -> None:
        """Send a request: it arrives after a while, and so does its answer; what gets lost is sent again.

        `act` does it and returns the answer; `no_answer` is the answer when none came.
        """
        self.busy = True
        token = self.token
        self.world.at(self.world.latency_ms(), lambda: self.arrive(token, act, no_answer))

    def arrive(self, token: int, act: Act, no_answer: Any) -> None:
        """The request reaches the broker, even if who sent it has stopped or died meanwhile (or not: who knows)."""
        is_gone = token != self.token or self.dead
        if is_gone and not self.world.lands():
            return
        if self.worker.sends and not self.world.broker_down:
            answer = act()
            if not is_gone and self.worker.receives and not self.world.loses_reply():
                self.answer(answer, self.world.reply_ms())
                return
        if is_gone:
            return
        if no_answer is not None:
            self.answer(no_answer, RETRY_MS)
        else:
            self.world.at(RETRY_MS, lambda: self.arrive(token, act, None))
