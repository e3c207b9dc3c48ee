"""Rules that hold for a producer's core after every step. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from typing import Final

from connectx.core.producer import messages as msg
from connectx.core.producer.delivery import PER_PARTITION_IN_FLIGHT, SEQUENCES
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.core.producer.state import ProducerState
from connectx.core.rules import BrokenRule, Marks, broken_rules, gone_back


class Rule(StrEnum):
    """A rule of the producer's state; the value is its sentence."""

    SEQUENCES_FOLLOW = "sequences of a partition follow the order of its batches and do not overlap"
    ORDER_IS_KEPT = "batches are sent in their order, and after a failed one the others wait"
    AWAITED_ONCE = "a batch in flight, and no other, is in one pending request, with its sequence"
    LIMITS = "no node and no partition has more in flight than the settings and Kafka allow"
    PRESENT_EPOCH = "every pending request is of the present producer id and epoch"
    ENDS_WHOLE = "a transaction ends when every batch is settled, and one end is pending at most"
    ONE_COORDINATOR_REQUEST = "the coordinator and the metadata have one request to answer at a time"
    NEVER_STUCK = "a producer that has something to do waits for an answer or a time"
    REASON_IS_KNOWN = "a refused transaction and a failed producer have their reason"
    EMPTY_WITHOUT_TRANSACTION = "a transactional producer has batches only in a transaction"
    LENDER_WAITS = "while it lends, a producer has no batches and does not end its transaction"
    NEVER_BACK = "time, request numbers and the epoch of a producer id never go back"


_ENDS: Final = (Phase.COMMITTING, Phase.ABORTING)
_SENDS: Final = (Phase.OPEN, Phase.COMMITTING)


def marks_of(core: ProducerState) -> Marks:
    """Return what `broken_by` compares after the next step."""
    return {
        "now_ms": core.now_ms,
        "last request": core.requests.last_id,
        f"epoch of producer {core.producer_id}": core.epoch,
    }


def broken_by(core: ProducerState, before: Marks | None) -> tuple[BrokenRule, ...]:
    """Return the rules that do not hold, none for a sound core."""
    back = () if before is None else gone_back(Rule.NEVER_BACK, before, marks_of(core))
    return (*broken_rules(_RULES, core), *back)


def _sequences_follow(core: ProducerState) -> Iterator[str]:
    for target, queue in core.delivery.queues.items():
        batches = sorted((*queue.in_flight, *queue.waiting), key=lambda pending: pending.place)
        for one, other in pairwise(batches):
            if one.sequence < 0 <= other.sequence:
                yield f"{target} has a batch without sequence before {other.sequence}"
            elif one.sequence >= 0 and other.sequence >= 0:
                distance = (other.sequence - one.sequence) % SEQUENCES
                if not one.batch.records <= distance < SEQUENCES // 2:
                    yield f"{target} has sequence {other.sequence} after {one.batch.records} of {one.sequence}"


def _order_is_kept(core: ProducerState) -> Iterator[str]:
    for target, queue in core.delivery.queues.items():
        for batches in (queue.in_flight, queue.waiting):
            places = [pending.place for pending in batches]
            if places != sorted(places):
                yield f"{target} has batches in the order {places}"
        overtakes = queue.in_flight and queue.waiting and queue.waiting[0].place < queue.in_flight[-1].place
        if overtakes and not queue.recovering:
            yield f"{target} does not wait for batch {queue.waiting[0].batch.number} to be sent again"


def _awaited_once(core: ProducerState) -> Iterator[str]:
    sent = (batch for _, request in core.requests.of(msg.Produce) for batch in request.batches)
    awaited = sorted((batch.target, batch.number, batch.base_sequence) for batch in sent)
    in_flight = sorted(
        (target, pending.batch.number, pending.sequence)
        for target, queue in core.delivery.queues.items()
        for pending in queue.in_flight
    )
    if awaited != in_flight:
        yield f"in requests {awaited}, in flight {in_flight}"


def _limits(core: ProducerState) -> Iterator[str]:
    most = core.settings.max_in_flight
    for node, count in core.requests.per_node(msg.Produce).items():
        if count > most:
            yield f"node {node} has {count} requests with batches"
    for target, queue in core.delivery.queues.items():
        if len(queue.in_flight) > (1 if queue.one_at_a_time else min(most, PER_PARTITION_IN_FLIGHT)):
            yield f"{target} has {len(queue.in_flight)} batches in flight"


def _present_epoch(core: ProducerState) -> Iterator[str]:
    for sent in core.requests.sent.values():
        match sent.request:
            case msg.Produce() | msg.AddPartitions() | msg.EndTransaction() as request:
                if (request.producer_id, request.epoch) != (core.producer_id, core.epoch):
                    yield f"{request} is pending in epoch {core.producer_id}/{core.epoch}"
            case _:  # the others are of no epoch
                pass


def _ends_whole(core: ProducerState) -> Iterator[str]:
    for _, end in core.requests.of(msg.EndTransaction):
        if core.delivery.queues:
            yield f"{end} with batches of {sorted(core.delivery.queues)}"
        if core.phase is not (Phase.COMMITTING if end.commit else Phase.ABORTING):
            yield f"{end} while {core.phase}"


def _one_coordinator_request(core: ProducerState) -> Iterator[str]:
    kinds = [type(sent.request).__name__ for sent in core.requests.sent.values()]
    if sum(kind not in ("Produce", "FetchMetadata") for kind in kinds) > 1 or kinds.count("FetchMetadata") > 1:
        yield f"pending are {kinds}"


def _never_stuck(core: ProducerState) -> Iterator[str]:
    sends = _SENDS if core.settings.transactional_id else (Phase.READY,)
    is_due = core.delivery.queues and core.phase in sends
    is_changing = core.phase in (Phase.INITIALIZING, Phase.RENEWING, *_ENDS)
    if (is_due or is_changing) and not core.requests.sent and core.next_time_ms() is None:
        is_splitting = any(pending.splitting for queue in core.delivery.queues.values() for pending in queue.waiting)
        if not is_splitting:
            yield f"it is {core.phase} and waits for nothing"


def _reason_is_known(core: ProducerState) -> Iterator[str]:
    if core.phase is Phase.REFUSED and core.refusal is None:
        yield "the transaction was refused for no reason"
    if (core.phase is Phase.FAILED) != (core.failure is not None):
        yield f"it is {core.phase}, its failure {core.failure}"
    if core.phase is Phase.FAILED and (core.requests.sent or core.delivery.queues):
        yield "it has failed and has work left"


def _empty_without_transaction(core: ProducerState) -> Iterator[str]:
    may_have = (*_SENDS, Phase.REFUSED, Phase.ABORTING)
    if core.settings.transactional_id is not None and core.phase not in may_have and core.delivery.queues:
        yield f"it is {core.phase} and has batches of {sorted(core.delivery.queues)}"


def _lender_waits(core: ProducerState) -> Iterator[str]:
    lends = (Phase.OPEN, Phase.REFUSED, Phase.FAILED)  # the borrowers may not know yet that it is refused
    if core.lent and (core.phase not in lends or core.delivery.queues):
        yield f"it lends {core.lent}, is {core.phase} and has batches of {sorted(core.delivery.queues)}"


_RULES: Final = {
    Rule.SEQUENCES_FOLLOW: _sequences_follow,
    Rule.ORDER_IS_KEPT: _order_is_kept,
    Rule.AWAITED_ONCE: _awaited_once,
    Rule.LIMITS: _limits,
    Rule.PRESENT_EPOCH: _present_epoch,
    Rule.ENDS_WHOLE: _ends_whole,
    Rule.ONE_COORDINATOR_REQUEST: _one_coordinator_request,
    Rule.NEVER_STUCK: _never_stuck,
    Rule.REASON_IS_KNOWN: _reason_is_known,
    Rule.EMPTY_WITHOUT_TRANSACTION: _empty_without_transaction,
    Rule.LENDER_WAITS: _lender_waits,
}
