"""A source task's loop in tests: state and stimuli in, effects and transitions out."""

from __future__ import annotations

from typing import Any

from connectx.core.loops.messages import (
    Done,
    StopPlugin,
)
from connectx.core.messages import TaskProducerReady
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.messages import (
    CloseProducer,
    OffsetsRead,
    PartitionOffset,
    PluginStarted,
    Polled,
    Sent,
    TransactionBegun,
)
from connectx.core.source.progress import SourceTaskSettings
from connectx.model.events import EventKind
from connectx.model.ids import TaskId
from connectx.model.states import TransactionBoundary
from tests.support.histories import Recorded
from tests.support.task_loops import Orders, feed

TASK = TaskId("lines", 0)
ORDERS = Orders(TASK)
FILE = {"filename": "/in.txt"}
AT_5 = PartitionOffset(FILE, {"position": 5})
AT_9 = PartitionOffset(FILE, {"position": 9})
END = [StopPlugin(), CloseProducer(), ORDERS.stopped]


def exactly_once(boundary: TransactionBoundary = TransactionBoundary.POLL) -> SourceTaskSettings:
    return SourceTaskSettings(TASK, True, "g-lines-0", boundary, boundary_interval_ms=1000)


AT_LEAST_ONCE = SourceTaskSettings(TASK, False, offset_flush_interval_ms=1000, offset_flush_timeout_ms=500)


def run(core: SourceTaskCore, *stimuli: Any, now_ms: int = 0) -> list[Any]:
    """Feed stimuli; the effects of the last one."""
    step = None
    for stimulus in stimuli:
        step = feed(core, stimulus, now_ms)
    assert step is not None
    return step.effects


def working(settings: SourceTaskSettings, *, now_ms: int = 0) -> SourceTaskCore:
    """A begun task whose first poll is outstanding."""
    core = SourceTaskCore(settings)
    run(core, TaskProducerReady(TASK, 0, 3), ORDERS.begin, PluginStarted(FILE), OffsetsRead(None), now_ms=now_ms)
    return core


def at_commit(core: SourceTaskCore, *, now_ms: int = 0) -> SourceTaskCore:
    """An exactly-once task whose first slice (2 records) is sent and whose commit is outstanding."""
    run(core, Polled(1, 2, AT_5.offset), TransactionBegun(3), Sent(), Done(), now_ms=now_ms)
    return core


def transition(kind: EventKind, **data: Any) -> Recorded:
    return Recorded(kind, "lines", 0, producer_epoch=3, data=data)
