"""What every core returns for a stimulus: what changed, what to do, and why the stimulus was ignored. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from connectx.core.ignored import Ignored
from connectx.model.events import Transition

EffectT = TypeVar("EffectT")


@dataclass(slots=True)
class Step(Generic[EffectT]):
    """Outcome of handling one stimulus, in order.

    Attributes:
        transitions: what changed, for the history.
        effects: orders to the driver.
        ignored: why the core took nothing from the stimulus; None if it took something.
        shown: state that the driver shows to users, None if it is as before. Drivers read nothing else of a core.
    """

    transitions: list[Transition] = field(default_factory=list)
    effects: list[EffectT] = field(default_factory=list)
    ignored: Ignored | None = None
    shown: Any = field(default=None, compare=False)
