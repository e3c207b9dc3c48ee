"""The thread of a worker's core takes the time from the clock that it is given."""

from __future__ import annotations

from queue import SimpleQueue

from connectx.core.messages import Posted, SetTimer, TimerFired, WorkerStarted
from connectx.core.timer_keys import WorkerTimer
from connectx.runtime.mailbox import Mailbox

DUE_MS = 60_000


def test_a_timer_is_due_when_the_injected_clock_says_so() -> None:
    time_ms = 0
    handled: SimpleQueue[Posted] = SimpleQueue()

    def handle(stimulus: Posted) -> None:
        if stimulus == TimerFired(WorkerTimer.RECLAIM, 1):
            mailbox.set_timer(SetTimer(WorkerTimer.MISMATCH, 2, DUE_MS))
        handled.put(stimulus)

    mailbox = Mailbox("test-core", handle, lambda error: None, lambda: time_ms)
    mailbox.set_timer(SetTimer(WorkerTimer.RECLAIM, 1, 0))
    mailbox.start()
    assert handled.get(timeout=30) == TimerFired(WorkerTimer.RECLAIM, 1)
    mailbox.post(WorkerStarted())
    assert handled.get(timeout=30) == WorkerStarted()
    assert handled.empty()
    time_ms = DUE_MS
    mailbox.post(WorkerStarted())
    assert handled.get(timeout=30) == WorkerStarted()
    assert handled.get(timeout=30) == TimerFired(WorkerTimer.MISMATCH, 2)
    mailbox.close()
    assert mailbox.join(30)
