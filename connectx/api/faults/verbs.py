"""The faults of a cluster as methods: immediate, delayed, or at random.

Decides which faults a cluster supports: some need its own broker or a gate.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from connectx.api.faults.after import After
from connectx.api.faults.agenda import Agenda
from connectx.api.faults.chaos import Chaos, chosen_kinds
from connectx.api.faults.direct import DirectFaults
from connectx.api.faults.plan import plan


class FaultVerbs(DirectFaults):
    """The part of `Cluster` that injects faults."""

    _agenda: Agenda

    def after(self, delay_s: float) -> After:
        """The same verbs, called after `delay_s` seconds: `cluster.after(5).kill("worker-1")`.

        They return a handle with `state`, `result()` and `cancel()`, without waiting. `close` cancels faults not begun.

        Raises:
            ValueError: `delay_s` is negative, or no number of seconds.
        """
        if not 0 <= delay_s < threading.TIMEOUT_MAX:
            raise ValueError(f"delay_s must be a number of seconds from 0, not {delay_s}")
        return After(self, self._agenda, delay_s)

    def chaos(
        self,
        seed: int,
        kinds: Sequence[str] | None = None,
        *,
        every_s: float = 2.0,
        for_s: float | None = 60.0,
        hold_s: tuple[float, float] | None = None,
        keep: int = 1,
    ) -> Chaos:
        """Inject random faults within a `with` block, the same ones for the same seed.

        At the end of the block all faults are undone, and the group has become stable; an error in the block or Ctrl-C
        ends the faults immediately.

        Args:
            seed: decides kinds, times and picks.
            kinds: kill, stop, pause, stall, partition, delay, add_worker, broker_kill; by default all that this
                cluster supports except broker_kill.
            every_s: one fault in each interval of this many seconds.
            for_s: duration in seconds, also when the block ends before; None for as long as the block lasts.
            hold_s: the shortest and longest time until a fault is undone (resumed, healed, delivered, restarted,
                replaced by a new worker); by default from a sixth of to twice the worker's session.timeout.ms.
            keep: minimum number of healthy workers at any time.

        Raises:
            ValueError: an unknown kind, or a number out of range.
            NoGateError, NotEmbeddedError: a kind that this cluster does not support.
        """
        if every_s <= 0 or keep < 1:
            raise ValueError(f"every_s must be above 0 and keep at least 1, not {every_s} and {keep}")
        session_s = self._config.session_timeout_ms / 1000
        held_s = hold_s or (session_s / 6, session_s * 2)
        chosen = chosen_kinds(kinds, has_gate=self._kafka is not None and self._kafka.gate is not None)
        if "broker_kill" in chosen:
            self._embedded()
        planned = plan(seed, chosen, every_s=every_s, hold_s=held_s)
        return Chaos(self, self._agenda, planned, seed=seed, kinds=chosen, every_s=every_s, for_s=for_s, keep=keep)
