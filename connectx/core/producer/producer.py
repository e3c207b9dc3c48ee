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

from connectx.core.by_value import ByValue
from connectx.core.moves import moved
from connectx.core.producer import errors
from connectx.core.producer import messages as msg
from connectx.core.producer.delivery import Delivery, Pending
from connectx.core.producer.messages import ProducerState as State
from connectx.core.producer.requests import InFlight, RequestsInFlight, Retry
from connectx.model.ids import TopicPartition

_CONCURRENT_BACKOFF_MS = 20  # the last transaction's markers are being written (Java: ADD_PARTITIONS_RETRY_BACKOFF_MS)
# An earlier batch of the partition has failed: it is sent first, and alone.
_BACKOFFS_MS = {errors.CONCURRENT: _CONCURRENT_BACKOFF_MS, errors.OUT_OF_ORDER: 0}
_UNKNOWN_ERROR = "UNKNOWN_SERVER_ERROR"
_UNKNOWN_ERROR_ATTEMPTS = 10
_FENCED_ABORT_ATTEMPTS = 10
_EMPTIED_BY_ABORT = (State.REFUSED, State.ABORTING)


class ProducerCore(ByValue):
    """One producer.

    Attributes:
        producer_id, epoch: -1 without; those of the open or next transaction.
        refusal: why the open transaction cannot commit.
        failure: why the producer has FAILED.
    """

    def __init__(self, settings: msg.ProducerSettings) -> None:
        self.settings = settings
        self.state = State.NEW
        self.producer_id = -1
        self.epoch = -1
        self.refusal: msg.Failure | None = None
        self.failure: msg.Failure | None = None
        self._delivery = Delivery(settings)
        self._requests = RequestsInFlight()
        self._effects: list[msg.ProducerEffect] = []
        self._purged = False
        self._coordinator: int | None = None
        self._transaction_version = 0
        self._protocol = 1  # of the open transaction
        self._coordinator_retry = Retry(settings)
        self._metadata_retry = Retry(settings)
        self._added: set[TopicPartition] = set()
        self._may_be_open = False  # Kafka may know of the transaction
        self._is_ending = False  # EndTxn was sent
        self._may_have_ended = False  # by an EndTxn whose outcome is unknown
        self._may_arrive_late = False
        self._was_acknowledged = False  # a batch of the open transaction
        self._lent: tuple[TopicPartition, ...] = ()
        self._borrows = False

    def handle(self, stimulus: msg.ProducerStimulus, now_ms: int) -> msg.ProducerStep:
        """Take in a stimulus; times only grow. Late answers and calls that the state does not allow change nothing."""
        match stimulus:
            case msg.Initialize():
                if self.state is State.NEW:
                    self._move(State.INITIALIZING if self.settings.idempotent else State.READY)
            case msg.BeginTransaction():
                self._begin()
            case msg.Append(batches):
                self._append(batches, now_ms)
            case msg.CommitTransaction():
                if self.state is State.OPEN and not self._lent and not self._borrows:
                    self._move(State.COMMITTING)
            case msg.AbortTransaction():
                self._abort()
            case msg.Refuse(failure):
                if self.state is State.OPEN:
                    self._refuse_transaction(failure)
            case msg.Lend(targets):
                if self.state is State.OPEN and self.is_idle and not self._borrows:
                    self._lent, self._may_be_open = targets, True
            case msg.Returned():
                self._on_returned(stimulus)
            case msg.Borrow(loan):
                if self.state is State.NEW:
                    self._borrow(loan)
            case msg.Purge():
                self._purge()
            case msg.BatchSplit(number, parts):
                self._delivery.replace(number, parts)
            case msg.MetadataFetched():
                self._on_metadata(stimulus, now_ms)
            case msg.Answered(request_id, answer):
                if (sent := self._requests.take(request_id)) is not None:
                    self._on_answer(sent, answer, now_ms)
            case msg.Unanswered():
                self._on_unanswered(stimulus, now_ms)
            case msg.AuthenticationFailed(reason):
                self._fail(msg.Failure(errors.AUTHENTICATION, "connect", reason))
            case msg.TimeReached():
                pass
            case _:
                assert_never(stimulus)
        self._advance(now_ms)
        effects, self._effects = tuple(self._effects), []
        return msg.ProducerStep(effects, self._next_time_ms(now_ms))

    @property
    def is_idle(self) -> bool:
        """Whether every batch is settled."""
        return self._delivery.is_empty()

    @property
    def loan(self) -> msg.Loan | None:
        """What was lent, once borrowers may send; None before, and when nothing is lent."""
        added = self._protocol == 2 or self._added.issuperset(self._lent)
        if not self._lent or not added or self.state is not State.OPEN:
            return None
        sequences = {target: self._delivery.next_sequence(target) for target in self._lent}
        return msg.Loan(self.producer_id, self.epoch, self._protocol, sequences)

    @property
    def may_arrive_late(self) -> bool:
        """Whether a request of this epoch stayed unanswered."""
        return self._may_arrive_late

    def _begin(self) -> None:
        if self.state is State.READY and self.settings.transactional_id is not None:
            self._move(State.OPEN)
            self.refusal = None
            self._protocol = 2 if self._transaction_version >= 2 else 1
            self._may_be_open = self._is_ending = self._may_have_ended = self._was_acknowledged = False
            self._lent = ()
            self._coordinator_retry.reset()
            self._added.clear()
            if self._purged:
                self._refuse_transaction(msg.Failure(errors.PURGED, "begin a transaction"))

    def _append(self, batches: Iterable[msg.Batch], now_ms: int) -> None:
        transactional = self.settings.transactional_id is not None
        takes = self.state is State.OPEN if transactional else self.state in (State.READY, State.RENEWING)
        if self._lent or (self._borrows and not self._added.issuperset(batch.target for batch in batches)):
            raise ValueError("a lender and its borrowers send to different partitions")
        if takes and not self._purged:
            self._delivery.append(batches, now_ms)
        else:
            self._effects += [msg.BatchDropped(batch.number) for batch in batches]

    def _on_returned(self, returned: msg.Returned) -> None:
        if not self._lent:
            return
        for target, records in returned.records.items():
            self._delivery.advance(target, records)
        self._was_acknowledged |= any(returned.records.values())
        self._may_arrive_late |= returned.may_arrive_late or returned.failure is not None
        self._lent = ()
        if returned.failure is not None:
            self._refuse_transaction(returned.failure)

    def _borrow(self, loan: msg.Loan) -> None:
        self._move(State.OPEN)
        self.producer_id, self.epoch, self._protocol = loan.producer_id, loan.epoch, loan.protocol
        self._added = set(loan.sequences)
        self._borrows = True
        for target, sequence in loan.sequences.items():
            self._delivery.advance(target, sequence)

    def _abort(self) -> None:
        if self._borrows:
            return
        if self._lent:
            self._on_returned(msg.Returned({}, may_arrive_late=True))
        if self.state in (State.OPEN, State.REFUSED) or (self.state is State.COMMITTING and not self._is_ending):
            self._move(State.ABORTING)
            self._drop(self._delivery.drop_waiting())

    def _purge(self) -> None:
        self._purged = True
        if self.state is State.OPEN or (self.state is State.COMMITTING and not self._is_ending):
            self._refuse_transaction(msg.Failure(errors.PURGED, "commit the transaction"))
        self._drop(self._delivery.drop_waiting())

    def _on_answer(self, sent: InFlight, answer: object, now_ms: int) -> None:
        match sent.request, answer:
            case msg.FindCoordinator(), msg.CoordinatorFound():
                self._on_coordinator(answer, now_ms)
            case msg.FetchMetadata(), msg.MetadataFetched():
                self._on_metadata(answer, now_ms)
            case msg.InitProducerId(), msg.ProducerIdGranted():
                self._on_producer_id(answer, now_ms)
            case msg.AddPartitions(), msg.PartitionsAdded():
                self._on_partitions_added(answer, now_ms)
            case msg.EndTransaction() as request, msg.TransactionEnded():
                self._on_ended(request, answer, now_ms)
            case msg.Produce() as request, msg.Produced():
                for batch in request.batches:
                    result = answer.results.get(batch.number, msg.BatchResult(_UNKNOWN_ERROR))
                    self._may_be_open |= result.error != errors.CONCURRENT
                    self._on_result(batch, result, now_ms)
            case request, _:
                raise TypeError(f"{answer} is no answer to {request}")

    def _on_unanswered(self, lost: msg.Unanswered, now_ms: int) -> None:
        sent = self._requests.take(lost.request_id)
        if sent is None:
            return
        match sent.request:
            case msg.FetchMetadata():
                self._metadata_retry.later(now_ms)
            case msg.Produce() as request:
                self._may_arrive_late |= lost.sent
                self._may_be_open |= lost.sent
                for batch in request.batches:
                    self._delivery.forget_leader(batch.target)
                    self._retry_batch(batch, now_ms, None)
            case msg.FindCoordinator():
                self._coordinator_retry.later(now_ms)
            case msg.InitProducerId() | msg.AddPartitions() | msg.EndTransaction() as request:
                self._may_arrive_late |= lost.sent
                self._may_have_ended |= lost.sent and isinstance(request, msg.EndTransaction)
                self._coordinator = None
                self._coordinator_retry.later(now_ms)
            case _ as never:
                assert_never(never)

    def _on_coordinator(self, answer: msg.CoordinatorFound, now_ms: int) -> None:
        if answer.error is None:
            self._coordinator, self._transaction_version = answer.node, answer.transaction_version
            self._coordinator_retry.reset()
        else:
            self._on_coordinator_error(answer.error, "find the transaction coordinator", now_ms)

    def _on_producer_id(self, answer: msg.ProducerIdGranted, now_ms: int) -> None:
        if self.state not in (State.INITIALIZING, State.RENEWING):
            return
        if answer.error is not None:
            self._on_coordinator_error(answer.error, "initialise transactions", now_ms)
            return
        self._adopt(answer.producer_id, answer.epoch)
        self._move(State.READY)

    def _on_partitions_added(self, answer: msg.PartitionsAdded, now_ms: int) -> None:
        failed = {target: error for target, error in answer.errors.items() if error is not None}
        if not failed:
            self._may_be_open = True
            self._coordinator_retry.reset()
            self._added |= answer.errors.keys()
            return
        causes = sorted(item for item in failed.items() if item[1] != errors.NOT_ATTEMPTED)
        for target, error in causes[:1]:
            if error == _UNKNOWN_ERROR or error in errors.RETRIABLE or error in errors.FATAL:
                self._on_coordinator_error(error, "add partitions to the transaction", now_ms)
            else:
                self._refuse_transaction(msg.Failure(error, f"send records to {target.topic}", topic=target.topic))

    def _on_ended(self, request: msg.EndTransaction, answer: msg.TransactionEnded, now_ms: int) -> None:
        nothing_open = answer.error == errors.NOTHING_OPEN and not request.commit
        if answer.error == errors.ABORTABLE and request.commit:
            self._is_ending = False
            self._refuse_transaction(msg.Failure(answer.error, "commit the transaction"))
        elif self._may_follow_markers(request, answer.error):
            self._coordinator_retry.later(now_ms)
        elif answer.error == errors.NOTHING_OPEN and self._was_committed_before(request):
            self._finish(renew=True)
        elif answer.error is not None and not nothing_open:
            self._may_have_ended = True  # Kafka may carry out what it reports as failed
            doing = "commit the transaction" if request.commit else "abort the transaction"
            error = "PRODUCER_FENCED" if self._was_aborted_by_another(request, answer.error) else answer.error
            self._on_coordinator_error(error, doing, now_ms)
        elif request.protocol == 2 and not nothing_open:
            self._adopt(answer.producer_id, answer.epoch)
            self._finish(renew=False)
        else:
            self._finish(renew=not request.commit or self._may_arrive_late)

    def _was_committed_before(self, request: msg.EndTransaction) -> bool:
        """Whether INVALID_TXN_STATE can only mean that an earlier attempt has committed (see above)."""
        return request.commit and request.protocol == 1 and self._may_have_ended and self._was_acknowledged

    def _was_aborted_by_another(self, request: msg.EndTransaction, error: str) -> bool:
        """Whether INVALID_TXN_STATE means that a newer producer, or a timeout, has aborted the transaction.

        With protocol 2 Kafka takes the epoch before its own for that of a repeated request, until the newer producer
        has its epoch. A commit then meets an aborted transaction instead of PRODUCER_FENCED.
        """
        is_commit = request.commit and request.protocol == 2
        return is_commit and error == errors.NOTHING_OPEN and self._was_acknowledged

    def _may_follow_markers(self, request: msg.EndTransaction, error: str | None) -> bool:
        """Whether an abort may be refused only because the last transaction's markers are still being written.

        Kafka then takes its epoch for that of a late request. Of a transaction with acknowledged batches it does not.
        """
        is_early = not request.commit and request.protocol == 2 and not self._was_acknowledged
        return is_early and error in errors.FENCED and self._coordinator_retry.attempts < _FENCED_ABORT_ATTEMPTS

    def _finish(self, *, renew: bool) -> None:
        """The transaction has ended; `renew`: its epoch ends with it."""
        self._move(State.RENEWING if renew else State.READY)
        self.refusal = None
        self._coordinator_retry.reset()
        self._may_be_open = self._is_ending = False

    def _adopt(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self._delivery.forget_sequences()
        self._may_arrive_late = False
        self._coordinator_retry.reset()

    def _on_result(self, batch: msg.SequencedBatch, result: msg.BatchResult, now_ms: int) -> None:
        error, target = result.error, batch.target
        if error in errors.DELIVERED:
            self._delivery.delivered(target, batch.number)
            self._was_acknowledged = True
            self._effects.append(msg.BatchDelivered(batch.number))
        elif error in errors.RETRIABLE or (
            error == errors.OUT_OF_ORDER and not self._delivery.is_first(target, batch.number)
        ):
            if errors.needs_metadata(error):
                self._delivery.forget_leader(target)
            self._retry_batch(batch, now_ms, _BACKOFFS_MS.get(str(error)))
        elif self._is_splittable(error, batch):
            self._delivery.split(target, batch.number)
            self._effects.append(msg.SplitBatch(batch.number))
        elif self.settings.transactional_id is not None and error in errors.FATAL:
            self._fail(msg.Failure(str(error), f"send records to {target.topic}", result.message))
        elif self.settings.transactional_id is None and error in errors.RENEWING and self.settings.idempotent:
            self._retry_batch(batch, now_ms, None)
            self._renew()
        else:
            self._delivery.refused(target, batch.number)
            self._refuse(batch.number, target, result)

    def _is_splittable(self, error: str | None, batch: msg.SequencedBatch) -> bool:
        pending = self._delivery.find_in_flight(batch.target, batch.number)
        has_several = pending is not None and pending.batch.records > 1
        return has_several and error in errors.TOO_LARGE and self.state not in _EMPTIED_BY_ABORT and not self._purged

    def _retry_batch(self, batch: msg.SequencedBatch, now_ms: int, backoff_ms: int | None) -> None:
        if self.state in _EMPTIED_BY_ABORT or self._purged:
            if self._delivery.drop(batch.target, batch.number):
                self._drop([batch.number])
        else:
            self._delivery.retry(batch.target, batch.number, now_ms, backoff_ms)

    def _refuse(self, number: int, target: TopicPartition, result: msg.BatchResult) -> None:
        self._effects.append(msg.BatchRefused(number, result))
        error = str(result.error)
        if self.settings.transactional_id is not None:
            self._refuse_transaction(
                msg.Failure(error, f"send records to {target.topic}", result.message, target.topic)
            )
        elif self.settings.idempotent:
            self._renew()  # the sequences after it have a gap

    def _refuse_transaction(self, why: msg.Failure) -> None:
        """The transaction can only be aborted now. The first reason stays."""
        if self.state in (State.OPEN, State.COMMITTING):
            self._move(State.REFUSED)
            self.refusal = why
        self._drop(self._delivery.drop_waiting())

    def _renew(self) -> None:
        if self.state is State.READY:
            self._move(State.RENEWING)

    def _fail(self, why: msg.Failure) -> None:
        if self.state is not State.FAILED:
            self._move(State.FAILED)
            self.failure = why
        self._requests.clear()
        self._drop(self._delivery.drop_all())

    def _drop(self, numbers: Iterable[int]) -> None:
        self._effects += [msg.BatchDropped(number) for number in numbers]

    def _on_metadata(self, metadata: msg.MetadataFetched, now_ms: int) -> None:
        for pending, error in self._delivery.learn(metadata, now_ms):
            self._refuse(pending.batch.number, pending.batch.target, msg.BatchResult(error))
        if self._delivery.leaderless_topics():
            self._metadata_retry.later(now_ms)
        else:
            self._metadata_retry.reset()

    def _on_coordinator_error(self, error: str, doing: str, now_ms: int) -> None:
        """Retry, or end the producer. An unknown error may be a coordinator that moves: retry it a few times."""
        if error in errors.COORDINATOR:
            self._coordinator = None
        is_unknown = error == _UNKNOWN_ERROR and self._coordinator_retry.attempts < _UNKNOWN_ERROR_ATTEMPTS
        if error in errors.RETRIABLE or is_unknown:
            self._coordinator_retry.later(now_ms, _CONCURRENT_BACKOFF_MS if error == errors.CONCURRENT else None)
        else:
            self._fail(msg.Failure(error, doing))

    def _advance(self, now_ms: int) -> None:
        """Send whatever may be sent now."""
        if self.state in (State.NEW, State.FAILED):
            return
        for pending in self._delivery.expired(now_ms):
            self._refuse(pending.batch.number, pending.batch.target, msg.BatchResult(errors.DELIVERY_TIMEOUT))
        self._end_without_kafka()
        if now_ms >= self._coordinator_retry.due_ms and not self._has_coordinator_request():
            self._ask_coordinator()
        topics = self._delivery.leaderless_topics()
        if topics and now_ms >= self._metadata_retry.due_ms and not self._requests.has(msg.FetchMetadata):
            self._send(None, msg.FetchMetadata(topics))
        self._send_batches(now_ms)

    def _end_without_kafka(self) -> None:
        """End a transaction that Kafka cannot know of."""
        is_ending = self.state in (State.COMMITTING, State.ABORTING) and self.is_idle
        if is_ending and not self._may_be_open and not self._has_coordinator_request():
            self._delivery.forget_sequences()
            self._finish(renew=self._protocol == 1 and self._may_arrive_late)

    def _ask_coordinator(self) -> None:
        request = self._coordinator_request()
        if request is None:
            return
        transactional_id = self.settings.transactional_id
        if transactional_id is not None and self._coordinator is None:
            self._send(None, msg.FindCoordinator(transactional_id))
            return
        if isinstance(request, msg.EndTransaction):
            self._is_ending = True
        if isinstance(request, msg.AddPartitions):
            self._may_be_open = True
        self._send(self._coordinator, request)

    def _coordinator_request(self) -> msg.Request | None:
        """The request to the transaction coordinator that is due. A borrower has none: the lender did all that."""
        if self._borrows:
            return None
        settings = self.settings
        name = settings.transactional_id
        match self.state:
            case State.INITIALIZING:
                return msg.InitProducerId(name, settings.transaction_timeout_ms, -1, -1)
            case State.RENEWING if not self._delivery.has_in_flight():
                known = (self.producer_id, self.epoch) if name is not None else (-1, -1)
                return msg.InitProducerId(name, settings.transaction_timeout_ms, *known)
            case (State.COMMITTING | State.ABORTING) as state if self.is_idle and name is not None:
                commit = state is State.COMMITTING
                return msg.EndTransaction(name, self.producer_id, self.epoch, commit, self._protocol)
            case State.OPEN | State.COMMITTING if self._protocol == 1 and name is not None:
                wanted = (*self._delivery.waiting_partitions(), *self._lent)
                new = tuple(target for target in wanted if target not in self._added)
                return msg.AddPartitions(name, self.producer_id, self.epoch, new) if new else None
        return None

    def _send_batches(self, now_ms: int) -> None:
        name = self.settings.transactional_id
        if self.state not in ((State.READY,) if name is None else (State.OPEN, State.COMMITTING)):
            return
        needs_adding = name is not None and self._protocol == 1
        taken = self._delivery.next_requests(
            self._requests.produce_requests(), lambda p: not needs_adding or p in self._added, now_ms
        )
        for node, batches in list(taken):
            self._send(node, self._produce(batches))

    def _produce(self, batches: Iterable[Pending]) -> msg.Produce:
        sequenced = tuple(msg.SequencedBatch(p.batch.number, p.batch.target, p.sequence) for p in batches)
        settings = self.settings
        return msg.Produce(
            settings.transactional_id, self.producer_id, self.epoch, settings.acks, self._protocol, sequenced
        )

    def _send(self, node: int | None, request: msg.Request) -> None:
        self._effects.append(msg.SendRequest(self._requests.add(node, request), node, request))

    def _has_coordinator_request(self) -> bool:
        return self._requests.has(msg.FindCoordinator, msg.InitProducerId, msg.AddPartitions, msg.EndTransaction)

    def _move(self, after: State) -> None:
        self.state = moved(msg.PRODUCER_MOVES, self.state, after, "the producer")

    def _next_time_ms(self, now_ms: int) -> int | None:
        times = [self._coordinator_retry.due_ms, self._metadata_retry.due_ms, self._delivery.next_time_ms(now_ms)]
        return min((time for time in times if time is not None and time > now_ms), default=None)
