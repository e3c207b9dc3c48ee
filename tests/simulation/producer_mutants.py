"""Ways to break the producer's core that only late packets show: what the producers' simulation must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from connectx.core.clients.messages import Unanswered
from connectx.core.clients.requests import InFlight
from connectx.core.producer import messages as msg
from connectx.core.producer.delivery import Delivery, Pending
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.core.producer.producer import ProducerCore
from connectx.model.ids import TopicPartition

Hits = list[str]
"""Grows each time when a mutant does other than the sound core would."""


@dataclass(frozen=True)
class ProducerMutant:
    """One way to break it; `seed` finds it with one of the invariants."""

    name: str
    protocol: int
    patch: Callable[[pytest.MonkeyPatch, Hits], None]
    invariants: tuple[int, ...]
    seed: int = 0


def _keep_epoch(patch: pytest.MonkeyPatch, hits: Hits, *, after: tuple[Phase, ...]) -> None:
    finish = ProducerCore._finish

    def without_renewal(self: ProducerCore, *, renew: bool) -> None:
        keeps = renew and self.phase in after
        if keeps:
            hits.append(self.phase)
        finish(self, renew=renew and not keeps)

    patch.setattr(ProducerCore, "_finish", without_renewal)


def same_epoch_after_a_commit(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A commit with an unanswered request leaves the epoch as it is."""
    _keep_epoch(patch, hits, after=(Phase.COMMITTING,))


def same_epoch_after_an_abort(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """An abort leaves the epoch as it is."""
    _keep_epoch(patch, hits, after=(Phase.ABORTING,))


def as_librdkafka(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """One epoch for the whole life of a producer, and retries on new connections."""
    _keep_epoch(patch, hits, after=(Phase.COMMITTING, Phase.ABORTING))


def retries_with_the_next_epoch(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """EndTxn without an answer counts as done: it is sent again with the epoch that its answer would have had."""
    unanswered = ProducerCore._on_unanswered

    def on_unanswered(self: ProducerCore, sent: InFlight[msg.Request], lost: Unanswered) -> None:
        unanswered(self, sent, lost)
        if isinstance(sent.request, msg.EndTransaction):
            hits.append(lost.reason)
            self.epoch += 1

    patch.setattr(ProducerCore, "_on_unanswered", on_unanswered)


def lost_endtxn_counts_as_committed(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A commit that finds nothing to end, or a newer epoch, takes it for its own earlier attempt."""
    ended = ProducerCore._on_ended

    def on_ended(self: ProducerCore, request: msg.EndTransaction, answer: msg.TransactionEnded) -> None:
        if request.commit and answer.error in ("INVALID_TXN_STATE", "PRODUCER_FENCED"):
            hits.append(str(answer.error))
            answer = msg.TransactionEnded(None, self.producer_id, self.epoch)
        ended(self, request, answer)

    patch.setattr(ProducerCore, "_on_ended", on_ended)


def fails_when_nothing_is_open(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A repeated commit that finds nothing open counts as failed, as in Java's producer."""

    was_committed = ProducerCore._was_committed_before

    def never(self: ProducerCore, request: msg.EndTransaction) -> bool:
        hits.extend([str(request)] * was_committed(self, request))
        return False

    patch.setattr(ProducerCore, "_was_committed_before", never)


def sequences_go_on(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """Sequences do not begin again with a new epoch."""

    def keep(self: Delivery) -> None:
        hits.extend(map(str, self.sequences))

    patch.setattr(Delivery, "forget_sequences", keep)


def sequences_begin_again_with_each_attempt(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """A batch that is sent again gets a new sequence, so that the broker cannot know it."""
    retry = Delivery.retry

    def renumber(self: Delivery, target: TopicPartition, number: int, *args: Any) -> None:
        pending = self.find_in_flight(target, number)
        retry(self, target, number, *args)
        if pending is not None:
            hits.append(str(number))
            pending.sequence = -1

    patch.setattr(Delivery, "retry", renumber)


def answers_of_another_transaction(patch: pytest.MonkeyPatch, hits: Hits) -> None:
    """An abort does not wait for requests in flight, and an answer settles the first batch of its partition."""
    find = Delivery.find_in_flight
    drop_waiting = Delivery.drop_waiting

    def first_in_flight(self: Delivery, target: TopicPartition, number: int) -> Pending | None:
        queue = self.queues.get(target)
        if (found := find(self, target, number)) is None and queue is not None and queue.in_flight:
            hits.append(str(number))
            return queue.in_flight[0]
        return found

    def drop_everything(self: Delivery) -> list[int]:
        dropped, in_flight = drop_waiting(self), self.drop_all()
        hits.extend(map(str, in_flight))
        return [*dropped, *in_flight]

    patch.setattr(Delivery, "find_in_flight", first_in_flight)
    patch.setattr(Delivery, "drop_waiting", drop_everything)


PRODUCER_MUTANTS = (
    ProducerMutant("protocol 1: same epoch after an unanswered commit", 1, same_epoch_after_a_commit, (2, 3), 22),
    ProducerMutant("protocol 1: same epoch after an abort", 1, same_epoch_after_an_abort, (2, 3), 52),
    ProducerMutant("protocol 1: as librdkafka", 1, as_librdkafka, (2, 3), 22),
    ProducerMutant("protocol 1: sequences go on with a new epoch", 1, sequences_go_on, (9,), 3),
    ProducerMutant("protocol 2: sequences go on with a new epoch", 2, sequences_go_on, (9,), 0),
    ProducerMutant(
        "protocol 1: new sequences for each attempt", 1, sequences_begin_again_with_each_attempt, (2, 3, 9), 8
    ),
    ProducerMutant(
        "protocol 2: new sequences for each attempt", 2, sequences_begin_again_with_each_attempt, (2, 3, 9), 0
    ),
    ProducerMutant("protocol 2: EndTxn again with the next epoch", 2, retries_with_the_next_epoch, (9,), 4),
    ProducerMutant("protocol 1: a lost EndTxn counts as committed", 1, lost_endtxn_counts_as_committed, (2, 3), 1),
    ProducerMutant("protocol 2: a lost EndTxn counts as committed", 2, lost_endtxn_counts_as_committed, (2, 3), 0),
    ProducerMutant("protocol 1: a repeated commit that finds nothing fails", 1, fails_when_nothing_is_open, (9,), 268),
    ProducerMutant("protocol 2: answers of another transaction", 2, answers_of_another_transaction, (2, 3), 37),
)
