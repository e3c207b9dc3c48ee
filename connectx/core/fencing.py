"""Fencing rounds: the leader makes sure that no producer of an older task generation can write (KIP-618).

Decides whether a round is needed, which transactional ids it fences and when the task count record may be written.
Mirrors Kafka Connect's DistributedHerder.ZombieFencing, without its blocking continuation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from connectx.core.config_writer import ConfigWriter, FencingOrigin, WriteOutcome
from connectx.core.context import Context
from connectx.core.messages import ConfigReadToEnd, FenceProducers, ProducersFenced, ReadConfigToEnd
from connectx.model.events import EventKind
from connectx.model.ids import TaskId


class RoundPhase(StrEnum):
    """Where a round is."""

    READING = "reading"  # reads the config topic to its end: done, RECORDING or FENCING
    FENCING = "fencing"  # producers are being fenced: RECORDING
    RECORDING = "recording"  # the task count record is written and read back: done


@dataclass(frozen=True, slots=True)
class LocalWaiter:
    """A task of the leader itself waits for the round."""

    task: TaskId
    instance: int


@dataclass(frozen=True, slots=True)
class RequestWaiter:
    """Another worker's request waits for the round."""

    request_id: int


Waiter = LocalWaiter | RequestWaiter


@dataclass(frozen=True, slots=True)
class FencingOutcome:
    """What a waiter is told; `status` is the HTTP status for a request."""

    waiter: Waiter
    status: int
    error: str | None


@dataclass(slots=True)
class FencingRound:
    """One connector's round; later requests join it and share the result."""

    connector: str
    phase: RoundPhase
    waiters: list[Waiter]
    request_id: int | None = None
    task_count: int = 0
    task_config_generation: int | None = None


@dataclass(slots=True)
class FencingRounds:
    """Active rounds, at most one per connector. `outcomes` collects results until the worker's core takes them."""

    context: Context
    writer: ConfigWriter
    rounds: dict[str, FencingRound] = field(default_factory=dict)
    outcomes: list[FencingOutcome] = field(default_factory=list)

    def request(self, connector: str, waiter: Waiter) -> None:
        """Join the connector's round, or begin one by reading the config topic to its end."""
        active = self.rounds.get(connector)
        if active is not None:
            active.waiters.append(waiter)
            return
        request_id = self.context.new_request_id()
        self.rounds[connector] = FencingRound(connector, RoundPhase.READING, [waiter], request_id)
        self.context.emit(ReadConfigToEnd(request_id, self.context.settings.worker_sync_timeout_ms))

    def on_read(self, stimulus: ConfigReadToEnd) -> None:
        """Decide, with the newest config in view, what this round has to do (section 14.3 of the reference)."""
        fencing = self._waiting(stimulus.request_id, RoundPhase.READING)
        if fencing is None:
            return
        config = self.context.config
        if stimulus.error is not None:
            self._end(fencing, 500, f"Failed to read the config topic to its end: {stimulus.error}")
            return
        if not config.contains(fencing.connector):
            self._end(fencing, 404, f"Connector {fencing.connector} not found")
            return
        if not config.pending_fencing(fencing.connector):
            self._end(fencing, 200, None)
            return
        fencing.task_count = config.task_count(fencing.connector)
        fencing.task_config_generation = config.task_config_generation(fencing.connector)
        recorded = config.task_count_record(fencing.connector)
        if recorded is None or recorded == fencing.task_count == 1:
            self._write_record(fencing)
        else:
            self._fence(fencing, recorded)

    def on_producers_fenced(self, stimulus: ProducersFenced) -> None:
        """All producers of the previous task count are fenced, or the round has failed."""
        fencing = self._waiting(stimulus.request_id, RoundPhase.FENCING)
        if fencing is None:
            return
        if stimulus.error is not None:
            self._end(fencing, 500, f"Failed to fence older producers: {stimulus.error}")
        else:
            self._write_record(fencing)

    def on_record_written(self, outcome: WriteOutcome) -> None:
        """The task count record can be read back, or was refused."""
        fencing = self.rounds.get(outcome.connector)
        if fencing is not None and fencing.phase is RoundPhase.RECORDING:
            self._end(fencing, outcome.status, outcome.error)

    def cancel(self, connector: str, error: str) -> None:
        """Newer task configs were seen, or this worker leads no more: end with 409 and write nothing."""
        fencing = self.rounds.get(connector)
        if fencing is not None:
            self._end(fencing, 409, error)

    def cancel_all(self, error: str) -> None:
        """This worker leads no more."""
        for connector in sorted(self.rounds):
            self.cancel(connector, error)

    # ---------------------------------------------------------------------------------------------- inner moves

    def _fence(self, fencing: FencingRound, recorded: int) -> None:
        group_id = self.context.settings.group_id
        ids = tuple(f"{group_id}-{fencing.connector}-{number}" for number in range(recorded))
        fencing.phase = RoundPhase.FENCING
        fencing.request_id = self.context.new_request_id()
        self.context.record(
            EventKind.FENCING_STARTED,
            fencing.connector,
            cause="new task configs follow the last task count record",
            task_count=recorded,
            transactional_ids=list(ids),
        )
        config = self.context.config.connector_config(fencing.connector) or {}
        self.context.emit(FenceProducers(fencing.request_id, fencing.connector, dict(config), ids))

    def _write_record(self, fencing: FencingRound) -> None:
        fencing.phase = RoundPhase.RECORDING
        fencing.request_id = None
        self.writer.put_task_count(
            fencing.connector,
            fencing.task_count,
            fencing.task_config_generation,
            FencingOrigin(fencing.connector),
        )

    def _end(self, fencing: FencingRound, status: int, error: str | None) -> None:
        del self.rounds[fencing.connector]
        if error is not None:
            self.context.record(EventKind.FENCING_FAILED, fencing.connector, cause=error, error=error)
        elif fencing.phase is not RoundPhase.READING:
            self.context.record(EventKind.FENCING_COMPLETED, fencing.connector, task_count=fencing.task_count)
        self.outcomes.extend(FencingOutcome(waiter, status, error) for waiter in fencing.waiters)

    def _waiting(self, request_id: int, phase: RoundPhase) -> FencingRound | None:
        for connector in sorted(self.rounds):
            fencing = self.rounds[connector]
            if fencing.request_id == request_id and fencing.phase is phase:
                return fencing
        return None
