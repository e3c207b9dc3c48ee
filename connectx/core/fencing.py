"""Fencing rounds: the leader makes sure that no producer of an older task generation can write (KIP-618).

Decides whether a round is needed, which transactional ids it fences and when the task count record may be written.
Mirrors Kafka Connect's DistributedHerder.ZombieFencing, without its blocking continuation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from connectx.core.config_writer import ConfigWriter
from connectx.core.context import Context
from connectx.core.messages import ConfigReadToEnd, FenceProducers, ProducersFenced, ReadConfigToEnd
from connectx.core.moves import Moves, moved
from connectx.core.pending import RoundFenced, RoundRead
from connectx.core.signals import FencingOrigin, FencingOutcome, RequestWaiter, Waiter, WriteOutcome
from connectx.core.timer_keys import TaskCountRetry
from connectx.model import payloads
from connectx.model.causes import TaskCountOutdated
from connectx.model.states import ConnectorType

_RETRY_MS = 250
_RETRY_MAX_MS = 5_000


class RoundPhase(StrEnum):
    READING = "reading"  # reads the config topic to its end: done, RECORDING or FENCING
    FENCING = "fencing"  # producers are being fenced: RECORDING
    RECORDING = "recording"  # the task count record is written and read back, again if that failed: done


ROUND_MOVES: Final[Moves[RoundPhase]] = {
    RoundPhase.READING: frozenset({RoundPhase.FENCING, RoundPhase.RECORDING}),
    RoundPhase.FENCING: frozenset({RoundPhase.RECORDING}),
    RoundPhase.RECORDING: frozenset(),
}
"""A round may end in any phase."""


@dataclass(slots=True)
class FencingRound:
    """One connector's round; later requests join it and share the result."""

    connector: str
    round_id: int
    phase: RoundPhase
    waiters: list[Waiter]
    request_id: int | None = None
    task_count: int = 0
    task_config_generation: int | None = None
    attempts: int = 0


@dataclass(slots=True)
class FencingRounds:
    """Active rounds, at most one per connector. Each ends with a `FencingOutcome` for each of its waiters."""

    context: Context
    writer: ConfigWriter
    rounds: dict[str, FencingRound] = field(default_factory=dict)

    def requests(self) -> list[tuple[int, str]]:
        """Requests that wait for a round, each with its connector."""
        rounds = self.rounds.items()
        waiting = [(waiter, connector) for connector, one in rounds for waiter in one.waiters]
        return [(waiter.request_id, connector) for waiter, connector in waiting if isinstance(waiter, RequestWaiter)]

    def request(self, connector: str, waiter: Waiter) -> None:
        """Join the connector's round, or begin one by reading the config topic to its end."""
        active = self.rounds.get(connector)
        if active is not None:
            active.waiters.append(waiter)
            return
        request_id = self.context.new_request_id(RoundRead(connector))
        self.rounds[connector] = FencingRound(connector, request_id, RoundPhase.READING, [waiter], request_id)
        self.context.emit(ReadConfigToEnd(request_id, self.context.settings.worker.worker_sync_timeout_ms))

    def on_read(self, connector: str, stimulus: ConfigReadToEnd) -> None:
        """Decide, with the newest config in view, what this round has to do (section 14.3 of the reference)."""
        fencing, config = self.rounds[connector], self.context.config
        fencing.request_id = None
        if stimulus.error is not None:
            # Kafka Connect answers 500, which fails the task. Nothing was tried yet, so it may be asked for again.
            self._end(fencing, 503, f"Failed to read the config topic to its end: {stimulus.error}")
            return
        if not config.contains(connector):
            self._end(fencing, 404, f"Connector {connector} not found")
            return
        if self.context.connector_type(connector) is not ConnectorType.SOURCE:
            self._end(fencing, 400, f"Connector {connector} is not a source connector")
            return
        if not config.pending_fencing(connector):
            self._end(fencing, 200, None)
            return
        fencing.task_count = config.task_count(connector)
        fencing.task_config_generation = config.task_config_generation(connector)
        recorded = config.task_count_record(connector)
        if not recorded or recorded == fencing.task_count == 1:
            self._write_record(fencing)
        else:
            self._fence(fencing, recorded)

    def on_producers_fenced(self, connector: str, stimulus: ProducersFenced) -> None:
        """All producers of the previous task count are fenced, or the round has failed."""
        fencing = self.rounds[connector]
        fencing.request_id = None
        if stimulus.error is not None:
            self._end(fencing, 500, f"Failed to fence older producers: {stimulus.error}")
        else:
            self._write_record(fencing)

    def on_record_written(self, outcome: WriteOutcome) -> None:
        """The task count record can be read back, was refused, or could not be written.

        The producers are fenced by then, so the write is tried again for as long as the round makes sense (KIP-618).
        """
        fencing = self.rounds.get(outcome.connector)
        if fencing is None or FencingOrigin(fencing.round_id) != outcome.origin:
            return
        if outcome.status < 500:
            self._end(fencing, outcome.status, outcome.error)
            return
        self.context.set_timer(_retry_timer(fencing), min(_RETRY_MAX_MS, _RETRY_MS * 2 ** min(fencing.attempts, 5)))
        fencing.attempts += 1

    def on_retry_timer(self, key: TaskCountRetry) -> None:
        """Time to write the task count record again."""
        fencing = self.rounds.get(key.connector)
        if fencing is not None and fencing.round_id == key.round_id:
            self._write_record(fencing)

    def cancel(self, connector: str, error: str, status: int = 409) -> None:
        """Newer task configs were seen, or this worker may lead no more: end the round and write nothing."""
        fencing = self.rounds.get(connector)
        if fencing is not None:
            self.writer.withdraw(FencingOrigin(fencing.round_id))
            self._end(fencing, status, error)

    def cancel_all(self, error: str, status: int = 409) -> None:
        """The same for all rounds."""
        for connector in sorted(self.rounds):
            self.cancel(connector, error, status)

    def _fence(self, fencing: FencingRound, recorded: int) -> None:
        group_id = self.context.settings.worker.group_id
        ids = tuple(f"{group_id}-{fencing.connector}-{number}" for number in range(recorded))
        fencing.phase = moved(ROUND_MOVES, fencing.phase, RoundPhase.FENCING, fencing.connector)
        fencing.request_id = self.context.new_request_id(RoundFenced(fencing.connector))
        self.context.record(payloads.FencingStarted(recorded, ids), fencing.connector, why=TaskCountOutdated())
        config = self.context.config.connector_config(fencing.connector) or {}
        self.context.emit(FenceProducers(fencing.request_id, fencing.connector, dict(config), ids))

    def _write_record(self, fencing: FencingRound) -> None:
        fencing.phase = moved(ROUND_MOVES, fencing.phase, RoundPhase.RECORDING, fencing.connector)
        self.writer.put_task_count(
            fencing.connector,
            fencing.task_count,
            fencing.task_config_generation,
            FencingOrigin(fencing.round_id),
        )

    def _end(self, fencing: FencingRound, status: int, error: str | None) -> None:
        del self.rounds[fencing.connector]
        self.context.pending.drop(fencing.request_id)
        self.context.timers.cancel(_retry_timer(fencing))
        if error is not None:
            self.context.record(payloads.FencingFailed(error), fencing.connector)
        elif fencing.phase is not RoundPhase.READING:
            self.context.record(payloads.FencingCompleted(fencing.task_count), fencing.connector)
        self.context.signal(*(FencingOutcome(waiter, status, error) for waiter in fencing.waiters))


def _retry_timer(fencing: FencingRound) -> TaskCountRetry:
    return TaskCountRetry(fencing.connector, fencing.round_id)
