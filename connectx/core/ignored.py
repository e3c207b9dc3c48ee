"""Why a core ignores a stimulus. Values only: recordings and logs show them.

A late answer or report is normal: the driver cannot know that the core has changed meanwhile.
"""

from __future__ import annotations

from connectx.core.timer_keys import TimerKey
from connectx.model.ids import TaskId, TopicPartition
from connectx.values import Value


class WorkerIsOver(Value):
    """The worker has stopped, and answers requests only."""

    def __str__(self) -> str:
        return "the worker has stopped"


class TimerReplaced(Value):
    """The timer was cancelled, or set again, after the driver took it over."""

    key: TimerKey

    def __str__(self) -> str:
        return f"timer {self.key} was cancelled or set again"


class NotPending(Value):
    """An answer to a request that no part waits for."""

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
    """A report of an instance that is in another phase by now."""

    name: str
    instance: int
    phase: str

    def __str__(self) -> str:
        return f"instance {self.instance} of {self.name} is {self.phase}"


class TaskIsOver(Value):
    """The loop of this instance of a task has ended."""

    task: TaskId
    instance: int

    def __str__(self) -> str:
        return f"instance {self.instance} of {self.task} has ended"


class OtherEpoch(Value):
    """An answer to an effect of an earlier assignment of partitions."""

    epoch: int
    present: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} is over, the present one is {self.present}"


class NotOwned(Value):
    """News of partitions that the task does not own."""

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
    """A request that changes nothing in the present phase of what it is about."""

    request: str
    phase: str

    def __str__(self) -> str:
        return f"{self.request} changes nothing while the phase is {self.phase}"


class NotFetched(Value):
    """A call, or the answer of a node, about partitions that are not fetched, or from another position by now."""

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
