"""The base of all cores: the step that is being built, and its time. Pure.

A core's `handle` calls `take`, and its methods build the step with `emit`, `ignore` and `add`: neither the step nor the
time is passed around. A core of several parts has one such object that all of them share (`Context`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from connectx.core.ignored import Ignored
from connectx.core.step import Step
from connectx.model.events import Transition

StimulusT = TypeVar("StimulusT")
EffectT = TypeVar("EffectT")


@dataclass(slots=True)
class Stepping(Generic[EffectT]):
    """The present step of a core.

    Attributes:
        now_ms: time of the present step.
        step: the present step; it is the driver's once `take` has returned.
    """

    now_ms: int = field(default=0, init=False)
    step: Step[EffectT] = field(default_factory=Step, init=False, compare=False, repr=False)

    def take(self, stimulus: StimulusT, now_ms: int, on_stimulus: Callable[[StimulusT], None]) -> Step[EffectT]:
        """Let `on_stimulus` build the step of a stimulus, and return it."""
        self.now_ms, self.step = now_ms, Step()
        on_stimulus(stimulus)
        return self.step

    def emit(self, *effects: EffectT) -> None:
        """Order effects, in this order."""
        self.step.effects += effects

    def add(self, transition: Transition) -> None:
        """Report what has changed."""
        self.step.transitions.append(transition)

    def ignore(self, reason: Ignored) -> None:
        """Show that nothing is taken from this step's stimulus, and why."""
        self.step.ignored = reason
