"""Why a core ignores a stimulus. Values only: recordings and logs show them.

A late answer or report is normal: the driver cannot know that the core has changed meanwhile.
"""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from connectx.core.timer_keys import TimerKey
from connectx.model.ids import TaskId, TopicPartition
from connectx.values import Worded


class WorkerIsOver(Worded):
    text: ClassVar = "the worker has stopped"


class TimerReplaced(Worded):
    text: ClassVar = "timer {key} was cancelled or set again"
    key: TimerKey


class NotPending(Worded):
    text: ClassVar = "request {request_id} is not pending"
    request_id: int


class InstanceGone(Worded):
    """A report of an instance that the core has forgotten; `present` is the number of the one that followed it."""

    name: str
    instance: int
    present: int | None

    @override
    def __str__(self) -> str:
        follows = "" if self.present is None else f", instance {self.present} follows it"
        return f"instance {self.instance} of {self.name} is gone{follows}"


class PhaseOver(Worded):
    text: ClassVar = "instance {instance} of {name} is {phase}"
    name: str
    instance: int
    phase: str


class TaskIsOver(Worded):
    text: ClassVar = "instance {instance} of {task} has ended"
    task: TaskId
    instance: int


class OtherEpoch(Worded):
    text: ClassVar = "epoch {epoch} is over, the present one is {present}"
    epoch: int
    present: int


class NotOwned(Worded):
    partitions: tuple[TopicPartition, ...]

    @override
    def __str__(self) -> str:
        return f"{', '.join(map(str, self.partitions)) or 'no partition'}: not owned"


class NotAwaited(Worded):
    """An answer that no effect waits for: the effect has another number, or is answered already."""

    text: ClassVar = "{answer} {number} is not awaited"
    answer: str
    number: int


class NoChange(Worded):
    text: ClassVar = "{request} changes nothing while the phase is {phase}"
    request: str
    phase: str


class NotFetched(Worded):
    partitions: tuple[str, ...]

    @override
    def __str__(self) -> str:
        return f"{', '.join(self.partitions)} are not fetched, or from another position"


Ignored = (
    WorkerIsOver
    | TimerReplaced
    | NotPending
    | InstanceGone
    | PhaseOver
    | TaskIsOver
    | OtherEpoch
    | NotOwned
    | NotAwaited
    | NoChange
    | NotFetched
)
