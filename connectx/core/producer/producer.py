"""The producer: what to send, when to retry, and when a transaction is committed.

`handle(stimulus, now_ms)` is the only entry. It never reads a clock, waits or does I/O. A driver or a simulation
carries out the effects, and reports for every request its answer or that none will come.

**Protocol 2** (KIP-890, `transaction.version` 2): EndTxn returns the epoch of the next transaction, so a packet of an
earlier one is refused whenever it arrives. **Protocol 1** has one epoch for many transactions. There the producer
raises its epoch itself (InitProducerId with id and epoch) after every abort, and after a commit if any request of the
transaction stayed unanswered on the connection that it was first sent on: such a request may still arrive.

**Loans** (Lend, Returned, Borrow): other processes send into the open transaction, each to its own partitions, with
the sequences that follow here. Only the lender ends the transaction. It commits once all borrowers have reported that
Kafka has every batch of theirs. Otherwise it aborts, and the next epoch refuses whatever they still send.

An InitProducerId that stayed unanswered may arrive late, too: with protocol 1 after an abort, with both at the start.
It aborts the transaction that is open then, and the producer fails as fenced although no other took over. With Kafka
3.9 so does an AddPartitionsToTxn that arrives late, before the InitProducerId that raises the epoch. The task restarts
from its committed offsets: no records are lost or doubled.

With protocol 1 it may also arrive between a commit whose answer was lost and the next attempt. Kafka then forgets how
the transaction ended, and answers INVALID_TXN_STATE. The transaction is committed: it was open under this epoch, this
producer asked for no abort, and every other abort raises the epoch, which Kafka reports as PRODUCER_FENCED. Java's
producer fails here.

Mirrors TransactionManager and Sender of Kafka's Java producer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from connectx.core.clients import messages as clients
from connectx.core.clients.errors import LOST_LEADER, UNKNOWN
from connectx.core.clients.requests import InFlight
from connectx.core.ignored import NoChange, NotPending
from connectx.core.moves import moved
from connectx.core.producer import errors, invariants
from connectx.core.producer import messages as msg
from connectx.core.producer.delivery import Pending
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.core.producer.state import ProducerState
from connectx.core.rules import BrokenRule, Marks
from connectx.model.ids import TopicPartition

_CONCURRENT_BACKOFF_MS = 20  # the last transaction's markers are being written (Java: ADD_PARTITIONS_RETRY_BACKOFF_MS)
# An earlier batch of the partition has failed: it is sent first, and alone.
_BACKOFFS_MS = {errors.CONCURRENT: _CONCURRENT_BACKOFF_MS, errors.OUT_OF_ORDER: 0}
_UNKNOWN_ERROR_ATTEMPTS = 10
_FENCED_ABORT_ATTEMPTS = 10
_EMPTIED_BY_ABORT = (Phase.REFUSED, Phase.ABORTING)


class ProducerCore(ProducerState):
    """State machine of one idempotent or transactional producer."""

    __slots__ = ()

    def handle(self, stimulus: msg.ProducerStimulus, now_ms: int) -> clients.ClientStep[msg.ProducerEffect]:
        """Take in a stimulus; times only grow. The step shows a ProducerView."""
        step = self.take(stimulus, now_ms, self._on_stimulus)
        return clients.ClientStep(step.transitions, step.effects, step.ignored, self._view(), self.next_time_ms())

    def check(self, before: Marks | None = None) -> tuple[BrokenRule, ...]:
        return invariants.broken_by(self, before)

    def marks(self) -> Marks:
        return invariants.marks_of(self)

    def _on_stimulus(self, stimulus: msg.ProducerStimulus) -> None:
        match stimulus:
            case msg.Call():
                self._on_call(stimulus)
            case msg.Append(batches):
                self._append(batches)
            case msg.Refuse(failure):
                if self._may(stimulus, self.phase is Phase.OPEN):
                    self._refuse_transaction(failure)
            case msg.Lend(targets):
                if self._may(stimulus, self.phase is Phase.OPEN and self.delivery.is_empty() and not self.borrows):
                    self.lent, self.may_be_open = targets, True
            case msg.Returned():
                if self._may(stimulus, bool(self.lent)):
                    self._on_returned(stimulus)
            case msg.Borrow(loan):
                if self._may(stimulus, self.phase is Phase.NEW):
                    self._borrow(loan)
            case msg.BatchSplit(number, parts):
                self._may(stimulus, self.delivery.replace(number, parts))
            case clients.MetadataFetched():
                self._on_metadata(stimulus)
            case clients.Answered() | clients.Unanswered():
                self._on_settled(stimulus)
            case msg.AuthenticationFailed(reason):
                if self._may(stimulus, self.phase is not Phase.FAILED):
                    self._fail(msg.Failure(errors.AUTHENTICATION, "connect", reason))
            case clients.TimeReached():
                pass
            case _:
                assert_never(stimulus)
        self._advance()

    def _on_call(self, call: msg.Call) -> None:
        match call:
            case msg.Call.INITIALIZE:
                if self._may(call, self.phase is Phase.NEW):
                    self._move(Phase.INITIALIZING if self.settings.idempotent else Phase.READY)
            case msg.Call.BEGIN:
                if self._may(call, self.phase is Phase.READY and self.settings.transactional_id is not None):
                    self._begin()
            case msg.Call.COMMIT:
                if self._may(call, self.phase is Phase.OPEN and not self.lent and not self.borrows):
                    self._move(Phase.COMMITTING)
            case msg.Call.ABORT:
                if self._may(call, self._may_abort() and not self.borrows):
                    self._abort()
            case msg.Call.PURGE:
                if self._may(call, not self.purged):
                    self._purge()
            case _:
                assert_never(call)

    def _may(self, stimulus: object, is_allowed: bool) -> bool:
        """Whether a call is taken; one that is not changes nothing."""
        if not is_allowed:
            name = str(stimulus) if isinstance(stimulus, msg.Call) else type(stimulus).__name__
            self.ignore(NoChange(name, self.phase))
        return is_allowed

    def _may_abort(self) -> bool:
        is_before_its_end = self.phase is Phase.COMMITTING and not self.is_ending
        return self.phase in (Phase.OPEN, Phase.REFUSED) or is_before_its_end

    def _view(self) -> msg.ProducerView:
        return msg.ProducerView(self.phase, self.epoch, self.refusal, self.failure, self.loan, self.may_arrive_late)

    def _begin(self) -> None:
        self._move(Phase.OPEN)
        self.refusal = None
        self.protocol = 2 if self.transaction_version >= 2 else 1
        self.may_be_open = self.is_ending = self.may_have_ended = self.was_acknowledged = False
        self.lent = ()
        self.coordinator_retry.reset()
        self.added.clear()
        if self.purged:
            self._refuse_transaction(msg.Failure(errors.PURGED, "begin a transaction"))

    def _append(self, batches: tuple[msg.Batch, ...]) -> None:
        transactional = self.settings.transactional_id is not None
        takes = self.phase is Phase.OPEN if transactional else self.phase in (Phase.READY, Phase.RENEWING)
        if self.lent or (self.borrows and not self.added.issuperset(batch.target for batch in batches)):
            raise ValueError("a lender and its borrowers send to different partitions")
        if takes and not self.purged:
            self.delivery.append(batches, self.now_ms)
        else:
            self.emit(*(msg.BatchDropped(batch.number) for batch in batches))

    def _on_returned(self, returned: msg.Returned) -> None:
        for target, records in returned.records.items():
            self.delivery.advance(target, records)
        self.was_acknowledged |= any(returned.records.values())
        self.may_arrive_late |= returned.may_arrive_late or returned.failure is not None
        self.lent = ()
        if returned.failure is not None:
            self._refuse_transaction(returned.failure)

    def _borrow(self, loan: msg.Loan) -> None:
        self._move(Phase.OPEN)
        self.producer_id, self.epoch, self.protocol = loan.producer_id, loan.epoch, loan.protocol
        self.added = set(loan.sequences)
        self.borrows = True
        for target, sequence in loan.sequences.items():
            self.delivery.advance(target, sequence)

    def _abort(self) -> None:
        if self.lent:
            self._on_returned(msg.Returned({}, may_arrive_late=True))
        self._move(Phase.ABORTING)
        self._drop(self.delivery.drop_waiting())

    def _purge(self) -> None:
        self.purged = True
        if self.phase is not Phase.REFUSED and self._may_abort():
            self._refuse_transaction(msg.Failure(errors.PURGED, "commit the transaction"))
        self._drop(self.delivery.drop_waiting())

    def _on_settled(self, settled: clients.Answered[msg.Answer] | clients.Unanswered) -> None:
        sent = self.requests.take(settled.request_id)
        if sent is None:
            self.ignore(NotPending(settled.request_id))
        elif isinstance(settled, clients.Unanswered):
            self._on_unanswered(sent, settled)
        else:
            self._on_answer(sent, settled.answer)

    def _on_answer(self, sent: InFlight[msg.Request], answer: object) -> None:
        match sent.request, answer:
            case msg.FindCoordinator(), msg.CoordinatorFound():
                self._on_coordinator(answer)
            case clients.FetchMetadata(), clients.MetadataFetched():
                self._on_metadata(answer)
            case msg.InitProducerId(), msg.ProducerIdGranted():
                self._on_producer_id(answer)
            case msg.AddPartitions(), msg.PartitionsAdded():
                self._on_partitions_added(answer)
            case msg.EndTransaction() as request, msg.TransactionEnded():
                self._on_ended(request, answer)
            case msg.Produce() as request, msg.Produced():
                for batch in request.batches:
                    result = answer.results.get(batch.number, msg.BatchResult(UNKNOWN))
                    self.may_be_open |= result.error != errors.CONCURRENT
                    self._on_result(batch, result)
            case request, _:
                raise TypeError(f"{answer} is no answer to {request}")

    def _on_unanswered(self, sent: InFlight[msg.Request], lost: clients.Unanswered) -> None:
        match sent.request:
            case clients.FetchMetadata():
                self.metadata_retry.later(self.settings, self.now_ms)
            case msg.Produce() as request:
                self.may_arrive_late |= lost.sent
                self.may_be_open |= lost.sent
                for batch in request.batches:
                    self.delivery.forget_leader(batch.target)
                    self._retry_batch(batch, None)
            case msg.FindCoordinator():
                self.coordinator_retry.later(self.settings, self.now_ms)
            case msg.InitProducerId() | msg.AddPartitions() | msg.EndTransaction() as request:
                self.may_arrive_late |= lost.sent
                self.may_have_ended |= lost.sent and isinstance(request, msg.EndTransaction)
                self.coordinator = None
                self.coordinator_retry.later(self.settings, self.now_ms)
            case _ as never:
                assert_never(never)

    def _on_coordinator(self, answer: msg.CoordinatorFound) -> None:
        if answer.error is None:
            self.coordinator, self.transaction_version = answer.node, answer.transaction_version
            self.coordinator_retry.reset()
        else:
            self._on_coordinator_error(answer.error, "find the transaction coordinator")

    def _on_producer_id(self, answer: msg.ProducerIdGranted) -> None:
        if self.phase not in (Phase.INITIALIZING, Phase.RENEWING):
            return
        if answer.error is not None:
            self._on_coordinator_error(answer.error, "initialise transactions")
            return
        self._adopt(answer.producer_id, answer.epoch)
        self._move(Phase.READY)

    def _on_partitions_added(self, answer: msg.PartitionsAdded) -> None:
        failed = {target: error for target, error in answer.errors.items() if error is not None}
        if not failed:
            self.may_be_open = True
            self.coordinator_retry.reset()
            self.added |= answer.errors.keys()
            return
        causes = sorted(item for item in failed.items() if item[1] != errors.NOT_ATTEMPTED)
        for target, error in causes[:1]:
            if error == UNKNOWN or error in errors.RETRIABLE or error in errors.FATAL:
                self._on_coordinator_error(error, "add partitions to the transaction")
            else:
                self._refuse_transaction(msg.Failure(error, f"send records to {target.topic}", topic=target.topic))

    def _on_ended(self, request: msg.EndTransaction, answer: msg.TransactionEnded) -> None:
        nothing_open = answer.error == errors.NOTHING_OPEN and not request.commit
        if answer.error == errors.ABORTABLE and request.commit:
            self.is_ending = False
            self._refuse_transaction(msg.Failure(answer.error, "commit the transaction"))
        elif self._may_follow_markers(request, answer.error):
            self.coordinator_retry.later(self.settings, self.now_ms)
        elif answer.error == errors.NOTHING_OPEN and self._was_committed_before(request):
            self._finish(renew=True)
        elif answer.error is not None and not nothing_open:
            self.may_have_ended = True  # Kafka may carry out what it reports as failed
            doing = "commit the transaction" if request.commit else "abort the transaction"
            error = "PRODUCER_FENCED" if self._was_aborted_by_another(request, answer.error) else answer.error
            self._on_coordinator_error(error, doing)
        elif request.protocol == 2 and not nothing_open:
            self._adopt(answer.producer_id, answer.epoch)
            self._finish(renew=False)
        else:
            self._finish(renew=not request.commit or self.may_arrive_late)

    def _was_committed_before(self, request: msg.EndTransaction) -> bool:
        """Whether INVALID_TXN_STATE can only mean that an earlier attempt has committed (see above)."""
        return request.commit and request.protocol == 1 and self.may_have_ended and self.was_acknowledged

    def _was_aborted_by_another(self, request: msg.EndTransaction, error: str) -> bool:
        """Whether INVALID_TXN_STATE means that a newer producer, or a timeout, has aborted the transaction.

        With protocol 2 Kafka takes the epoch before its own for that of a repeated request, until the newer producer
        has its epoch. A commit then meets an aborted transaction instead of PRODUCER_FENCED.
        """
        is_commit = request.commit and request.protocol == 2
        return is_commit and error == errors.NOTHING_OPEN and self.was_acknowledged

    def _may_follow_markers(self, request: msg.EndTransaction, error: str | None) -> bool:
        """Whether an abort may be refused only because the last transaction's markers are still being written.

        Kafka then takes its epoch for that of a late request. Of a transaction with acknowledged batches it does not.
        """
        is_early = not request.commit and request.protocol == 2 and not self.was_acknowledged
        return is_early and error in errors.FENCED and self.coordinator_retry.attempts < _FENCED_ABORT_ATTEMPTS

    def _finish(self, *, renew: bool) -> None:
        """The transaction has ended; `renew`: its epoch ends with it."""
        self._move(Phase.RENEWING if renew else Phase.READY)
        self.refusal = None
        self.coordinator_retry.reset()
        self.may_be_open = self.is_ending = False

    def _adopt(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.delivery.forget_sequences()
        self.may_arrive_late = False
        self.coordinator_retry.reset()

    def _on_result(self, batch: msg.SequencedBatch, result: msg.BatchResult) -> None:
        error, target = result.error, batch.target
        if error in errors.DELIVERED:
            self.delivery.delivered(target, batch.number)
            self.was_acknowledged = True
            self.emit(msg.BatchDelivered(batch.number))
        elif error in errors.RETRIABLE or (
            error == errors.OUT_OF_ORDER and not self.delivery.is_first(target, batch.number)
        ):
            if error in LOST_LEADER:
                self.delivery.forget_leader(target)
            self._retry_batch(batch, _BACKOFFS_MS.get(str(error)))
        elif self._is_splittable(error, batch):
            self.delivery.split(target, batch.number)
            self.emit(msg.SplitBatch(batch.number))
        elif self.settings.transactional_id is not None and error in errors.FATAL:
            self._fail(msg.Failure(str(error), f"send records to {target.topic}", result.message))
        elif self.settings.transactional_id is None and error in errors.RENEWING and self.settings.idempotent:
            self._retry_batch(batch, None)
            self._renew()
        else:
            self.delivery.refused(target, batch.number)
            self._refuse(batch.number, target, result)

    def _is_splittable(self, error: str | None, batch: msg.SequencedBatch) -> bool:
        pending = self.delivery.find_in_flight(batch.target, batch.number)
        has_several = pending is not None and pending.batch.records > 1
        return has_several and error in errors.TOO_LARGE and self.phase not in _EMPTIED_BY_ABORT and not self.purged

    def _retry_batch(self, batch: msg.SequencedBatch, backoff_ms: int | None) -> None:
        if self.phase in _EMPTIED_BY_ABORT or self.purged:
            if self.delivery.drop(batch.target, batch.number):
                self._drop([batch.number])
        else:
            self.delivery.retry(batch.target, batch.number, self.now_ms, backoff_ms)

    def _refuse(self, number: int, target: TopicPartition, result: msg.BatchResult) -> None:
        self.emit(msg.BatchRefused(number, result))
        error = str(result.error)
        if self.settings.transactional_id is not None:
            self._refuse_transaction(
                msg.Failure(error, f"send records to {target.topic}", result.message, target.topic)
            )
        elif self.settings.idempotent:
            self._renew()  # the sequences after it have a gap

    def _refuse_transaction(self, why: msg.Failure) -> None:
        """The transaction can only be aborted now. The first reason stays."""
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            self._move(Phase.REFUSED)
            self.refusal = why
        self._drop(self.delivery.drop_waiting())

    def _renew(self) -> None:
        if self.phase is Phase.READY:
            self._move(Phase.RENEWING)

    def _fail(self, why: msg.Failure) -> None:
        if self.phase is not Phase.FAILED:
            self._move(Phase.FAILED)
            self.failure = why
        self.requests.sent.clear()
        self._drop(self.delivery.drop_all())

    def _drop(self, numbers: Iterable[int]) -> None:
        self.emit(*(msg.BatchDropped(number) for number in numbers))

    def _on_metadata(self, metadata: clients.MetadataFetched) -> None:
        for pending, error in self.delivery.learn(metadata, self.now_ms):
            self._refuse(pending.batch.number, pending.batch.target, msg.BatchResult(error))
        if self.delivery.leaderless_topics():
            self.metadata_retry.later(self.settings, self.now_ms)
        else:
            self.metadata_retry.reset()

    def _on_coordinator_error(self, error: str, doing: str) -> None:
        """Retry, or end the producer. An unknown error may be a coordinator that moves: retry it a few times."""
        if error in errors.COORDINATOR:
            self.coordinator = None
        is_unknown = error == UNKNOWN and self.coordinator_retry.attempts < _UNKNOWN_ERROR_ATTEMPTS
        if error in errors.RETRIABLE or is_unknown:
            self.coordinator_retry.later(
                self.settings, self.now_ms, _CONCURRENT_BACKOFF_MS if error == errors.CONCURRENT else None
            )
        else:
            self._fail(msg.Failure(error, doing))

    def _advance(self) -> None:
        if self.phase in (Phase.NEW, Phase.FAILED):
            return
        for pending in self.delivery.expired(self.now_ms):
            self._refuse(pending.batch.number, pending.batch.target, msg.BatchResult(errors.DELIVERY_TIMEOUT))
        self._end_without_kafka()
        if self.now_ms >= self.coordinator_retry.due_ms and not self._has_coordinator_request():
            self._ask_coordinator()
        topics = self.delivery.leaderless_topics()
        if topics and self.now_ms >= self.metadata_retry.due_ms and not self.requests.has(clients.FetchMetadata):
            self._send(None, clients.FetchMetadata(topics))
        self._send_batches()

    def _end_without_kafka(self) -> None:
        """End a transaction that Kafka cannot know of."""
        is_ending = self.phase in (Phase.COMMITTING, Phase.ABORTING) and self.delivery.is_empty()
        if is_ending and not self.may_be_open and not self._has_coordinator_request():
            self.delivery.forget_sequences()
            self._finish(renew=self.protocol == 1 and self.may_arrive_late)

    def _ask_coordinator(self) -> None:
        request = self._coordinator_request()
        if request is None:
            return
        transactional_id = self.settings.transactional_id
        if transactional_id is not None and self.coordinator is None:
            self._send(None, msg.FindCoordinator(transactional_id))
            return
        if isinstance(request, msg.EndTransaction):
            self.is_ending = True
        if isinstance(request, msg.AddPartitions):
            self.may_be_open = True
        self._send(self.coordinator, request)

    def _coordinator_request(self) -> msg.Request | None:
        """The request to the transaction coordinator that is due. A borrower has none: the lender did all that."""
        if self.borrows:
            return None
        settings = self.settings
        name = settings.transactional_id
        match self.phase:
            case Phase.INITIALIZING:
                return msg.InitProducerId(name, settings.transaction_timeout_ms, -1, -1)
            case Phase.RENEWING if not self.delivery.has_in_flight():
                known = (self.producer_id, self.epoch) if name is not None else (-1, -1)
                return msg.InitProducerId(name, settings.transaction_timeout_ms, *known)
            case (Phase.COMMITTING | Phase.ABORTING) as state if self.delivery.is_empty() and name is not None:
                commit = state is Phase.COMMITTING
                return msg.EndTransaction(name, self.producer_id, self.epoch, commit, self.protocol)
            case Phase.OPEN | Phase.COMMITTING if self.protocol == 1 and name is not None:
                wanted = (*self.delivery.waiting_partitions(), *self.lent)
                new = tuple(target for target in wanted if target not in self.added)
                return msg.AddPartitions(name, self.producer_id, self.epoch, new) if new else None
        return None

    def _send_batches(self) -> None:
        name = self.settings.transactional_id
        if self.phase not in ((Phase.READY,) if name is None else (Phase.OPEN, Phase.COMMITTING)):
            return
        needs_adding = name is not None and self.protocol == 1
        taken = self.delivery.next_requests(
            self.requests.per_node(msg.Produce), lambda p: not needs_adding or p in self.added, self.now_ms
        )
        for node, batches in list(taken):
            self._send(node, self._produce(batches))

    def _produce(self, batches: Iterable[Pending]) -> msg.Produce:
        sequenced = tuple(msg.SequencedBatch(p.batch.number, p.batch.target, p.sequence) for p in batches)
        settings = self.settings
        return msg.Produce(
            settings.transactional_id, self.producer_id, self.epoch, settings.acks, self.protocol, sequenced
        )

    def _send(self, node: int | None, request: msg.Request) -> None:
        self.emit(clients.SendRequest(self.requests.add(node, request), node, request))

    def _has_coordinator_request(self) -> bool:
        return self.requests.has(msg.FindCoordinator, msg.InitProducerId, msg.AddPartitions, msg.EndTransaction)

    def _move(self, after: Phase) -> None:
        self.phase = moved(msg.PRODUCER_MOVES, self.phase, after, "the producer")
