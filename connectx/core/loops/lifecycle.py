"""Life cycle of a task's loop: begin, pause, resume, stop, cancel, fail, end; and the effects that are outstanding.

A request is followed when the outstanding effect is answered; only a loop that waits follows it immediately. Mirrors
Kafka Connect's WorkerTask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from connectx.core.ignored import NoChange, NotAwaited, TaskIsOver
from connectx.core.loops.messages import Answered, Asked, EffectFailed, Report, ReportFailed, Request
from connectx.core.messages import (
    BeginTask,
    CancelTask,
    SetTaskTargetState,
    StopTask,
    TaskStateReached,
    TaskStopped,
)
from connectx.core.moves import Moves, moved
from connectx.core.rules import BrokenRule, Marks, Rules, broken_rules, gone_back
from connectx.core.state import FieldState
from connectx.core.stepping import Stepping
from connectx.model.causes import Cause
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.model.payloads import Payload
from connectx.model.states import TargetState


class LoopRule(StrEnum):
    """A rule of both loops; the value is its sentence."""

    WORK_IS_ASKED = "a loop that starts, works or ends has an effect outstanding, and no other has"
    PAUSE_IS_ORDERED = "a loop that waits was ordered to, and neither stopped nor cancelled"
    FAILURE_ENDS = "a loop that has not started or waits has no failure"
    NEVER_BACK = "time and the numbers that were given never go back"


class Loop(Protocol):
    """What the rules read of a loop."""

    @property
    def phase(self) -> StrEnum:
        """Where it is."""

    outstanding: dict[int, Any]
    last_number: int
    pause_requested: bool
    stop_requested: bool
    cancelled: bool
    failure: EffectFailed | None


def broken_by(rules: Rules[Any, Any], loop: Any, before: Marks | None) -> tuple[BrokenRule, ...]:
    """Return the rules of both loops, and of one kind of loop, that do not hold; none is sound."""
    back = () if before is None else gone_back(LoopRule.NEVER_BACK, before, loop.marks())
    return (*broken_rules(_RULES, loop), *broken_rules(rules, loop), *back)


def _work_is_asked(loop: Loop) -> Iterator[str]:
    if bool(loop.outstanding) != (loop.phase in ("starting", "working", "ending")):
        yield f"{loop.phase}, and {list(loop.outstanding.values()) or 'nothing'} is outstanding"
    if any(number > loop.last_number for number in loop.outstanding):
        yield f"{max(loop.outstanding)} was given after {loop.last_number}"


def _pause_is_ordered(loop: Loop) -> Iterator[str]:
    if loop.phase == "waiting" and (not loop.pause_requested or loop.stop_requested or loop.cancelled):
        yield "it waits"


def _failure_ends(loop: Loop) -> Iterator[str]:
    if loop.phase in ("new", "waiting") and loop.failure is not None:
        yield f"{loop.phase} after {loop.failure.error}"


_RULES: Final[Mapping[LoopRule, Any]] = {
    LoopRule.WORK_IS_ASKED: _work_is_asked,
    LoopRule.PAUSE_IS_ORDERED: _pause_is_ordered,
    LoopRule.FAILURE_ENDS: _failure_ends,
}


ActionT = TypeVar("ActionT")
AnswerT = TypeVar("AnswerT")
EventT = TypeVar("EventT")


class Phase(StrEnum):
    """Where a loop is. Each loop has a table of moves."""

    NEW = "new"  # BeginTask: STARTING, or WAITING when paused
    WAITING = "waiting"  # paused; resumed: STARTING (first time) or WORKING
    STARTING = "starting"  # the plugin starts: WORKING
    WORKING = "working"  # one effect of the loop is outstanding
    ENDING = "ending"  # a last commit or abort is outstanding: ENDED
    ENDED = "ended"  # nothing is accepted any more


class LoopSettings(Protocol):
    """What the life cycle needs of a loop's settings."""

    @property
    def task(self) -> TaskId:
        """Whose loop it is."""

    @property
    def instance(self) -> int:
        """Number of the task's instance on its worker."""


@dataclass(slots=True)
class TaskLoop(Stepping[ActionT | Asked[ActionT] | Report], FieldState, Generic[ActionT, AnswerT, EventT]):
    """State that both loops have; `handle` is the only method that changes it.

    Attributes:
        outstanding: effects without an answer, by number. Those of a rebalance come on top of that of the loop.
        failure: why the task fails; the first one counts.
        producer_epoch: of a source task's open or last transaction.
    """

    MOVES: ClassVar[Moves[Phase]]
    ANSWERS: ClassVar[Mapping[type, tuple[type, ...]]]
    RULES: ClassVar[Rules[Any, Any]]

    settings: LoopSettings
    phase: Phase = field(default=Phase.NEW, init=False)
    outstanding: dict[int, ActionT] = field(default_factory=dict, init=False)
    last_number: int = field(default=0, init=False)
    started: bool = field(default=False, init=False)
    stop_requested: bool = field(default=False, init=False)
    pause_requested: bool = field(default=False, init=False)
    cancelled: bool = field(default=False, init=False)
    failure: EffectFailed | None = field(default=None, init=False)
    producer_epoch: int | None = field(default=None, init=False)

    @property
    def ended(self) -> bool:
        """True when nothing is accepted any more."""
        return self.phase is Phase.ENDED

    @property
    def must_rest(self) -> bool:
        """Whether a stop or a pause is to be followed."""
        return self.stop_requested or self.pause_requested

    def marks(self) -> Marks:
        return {"now_ms": self.now_ms, "last_number": self.last_number}

    def check(self, before: Marks | None = None) -> tuple[BrokenRule, ...]:
        return broken_by(self.RULES, self, before)

    def take_in(self, stimulus: Request | Answered[AnswerT] | EventT) -> None:
        """Let the method for its kind handle a stimulus; one that comes too late is ignored."""
        if self.ended:
            self.ignore(TaskIsOver(self.settings.task, self.settings.instance))
        elif isinstance(stimulus, Request):
            self._on_request(stimulus)
        elif isinstance(stimulus, Answered):
            self._on_answered(stimulus)
        else:
            self.on_event(stimulus)

    def on_answer(self, effect: ActionT, answer: AnswerT) -> None:
        raise NotImplementedError

    def on_event(self, event: EventT) -> None:
        """A stimulus came that answers no effect."""
        raise NotImplementedError

    def on_begin(self) -> None:
        raise NotImplementedError

    def on_resumed(self) -> None:
        """Continue after a pause of a loop whose plugin runs."""
        raise NotImplementedError

    def end(self) -> None:
        """Close what is open and report the end."""
        raise NotImplementedError

    def ask(self, effect: ActionT) -> None:
        """Order an effect that is answered: the last one of a step."""
        self.last_number += 1
        self.outstanding[self.last_number] = effect
        self.emit(Asked(self.last_number, effect))

    def record(self, payload: Payload, why: Cause | None = None) -> None:
        task = self.settings.task
        self.add(Transition(payload, task.connector, task.task, producer_epoch=self.producer_epoch, why=why))

    def move(self, after: Phase) -> None:
        self.phase = moved(self.MOVES, self.phase, after, self.settings.task)

    def wait(self) -> None:
        """Rest until the worker orders something else."""
        self.move(Phase.WAITING)
        self.report_state(paused=True)

    def report_state(self, *, paused: bool) -> None:
        """Report to the worker that the task runs or is paused."""
        self.emit(TaskStateReached(self.settings.task, self.settings.instance, paused))

    def fail(self, failure: EffectFailed | str) -> None:
        """The task is to fail for this reason, unless there is one already."""
        self.failure = self.failure or (EffectFailed(failure) if isinstance(failure, str) else failure)

    def report_end(self) -> None:
        """Report to the worker how the task has ended; a cancelled one just stops."""
        if self.failure is None or self.cancelled:
            self.emit(TaskStopped(self.settings.task, self.settings.instance))
        else:
            self.emit(ReportFailed(self.failure.error, self.failure.kind, self.failure.newer_epoch))

    def begin(self) -> None:
        """Start, or wait before the plugin starts if the task is paused (Kafka Connect: WorkerTask.doRun)."""
        if self.pause_requested:
            self.wait()
        else:
            self.move(Phase.STARTING)
            self.on_begin()

    def _on_answered(self, answered: Answered[AnswerT]) -> None:
        effect = self.outstanding.pop(answered.number, None)
        if effect is None:
            self.ignore(NotAwaited(type(answered.answer).__name__, answered.number))
            return
        fitting = (*self.ANSWERS[type(effect)], EffectFailed)
        assert isinstance(answered.answer, fitting), f"{answered.answer} does not answer {effect}"
        self.on_answer(effect, answered.answer)

    def _on_request(self, request: Request) -> None:
        is_waiting = self.phase is Phase.WAITING
        if self.phase is Phase.NEW and isinstance(request, BeginTask):
            self.begin()
        elif not self._remember(request):
            self.ignore(NoChange(type(request).__name__, self.phase))
        elif self.phase in (Phase.NEW, Phase.WAITING) and (self.cancelled or self.stop_requested):
            self.end()
        elif is_waiting and self.started:
            self.on_resumed()
        elif is_waiting:
            self.begin()

    def _remember(self, request: Request) -> bool:
        """Whether the request changes what the task is to do."""
        before = self.stop_requested, self.cancelled, self.pause_requested
        match request:
            case StopTask():
                self.stop_requested = True
            case CancelTask():
                self.cancelled = True
            case SetTaskTargetState(target_state=state):
                self.pause_requested = state is TargetState.PAUSED
            case BeginTask():
                pass  # it has begun
        return before != (self.stop_requested, self.cancelled, self.pause_requested)
