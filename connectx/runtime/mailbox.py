"""The one thread that runs a worker's core, with a queue of stimuli and timers.

Decides nothing. A frozen mailbox keeps stimuli and handles them after the thaw, like a process that the operating
system has stopped.
"""

from __future__ import annotations

import heapq
import logging
import queue
import threading
from collections.abc import Callable
from typing import Final, Protocol

from connectx.core.messages import Posted, SetTimer, TimerFired
from connectx.core.timer_keys import TimerKey
from connectx.model.clock import Clock
from connectx.values import Value

_LONGEST_WAIT_S: Final = 86_400.0
"""A timer may be for any time: a record of the config topic can claim that a session key was made in a far future."""

_log = logging.getLogger(__name__)


class Handler(Protocol):
    """What the mailbox calls, always from its own thread."""

    def __call__(self, stimulus: Posted) -> None:
        """Handle one stimulus."""


class _Stop:
    """Ends the loop."""


class _Call(Value):
    """A function to call between two stimuli."""

    function: Callable[[], object]


class Mailbox:
    """A thread with a queue of stimuli and a heap of timers.

    Args:
        name: name of the thread.
        handler: called for each stimulus.
        on_crash: called once if the handler raises: the worker cannot continue.
        clock: decides when a timer is due.
    """

    def __init__(self, name: str, handler: Handler, on_crash: Callable[[BaseException], None], clock: Clock) -> None:
        self._clock = clock
        self._handler = handler
        self._on_crash = on_crash
        self._queue: queue.SimpleQueue[Posted | _Call | _Stop] = queue.SimpleQueue()
        self._timers: list[tuple[int, int, SetTimer]] = []
        self._latest: dict[TimerKey, int] = {}
        self._running = threading.Event()
        self._running.set()
        self._dead = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, stimulus: Posted) -> None:
        """Hand in a stimulus, from any thread; never blocks."""
        self._queue.put(stimulus)

    def call(self, function: Callable[[], object]) -> None:
        """Have the mailbox's thread call a function after what is queued now, from any thread; it must not raise."""
        self._queue.put(_Call(function))

    def set_timer(self, timer: SetTimer) -> None:
        """Take a timer over. Only the handler calls this, so from the mailbox's own thread."""
        self._latest[timer.key] = timer.token
        heapq.heappush(self._timers, (timer.at_ms, timer.token, timer))

    def freeze(self) -> None:
        """Stop handling until `thaw`."""
        self._running.clear()

    def thaw(self) -> None:
        self._running.set()

    def kill(self) -> None:
        """End the loop immediately; what is queued is never handled."""
        self._dead = True
        self._queue.put(_Stop())
        self._running.set()

    def close(self) -> None:
        """End the loop after what is queued now."""
        self._queue.put(_Stop())
        self._running.set()

    def join(self, timeout_s: float) -> bool:
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._dead:
                item = self._next()
                self._running.wait()
                if self._dead or isinstance(item, _Stop):
                    return
                if isinstance(item, _Call):
                    item.function()
                elif item is not None:
                    self._handler(item)
        except BaseException as error:
            if self._dead:  # what the handler stood on was taken away from it
                _log.debug("a killed worker's core ended with an error", exc_info=True)
                return
            _log.exception("a worker's core has failed")
            self._on_crash(error)

    def _next(self) -> Posted | _Call | _Stop | None:
        """The next stimulus, or a timer that is due, whichever comes first."""
        while self._timers and self._latest.get(self._timers[0][2].key) != self._timers[0][1]:
            heapq.heappop(self._timers)
        wait_s = None
        if self._timers:
            wait_s = min((self._timers[0][0] - self._clock()) / 1000, _LONGEST_WAIT_S)
            if wait_s <= 0:
                timer = heapq.heappop(self._timers)[2]
                return TimerFired(timer.key, timer.token)
        try:
            return self._queue.get(timeout=wait_s)
        except queue.Empty:
            return None
