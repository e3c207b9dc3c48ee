"""Messages of both loops of tasks.

Effects are carried out in the order of their step. One that is answered comes last, as `Asked`; its answer is an
`Answered` with the same number. If an effect before it fails, the asked one is not carried out and is answered by
EffectFailed; in a step without an asked effect, EffectFailed comes alone. Which answers an effect can have is in the
table `ANSWERS` of each loop; EffectFailed is one for all.

Requests and reports are those of the worker's core: BeginTask, SetTaskTargetState, StopTask, CancelTask;
TaskStateReached, TaskStopped. Only a failure has a separate report, because the driver words and counts it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

from connectx.core.messages import (
    BeginTask,
    CancelTask,
    SetTaskTargetState,
    StopTask,
    TaskStateReached,
    TaskStopped,
)
from connectx.values import Value

ActionT = TypeVar("ActionT")
AnswerT = TypeVar("AnswerT")


class FailureKind(StrEnum):
    """What a failed effect means for the task."""

    FENCED = "fenced"  # a newer producer took over the transactional id
    EXPIRED = "expired"  # the broker aborted the transaction because it was open too long
    DELIVERY = "delivery"  # a record was refused permanently: offsets after it must not be committed
    RECORD = "record"  # a record cannot be transformed or converted, and errors.tolerance does not allow that
    FATAL = "fatal"  # anything else


class Asked(Value, Generic[ActionT]):
    number: int
    effect: ActionT


class Answered(Value, Generic[AnswerT]):
    """The answer to the effect of that number."""

    number: int
    answer: AnswerT


class StartPlugin(Value):
    """Call the plugin's start."""


class StopPlugin(Value):
    """Call the plugin's stop. No answer, failures are logged."""


class QueryCores(Value):
    """Ask for the cores of Spark's executors."""


class ReportFailed(Value):
    """Report to the worker that the task failed; the loop has ended. No answer."""

    error: str
    kind: FailureKind = FailureKind.FATAL
    newer_epoch: int | None = None


class Done(Value):
    """The effect is carried out; a wait is over; a poll found nothing in its time."""


class NotDone(Value):
    """The effect is not carried out, which is no failure of the task yet."""

    error: str


class EffectFailed(Value):
    """The effect failed, and so does the task. `newer_epoch` is that of the producer that fenced this one, if known."""

    error: str
    kind: FailureKind = FailureKind.FATAL
    newer_epoch: int | None = None


class CoresKnown(Value):
    """Cores of Spark's executors; None when Spark could not be asked."""

    cores: int | None


Request = BeginTask | SetTaskTargetState | StopTask | CancelTask
"""Orders of the worker. Only the first can be refused; the others are remembered until they can be followed."""

Report = TaskStateReached | TaskStopped | ReportFailed
"""Effects that are reports to the worker."""
