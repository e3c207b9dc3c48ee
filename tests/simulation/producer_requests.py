"""A producer's request reaches the model broker: what it does, and whether its producer is fenced."""

from __future__ import annotations

from dataclasses import dataclass

from connectx.core.clients.messages import FetchMetadata
from connectx.core.producer import messages as msg
from tests.simulation.broker_requests import TransactionalBroker, TransactionState
from tests.simulation.connections import Connection, Packet
from tests.simulation.sim_producer import SimProducer


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a request did. `ended` names the transactional id whose markers are to be written now."""

    answer: msg.Answer
    ended: str | None = None
    is_commit: bool = False


def arrive(broker: TransactionalBroker, connection: Connection, packet: Packet, *, is_late: bool) -> Arrival:
    """Let the broker take in a request, on time or late."""
    request = packet.request
    if isinstance(request, FetchMetadata):
        return Arrival(broker.handle(connection.node, request, packet.values))
    name = request.transactional_id
    found = None if name is None else broker.ids.get(name)
    was_preparing = found is not None and found.is_preparing
    answer = broker.handle(connection.node, request, packet.values)
    found = None if name is None else broker.ids.get(name)
    if found is None:
        return Arrival(answer)
    client = connection.client
    if isinstance(client, SimProducer):
        if isinstance(answer, msg.ProducerIdGranted) and answer.error is None and not is_late:
            client.fences = found.fences
        client.is_excused |= _is_early_abort(request, answer, client)
    if was_preparing or not found.is_preparing:
        return Arrival(answer)
    return Arrival(answer, name, found.state is TransactionState.PREPARE_COMMIT)


def is_fenced(broker: TransactionalBroker, producer: SimProducer) -> bool:
    """True when a newer producer, a leader, a time-out or a late request has fenced it, or it has no epoch yet."""
    name = producer.core.settings.transactional_id
    found = None if name is None else broker.ids.get(name)
    return found is None or found.fences != producer.fences


def _is_early_abort(request: msg.Request, answer: msg.Answer, client: SimProducer) -> bool:
    """Kafka fences whoever aborts while the markers before are written, and records may or may not have arrived."""
    is_abort = isinstance(request, msg.EndTransaction) and not request.commit and request.protocol == 2
    is_refused = isinstance(answer, msg.TransactionEnded) and answer.error == "PRODUCER_FENCED"
    return is_abort and is_refused and request.epoch in client.lost_epochs  # type: ignore[union-attr]
