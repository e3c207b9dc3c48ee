"""A job on Spark's executors in virtual time: it sends a source task's slice with the real producer core.

An executor is a machine of its own: it may be slow, lose its network or die, and it goes on for a while when the worker
that started the job does not want it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectx.core.producer import messages as msg
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.model.ids import TopicPartition
from tests.simulation.chooser import one_of
from tests.simulation.sim_producer import SimProducer

if TYPE_CHECKING:
    from tests.simulation.world import World

ABANDONED_MS = (0, 50, 2_000, 9_000)  # how long an executor goes on with a job that nobody waits for
GIVEN_UP_MS = 8_000


@dataclass
class Executor:
    """A machine; its threads never stand still."""

    sends: bool = True
    receives: bool = True
    tasks_frozen: bool = False


class SimJob:
    """One first attempt of a task of a job, which sends `batches` to one partition.

    Args:
        settings: of the producer; without a transactional id it has a producer of its own.
        loan: of the lender, None without transactions.
        lost_epochs: where the lender keeps epochs of batches that stayed unanswered.
        on_step: called when something has happened.
    """

    def __init__(
        self,
        world: World,
        settings: msg.ProducerSettings,
        loan: msg.Loan | None,
        lost_epochs: set[int],
        batches: list[tuple[TopicPartition, list[Any]]],
        on_step: Callable[[], object],
    ) -> None:
        self.world = world
        self.machine = Executor()
        self.error: str | None = None
        self._on_step = on_step
        self.producer = SimProducer(world, self.machine, settings, self, on_step)
        self.producer.lost_epochs = lost_epochs
        self._begin = msg.Call.INITIALIZE if loan is None else msg.Borrow(loan)
        self._batches = batches
        world.at(world.poll_ms(), self._send)
        if world.fails_put():
            world.at(one_of(world.chooser, (1, 30, 600)), self._die)
        world.at(GIVEN_UP_MS, self._give_up)
        world.at(2 * GIVEN_UP_MS, self.producer.abandon)

    @property
    def is_done(self) -> bool:
        """True when Kafka has all of its records."""
        return self.error is None and not self._batches and self.producer.is_settled

    @property
    def failure(self) -> str | None:
        """Why it cannot be done, None when nothing is wrong."""
        core = self.producer.core
        if core.phase is Phase.FAILED:
            return f"a borrower has ended: {core.failure}"
        return f"a borrower is refused: {core.refusal}" if core.phase is Phase.REFUSED else self.error

    def leave(self) -> None:
        """The worker does not wait for it any more."""
        self.world.at(0 if self.is_done else one_of(self.world.chooser, ABANDONED_MS), self.producer.abandon)

    def _send(self) -> None:
        if self.error is None:
            self.producer.handle(self._begin)
            for batch in self._batches:
                self.producer.append(batch)
        self._batches = []
        self._on_step()

    def _die(self) -> None:
        """The executor is killed; what it has sent may still arrive."""
        if not self.is_done:
            self.error = "an executor was killed"
            self.producer.abandon()
            self._on_step()

    def _give_up(self) -> None:
        if not self.is_done:
            self.error = self.error or "Kafka did not answer an executor in time"
            self._on_step()
