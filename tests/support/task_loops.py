"""Loops of tasks in tests: answers get the number of the effect that they answer, and effects lose theirs."""

from __future__ import annotations

from typing import Any

from connectx.core.loops.lifecycle import TaskLoop
from connectx.core.loops.messages import Answered, Asked, EffectFailed
from connectx.core.messages import BeginTask, CancelTask, SetTaskTargetState, StopTask, TaskStateReached, TaskStopped
from connectx.core.step import Step
from connectx.model.ids import TaskId
from connectx.model.states import TargetState


class Orders:
    """What the worker orders of one task, and what its loop reports."""

    def __init__(self, task: TaskId, instance: int = 0) -> None:
        self.begin = BeginTask(task, instance)
        self.stop = StopTask(task, instance)
        self.cancel = CancelTask(task, instance)
        self.pause = SetTaskTargetState(task, instance, TargetState.PAUSED)
        self.resume = SetTaskTargetState(task, instance, TargetState.STARTED)
        self.runs = TaskStateReached(task, instance, paused=False)
        self.paused = TaskStateReached(task, instance, paused=True)
        self.stopped = TaskStopped(task, instance)


def numbered(core: TaskLoop[Any, Any, Any], stimulus: Any) -> Any:
    """The stimulus as the driver gives it: an answer with the number of the latest effect that it can answer."""
    answers = {cls for classes in core.ANSWERS.values() for cls in classes} | {EffectFailed}
    if type(stimulus) not in answers:
        return stimulus
    for number, effect in reversed(core.outstanding.items()):
        is_other = getattr(effect, "sequence", None) != getattr(stimulus, "sequence", None)
        if type(stimulus) in (*core.ANSWERS[type(effect)], EffectFailed) and not is_other:
            return Answered(number, stimulus)
    is_event = type(stimulus).__name__ in ("OffsetsCommitted", "CommitFailed", "EffectFailed")
    assert is_event or core.ended, f"nothing that is outstanding can be answered by {stimulus}: {core.outstanding}"
    return stimulus if is_event else Answered(0, stimulus)


def feed(core: Any, stimulus: Any, now_ms: int = 0) -> Step[Any]:
    """One sound step, not before the last one, with the effects alone."""
    before = core.marks()
    step = core.handle(numbered(core, stimulus), max(now_ms, core.now_ms))
    assert not (broken := core.check(before)), broken
    effects = [effect.effect if isinstance(effect, Asked) else effect for effect in step.effects]
    return Step(step.transitions, effects, step.ignored, step.shown)
