"""A user's write of source offsets whose commit Kafka does not answer."""

from __future__ import annotations

import math
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectx.errors import RestError
from connectx.kafka.internal.offset_writer import _commit, _write_in_transaction

SILENCE = KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True)
REFUSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed", txn_requires_abort=True)


class Answers:
    """What librdkafka says to each commit, in order; None: done."""

    def __init__(self, *commits: KafkaError | None) -> None:
        self._commits = list(commits)
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.append(name)

    def commit_transaction(self, timeout_s: float) -> None:
        self.calls.append("commit_transaction")
        error = self._commits.pop(0)
        if error is not None:
            raise KafkaException(error)


def test_a_commit_that_was_not_answered_is_repeated_and_nothing_else() -> None:
    producer: Any = Answers(SILENCE, SILENCE, None)
    _write_in_transaction(producer, "t", [(b"k", b"v")])
    assert producer.calls == ["init_transactions", "begin_transaction", "produce", *["commit_transaction"] * 3]


def test_a_commit_that_was_never_answered_leaves_a_doubt_that_is_named() -> None:
    producer: Any = Answers(SILENCE)
    with pytest.raises(RestError, match="may or may not have been written to topic t") as raised:
        _commit(producer, "t", -math.inf)
    assert raised.value.status == 500
    assert producer.calls == ["commit_transaction"]


def test_a_transaction_that_is_refused_is_aborted_and_leaves_no_doubt() -> None:
    producer: Any = Answers(SILENCE, REFUSED)
    with pytest.raises(KafkaException, match="not allowed"):
        _write_in_transaction(producer, "t", [(b"k", b"v")])
    assert producer.calls[-2:] == ["commit_transaction", "abort_transaction"]
