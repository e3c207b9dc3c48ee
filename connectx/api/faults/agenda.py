"""Scheduled actions of a cluster, such as faults with a delay.

Each action has its own thread, so it starts on time while a cell is busy and while other actions take long. An error is
not printed: the handle keeps it, and the history records it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING

from connectx.api.fault_origin import failed
from connectx.errors.clusters import ClusterClosedError
from connectx.views import Form, masked_text

if TYPE_CHECKING:
    from connectx.history.log import EventLog


class Scheduled:
    """A fault that is to come, comes, or has come; made by `cluster.after(...)`."""

    def __init__(
        self, what: str, delay_s: float, action: Callable[[], object], called_off: threading.Event | None = None
    ) -> None:
        self._what = what
        self._due_s = time.monotonic() + delay_s
        self._action = action
        self._future: Future[object] = Future()
        self._called_off = called_off or threading.Event()
        context = copy_context()  # the origin of what is scheduled is that of who schedules it
        self._thread = threading.Thread(
            target=lambda: context.run(self._run), name=f"connectx-after-{what}", daemon=True
        )

    def start(self) -> Scheduled:
        """Start the clock."""
        self._thread.start()
        return self

    @property
    def state(self) -> str:
        """waiting, running, done, failed or cancelled."""
        if self._future.cancelled():
            return "cancelled"
        if self._future.done():
            return "done" if self._future.exception() is None else "failed"
        return "running" if self._future.running() else "waiting"

    @property
    def error(self) -> BaseException | None:
        """Why it failed, if it did."""
        return self._future.exception() if self.state == "failed" else None

    def result(self, timeout_s: float | None = None) -> object:
        """What the verb returned, once it has; raises what it raised.

        Raises:
            TimeoutError: it is not over within `timeout_s` seconds.
            concurrent.futures.CancelledError: it was cancelled.
        """
        return self._future.result(timeout_s)

    def cancel(self) -> bool:
        """Call it off; False when it has begun. What lasts looks itself at the event that it was given."""
        cancelled = self._future.cancel()
        self._called_off.set()
        return cancelled

    def join(self) -> None:
        """Wait until its thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        self._called_off.wait(max(0.0, self._due_s - time.monotonic()))
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            self._future.set_result(self._action())
        except BaseException as error:
            self._future.set_exception(error)

    def __repr__(self) -> str:
        left_s = self._due_s - time.monotonic()
        when = f" in {max(left_s, 0):.1f} s" if self.state == "waiting" else ""
        why = f": {self.error}" if self.error is not None else ""
        return f"<Scheduled {self._what}{when}, {self.state}{why}>"

    def _repr_html_(self) -> str:
        facts = {"what": self._what, "state": self.state}
        if self.state == "waiting":
            facts["comes in"] = f"{max(self._due_s - time.monotonic(), 0):.1f} s"
        if self.error is not None:
            facts["why"] = masked_text(str(self.error))
        return Form("Scheduled", facts).html


class Agenda:
    """The scheduled faults of one cluster."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._open: list[Scheduled] = []
        self.is_closed = False

    def add(
        self,
        fault: str,
        worker: str | None,
        delay_s: float,
        action: Callable[[], object],
        called_off: threading.Event | None = None,
    ) -> Scheduled:
        """Schedule an action; its failure goes to the history, too.

        `called_off` is set when it is cancelled, also while the action runs.

        Raises:
            ClusterClosedError: the cluster is closed.
        """
        if self.is_closed:
            raise ClusterClosedError("This cluster is closed.", next_step="Make a new one with cx.Cluster().")

        def act() -> object:
            try:
                return action()
            except BaseException as error:
                self._events.append(failed(fault, str(error)), worker)
                raise

        scheduled = Scheduled(f"{fault} {worker}" if worker else fault, delay_s, act, called_off)
        self._open = [one for one in self._open if one.state in ("waiting", "running")] + [scheduled]
        return scheduled.start()

    def close(self) -> None:
        """Call off what has not begun, and wait for what has."""
        self.is_closed = True
        for scheduled in self._open:
            scheduled.cancel()
        for scheduled in self._open:
            scheduled.join()
        self._open = []
