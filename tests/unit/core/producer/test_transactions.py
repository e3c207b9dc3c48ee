"""Transactions of the producer's core, in both protocols, with answers that come late or never."""

from __future__ import annotations

import itertools

import pytest

from connectx.core.clients.messages import FetchMetadata
from connectx.core.producer import messages as msg
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.model.ids import TopicPartition
from tests.unit.core.producer.script import T0, T1, Script, led, transactional


def test_initialising_finds_the_coordinator_and_fences_by_taking_the_id() -> None:
    script = Script(transactional_id="x", idempotent=True)
    script.do(msg.Call.INITIALIZE)
    assert [sent.node for sent in script.open.values()] == [None]
    script.answer(msg.FindCoordinator, msg.CoordinatorFound(None, 9, 2))
    assert [sent.node for sent in script.open.values()] == [9]
    assert script.requests() == [msg.InitProducerId("x", 60_000, -1, -1)]
    script.answer(msg.InitProducerId, msg.ProducerIdGranted("CONCURRENT_TRANSACTIONS"))
    script.wait()
    script.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 77, 4))
    assert (script.core.phase, script.core.producer_id, script.core.epoch) == (Phase.READY, 77, 4)


def test_protocol_2_adds_no_partitions_and_goes_on_with_the_epoch_that_endtxn_returns() -> None:
    script = transactional()
    for epoch in range(3):
        script.do(msg.Call.BEGIN)
        script.append(epoch)
        assert script.sequences() == [(epoch, 0)]  # each epoch begins at 0
        (request,) = script.requests()
        assert (request.epoch, request.protocol, request.transactional_id) == (epoch, 2, "x")
        script.do(msg.Call.COMMIT)
        assert not script.requests(msg.EndTransaction)
        script.take_all()
        assert script.requests() == [msg.EndTransaction("x", 77, epoch, True, 2)]
        script.answer(msg.EndTransaction, msg.TransactionEnded(None, 77, epoch + 1))
        assert script.core.phase is Phase.READY


def test_protocol_1_adds_partitions_before_it_sends_to_them() -> None:
    script = transactional(version=1)
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.append(2, target=T1)
    assert script.requests() == [msg.AddPartitions("x", 77, 0, (T0,))]
    script.add_partitions()
    assert script.sequences() == [(1, 0)]
    script.add_partitions()
    assert script.sequences() == [(1, 0), (2, 0)]
    script.take_all()
    script.take_all()
    script.do(msg.Call.COMMIT)
    script.answer(msg.EndTransaction, msg.TransactionEnded(None))
    assert (script.core.phase, script.core.epoch) == (Phase.READY, 0)
    script.do(msg.Call.BEGIN)
    script.append(3)
    script.add_partitions()
    assert script.sequences() == [(3, 10)]  # the same epoch goes on


@pytest.mark.parametrize("kind", [msg.AddPartitions, msg.Produce, msg.EndTransaction])
def test_protocol_1_renews_the_epoch_after_a_commit_that_left_a_request_unanswered(kind: type[msg.Request]) -> None:
    script = transactional(version=1)
    script.do(msg.Call.BEGIN)
    script.append(1)
    for step in (msg.AddPartitions, msg.Produce, msg.EndTransaction):
        if step is msg.EndTransaction:
            script.do(msg.Call.COMMIT)
        if step is kind:
            script.lose(step)
            while not script.requests(step):
                _find_again(script)
        if step is msg.AddPartitions:
            script.add_partitions()
        elif step is msg.Produce:
            script.take_all("DUPLICATE_SEQUENCE_NUMBER" if kind is step else None)
        else:
            script.answer(step, msg.TransactionEnded(None))
    assert script.core.phase is Phase.RENEWING
    _find_again(script)
    assert script.requests() == [msg.InitProducerId("x", 60_000, 77, 0)]
    script.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 77, 1))
    script.do(msg.Call.BEGIN)
    script.append(2)
    script.add_partitions()
    assert script.sequences() == [(2, 0)]
    assert script.requests()[0].epoch == 1


def _find_again(script: Script) -> None:
    """Answer what asks for places, else let time pass."""
    if script.requests(msg.FindCoordinator):
        script.answer(msg.FindCoordinator, msg.CoordinatorFound(None, 9, 1))
    elif script.requests(FetchMetadata):
        script.answer(FetchMetadata, led({T0: 1, T1: 1}))
    elif not script.requests():
        script.wait()


def test_a_request_that_never_left_needs_no_new_epoch() -> None:
    script = transactional(version=1)
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.lose(msg.AddPartitions, sent=False)
    while not script.requests(msg.AddPartitions):
        _find_again(script)
    script.add_partitions()
    script.take_all()
    script.do(msg.Call.COMMIT)
    script.answer(msg.EndTransaction, msg.TransactionEnded(None))
    assert (script.core.phase, script.core.epoch) == (Phase.READY, 0)


def test_protocol_1_renews_the_epoch_after_every_abort() -> None:
    script = transactional(version=1)
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.add_partitions()
    script.do(msg.Call.ABORT)
    assert not script.requests(msg.EndTransaction)  # the batch in flight may still be answered
    script.take_all()
    assert script.requests() == [msg.EndTransaction("x", 77, 0, False, 1)]
    script.answer(msg.EndTransaction, msg.TransactionEnded(None))
    assert script.requests() == [msg.InitProducerId("x", 60_000, 77, 0)]


def test_protocol_2_takes_the_new_epoch_of_an_abort_from_its_answer() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.do(msg.Call.ABORT)
    script.take_all()
    script.answer(msg.EndTransaction, msg.TransactionEnded(None, 77, 1))
    assert (script.core.phase, script.core.epoch, script.requests()) == (Phase.READY, 1, [])


def test_an_endtxn_without_an_answer_is_asked_again_with_the_same_epoch() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.take_all()
    script.do(msg.Call.COMMIT)
    script.lose(msg.EndTransaction)
    assert script.core.phase is Phase.COMMITTING
    script.wait()
    script.answer(msg.FindCoordinator, msg.CoordinatorFound(None, 8, 2))
    assert [sent.node for sent in script.open.values()] == [8]
    assert script.requests() == [msg.EndTransaction("x", 77, 0, True, 2)]
    script.do(msg.Call.COMMIT, msg.Call.ABORT)  # neither changes what was asked
    assert script.core.phase is Phase.COMMITTING
    script.answer(msg.EndTransaction, msg.TransactionEnded(None, 77, 1))
    assert (script.core.phase, script.core.epoch) == (Phase.READY, 1)


def _committing(version: int) -> Script:
    """A transaction with an acknowledged batch that asks for its commit."""
    script = transactional(version=version)
    script.do(msg.Call.BEGIN)
    script.append(1)
    if version == 1:
        script.add_partitions()
    script.take_all()
    script.do(msg.Call.COMMIT)
    return script


@pytest.mark.parametrize("error", [None, "COORDINATOR_NOT_AVAILABLE"])
def test_protocol_1_knows_by_a_repeated_commit_that_finds_nothing_that_it_has_committed(error: str | None) -> None:
    script = _committing(version=1)
    if error is None:
        script.lose(msg.EndTransaction)
    else:
        script.answer(msg.EndTransaction, msg.TransactionEnded(error))
    while not script.requests(msg.EndTransaction):
        _find_again(script)
    script.answer(msg.EndTransaction, msg.TransactionEnded("INVALID_TXN_STATE"))
    assert script.core.phase is Phase.RENEWING  # the late InitProducerId may have been sent twice
    while not script.requests(msg.InitProducerId):
        _find_again(script)
    script.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 77, 1))
    assert (script.core.phase, script.core.failure) == (Phase.READY, None)


@pytest.mark.parametrize(
    ("version", "sent", "error"),
    [
        (1, None, "INVALID_TXN_STATE"),
        (1, False, "INVALID_TXN_STATE"),
        (2, None, "PRODUCER_FENCED"),  # what Kafka answers while a newer producer's epoch is being made
        (2, True, "PRODUCER_FENCED"),
    ],
)
def test_a_commit_that_finds_nothing_fails_unless_an_earlier_attempt_explains_it(
    version: int, sent: bool | None, error: str
) -> None:
    script = _committing(version)
    if sent is not None:
        script.lose(msg.EndTransaction, sent=sent)
        while not script.requests(msg.EndTransaction):
            _find_again(script)
    script.answer(msg.EndTransaction, msg.TransactionEnded("INVALID_TXN_STATE"))
    assert script.core.failure == msg.Failure(error, "commit the transaction")


@pytest.mark.parametrize("version", [1, 2])
def test_an_empty_transaction_ends_without_kafka(version: int) -> None:
    script = transactional(version)
    for end in (msg.Call.COMMIT, msg.Call.ABORT):
        script.do(msg.Call.BEGIN, end)
        assert (script.core.phase, script.requests()) == (Phase.READY, [])


def test_protocol_2_ends_without_kafka_what_only_met_the_markers_before_and_begins_sequences_again() -> None:
    script = Script(transactional_id="tx", idempotent=True)
    script.ready(version=2)
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.take_all("CONCURRENT_TRANSACTIONS")
    script.do(msg.Call.ABORT)
    assert (script.requests(msg.EndTransaction), script.core.phase) == ([], Phase.READY)
    script.do(msg.Call.BEGIN)
    script.append(2)
    assert script.sequences() == [(2, 0)]


def test_an_abort_drops_what_waits_and_does_not_send_again_what_was_lost() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1, 2, 3, 4, 5, 6, 7)
    assert [number for number, _ in script.sequences()] == [1, 2, 3, 4, 5]
    script.do(msg.Call.ABORT)
    assert script.settled == {6: "BatchDropped", 7: "BatchDropped"}
    for _ in range(5):
        script.lose(msg.Produce)
    assert len(script.settled) == 7
    assert script.requests() == [msg.EndTransaction("x", 77, 0, False, 2)]


def test_a_refused_batch_leaves_only_the_abort() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1, 2, records=1)
    script.do(msg.Call.COMMIT)
    script.take_all("MESSAGE_TOO_LARGE")
    assert script.core.phase is Phase.REFUSED
    assert script.core.refusal == msg.Failure("MESSAGE_TOO_LARGE", "send records to t", None, "t")
    script.append(3)
    assert script.settled == {1: "MESSAGE_TOO_LARGE", 3: "BatchDropped"}
    script.do(msg.Call.ABORT)
    script.take_all("OUT_OF_ORDER_SEQUENCE_NUMBER")
    script.answer(msg.EndTransaction, msg.TransactionEnded(None, 77, 1))
    assert (script.core.phase, script.core.refusal) == (Phase.READY, None)


def test_a_partition_that_may_not_be_written_to_refuses_the_transaction_and_nothing_was_open() -> None:
    script = transactional(version=1)
    script.do(msg.Call.BEGIN)
    script.append(1)
    refused = {T0: "TOPIC_AUTHORIZATION_FAILED", T1: "OPERATION_NOT_ATTEMPTED"}
    script.answer(msg.AddPartitions, msg.PartitionsAdded(refused))
    assert script.core.phase is Phase.REFUSED
    script.do(msg.Call.ABORT)
    script.answer(msg.EndTransaction, msg.TransactionEnded("INVALID_TXN_STATE"))
    script.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 77, 1))
    assert script.core.phase is Phase.READY


@pytest.mark.parametrize("error", ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"])
def test_a_fenced_producer_fails_for_good(error: str) -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1, 2)
    script.take_all(error)
    assert script.core.phase is Phase.FAILED
    assert script.core.failure is not None
    assert script.core.failure.error == error
    assert script.settled == {1: "BatchDropped", 2: "BatchDropped"}
    script.do(msg.Call.ABORT, msg.Call.BEGIN, msg.Call.INITIALIZE)
    assert script.core.phase is Phase.FAILED
    script.take_all()  # an answer after the end changes nothing
    assert script.core.phase is Phase.FAILED


def test_a_coordinator_that_moves_is_found_again() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.take_all()
    script.do(msg.Call.COMMIT)
    script.answer(msg.EndTransaction, msg.TransactionEnded("NOT_COORDINATOR"))
    script.wait()
    script.answer(msg.FindCoordinator, msg.CoordinatorFound("COORDINATOR_NOT_AVAILABLE"))
    script.wait()
    script.answer(msg.FindCoordinator, msg.CoordinatorFound(None, 3, 2))
    assert [sent.node for sent in script.open.values()] == [3]


def test_an_unknown_error_is_retried_a_few_times_and_is_not_called_a_fence() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.take_all()
    script.do(msg.Call.COMMIT)
    for _ in itertools.takewhile(lambda _: script.core.phase is Phase.COMMITTING, range(100)):
        script.answer(msg.EndTransaction, msg.TransactionEnded("UNKNOWN_SERVER_ERROR"))
        if script.core.phase is Phase.COMMITTING:
            script.wait()
    assert script.core.failure == msg.Failure("UNKNOWN_SERVER_ERROR", "commit the transaction")


def test_the_protocol_is_the_one_that_the_cluster_has_when_a_transaction_begins() -> None:
    script = transactional(version=1)
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.lose(msg.AddPartitions)
    script.wait()
    script.answer(msg.FindCoordinator, msg.CoordinatorFound(None, 9, 2))  # the cluster was upgraded
    script.add_partitions()
    script.take_all()
    script.do(msg.Call.COMMIT)
    assert script.requests(msg.EndTransaction)[0].protocol == 1
    script.answer(msg.EndTransaction, msg.TransactionEnded(None))
    script.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 77, 1))
    script.do(msg.Call.BEGIN)
    script.append(2)
    assert script.requests(msg.Produce)[0].protocol == 2


def test_a_record_that_never_became_a_batch_leaves_only_the_abort() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1)
    refusal = msg.Failure("MESSAGE_TOO_LARGE", "send records to t", topic="t")
    script.do(msg.Refuse(refusal), msg.Call.COMMIT)
    script.take_all()
    assert (script.core.phase, script.core.refusal, script.requests()) == (Phase.REFUSED, refusal, [])
    script.do(msg.Call.ABORT)
    assert script.requests() == [msg.EndTransaction("x", 77, 0, False, 2)]


def test_an_abort_that_kafka_takes_for_a_late_one_is_asked_again_if_nothing_was_acknowledged() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.lose(msg.Produce)
    script.do(msg.Call.ABORT)
    for _ in range(3):
        script.answer(msg.EndTransaction, msg.TransactionEnded("PRODUCER_FENCED"))
        script.wait()
    assert script.requests(msg.EndTransaction) == [msg.EndTransaction("x", 77, 0, False, 2)]
    script.answer(msg.EndTransaction, msg.TransactionEnded(None, 77, 1))
    assert (script.core.phase, script.core.epoch) == (Phase.READY, 1)


def test_an_abort_that_stays_fenced_ends_the_producer() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.lose(msg.Produce)
    script.do(msg.Call.ABORT)
    for _ in itertools.takewhile(lambda _: script.core.phase is Phase.ABORTING, range(100)):
        script.answer(msg.EndTransaction, msg.TransactionEnded("PRODUCER_FENCED"))
        if script.core.phase is Phase.ABORTING:
            script.wait()
    assert script.core.failure == msg.Failure("PRODUCER_FENCED", "abort the transaction")


def test_a_fenced_abort_of_acknowledged_batches_ends_the_producer_at_once() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1)
    script.take_all()
    script.do(msg.Call.ABORT)
    script.answer(msg.EndTransaction, msg.TransactionEnded("PRODUCER_FENCED"))
    assert script.core.phase is Phase.FAILED


def test_a_purge_leaves_only_the_abort() -> None:
    script = transactional()
    script.do(msg.Call.BEGIN)
    script.append(1, 2, 3, 4, 5, 6)
    script.do(msg.Call.PURGE)
    assert script.core.phase is Phase.REFUSED
    assert script.settled == {6: "BatchDropped"}
    script.append(7)
    script.lose(msg.Produce)
    assert script.settled == {6: "BatchDropped", 7: "BatchDropped", 1: "BatchDropped"}


def lending(version: int = 2) -> Script:
    """A producer with one delivered batch in its open transaction that has lent both partitions."""
    script = transactional(version)
    script.do(msg.Call.BEGIN)
    script.append(1, records=3)
    if version == 1:
        script.add_partitions()
    script.take_all()
    script.do(msg.Lend((T0, T1)))
    return script


def test_a_loan_continues_the_sequences_of_the_transaction() -> None:
    assert lending().core.loan == msg.Loan(77, 0, 2, {T0: 3, T1: 0})


def test_protocol_1_lends_only_partitions_that_the_transaction_has() -> None:
    script = lending(version=1)
    assert script.core.loan is None
    (request,) = script.requests(msg.AddPartitions)
    assert request.partitions == (T1,)
    script.add_partitions()
    assert script.core.loan == msg.Loan(77, 0, 1, {T0: 3, T1: 0})


def test_sequences_of_returned_records_are_counted() -> None:
    script = lending()
    script.do(msg.Returned({T0: 5, T1: 7}))
    assert script.core.loan is None
    script.append(2, target=T1)
    assert script.sequences() == [(2, 7)]


def test_a_transaction_is_not_committed_while_it_is_lent() -> None:
    script = lending()
    script.do(msg.Call.COMMIT)
    assert script.core.phase is Phase.OPEN
    script.do(msg.Returned({}), msg.Call.COMMIT)
    assert [request.commit for request in script.requests(msg.EndTransaction)] == [True]


def test_nothing_is_appended_while_a_transaction_is_lent() -> None:
    script = lending()
    with pytest.raises(ValueError, match="different partitions"):
        script.append(2)


@pytest.mark.parametrize("records", [{}, {T0: 5}])
def test_after_a_failed_loan_the_transaction_is_aborted_in_kafka(records: dict[TopicPartition, int]) -> None:
    script = transactional()
    script.do(msg.Call.BEGIN, msg.Lend((T0,)), msg.Returned(records, failure=msg.Failure("LOAN_FAILED", "x")))
    assert script.core.phase is Phase.REFUSED
    script.do(msg.Call.COMMIT)
    assert not script.requests()
    script.do(msg.Call.ABORT)
    assert [request.commit for request in script.requests(msg.EndTransaction)] == [False]


def test_an_abort_takes_a_loan_back() -> None:
    script = lending()
    script.do(msg.Call.ABORT)
    assert script.core.loan is None
    assert [request.commit for request in script.requests(msg.EndTransaction)] == [False]


def test_protocol_1_renews_the_epoch_after_a_commit_that_left_a_borrowers_request_unanswered() -> None:
    script = lending(version=1)
    script.add_partitions()
    script.do(msg.Returned({T0: 5}, may_arrive_late=True), msg.Call.COMMIT)
    script.answer(msg.EndTransaction, msg.TransactionEnded(None))
    assert script.core.phase is Phase.RENEWING


def borrowing(protocol: int = 2) -> Script:
    """A producer that borrows: leaders are known, nothing is sent."""
    script = Script(transactional_id="x", idempotent=True, max_in_flight=5)
    script.do(msg.Borrow(msg.Loan(77, 4, protocol, {T0: 3})), led({T0: 1, T1: 1}))
    return script


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_borrower_sends_with_the_lenders_epoch_and_asks_no_coordinator(protocol: int) -> None:
    script = borrowing(protocol)
    script.append(1)
    (request,) = script.requests()
    assert (request.producer_id, request.epoch, request.protocol) == (77, 4, protocol)
    assert script.sequences() == [(1, 3)]


def test_a_borrower_does_not_end_the_transaction() -> None:
    script = borrowing()
    script.append(1)
    script.take_all()
    script.do(msg.Call.COMMIT, msg.Call.ABORT)
    assert not script.requests()


def test_a_borrower_sends_to_no_other_partition() -> None:
    with pytest.raises(ValueError, match="different partitions"):
        borrowing().append(1, target=T1)


def test_a_fenced_borrower_fails() -> None:
    script = borrowing()
    script.append(1)
    script.take_all("INVALID_PRODUCER_EPOCH")
    assert script.core.phase is Phase.FAILED
