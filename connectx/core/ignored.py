"""Why a core ignores a stimulus. Values only: recordings and logs show them.

A late answer or report is normal: the driver cannot know that the core has changed meanwhile.
"""

from __future__ import annotations

from connectx.core.timer_keys import TimerKey
from connectx.model.ids import TaskId, TopicPartition
from connectx.values import Value


class WorkerIsOver(Value):
    def __str__(self) -> str:
        return "the worker has stopped"


class TimerReplaced(Value):
    key: TimerKey

    def __str__(self) -> str:
        return f"timer {self.key} was cancelled or set again"


class NotPending(Value):
    request_id: int

    def __str__(self) -> str:
        return f"request {self.request_id} is not pending"


class InstanceGone(Value):
    """A report of an instance that the core has forgotten; `present` is the number of the one that followed it."""

    name: str
    instance: int
    present: int | None

    def __str__(self) -> str:
        follows = "" if self.present is None else f", instance {self.present} follows it"
        return f"instance {self.instance} of {self.name} is gone{follows}"


class PhaseOver(Value):
    name: str
    instance: int
    phase: str

    def __str__(self) -> str:
        return f"instance {self.instance} of {self.name} is {self.phase}"


class TaskIsOver(Value):
    task: TaskId
    instance: int

    def __str__(self) -> str:
        return f"instance {self.instance} of {self.task} has ended"


class OtherEpoch(Value):
    epoch: int
    present: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} is over, the present one is {self.present}"


class NotOwned(Value):
    partitions: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.partitions)) or 'no partition'}: not owned"


class NotAwaited(Value):
    """An answer that no effect waits for: the effect has another number, or is answered already."""

    answer: str
    number: int

    def __str__(self) -> str:
        return f"{self.answer} {self.number} is not awaited"


class NoChange(Value):
    request: str
    phase: str

    def __str__(self) -> str:
        return f"{self.request} changes nothing while the phase is {self.phase}"


class NotFetched(Value):
    partitions: tuple[str, ...]

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
