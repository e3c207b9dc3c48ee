"""A user's write of source offsets whose commit Kafka does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.errors.kafka import ProducerError, RecordRefusedError
from connectx.errors.rest import RestError
from connectx.kafka.internal.offset_writer import _NoAnswerError, _write_in_transaction

REFUSED = RecordRefusedError("Kafka refused a record for topic t: TOPIC_AUTHORIZATION_FAILED.")


class Answers:
    """What the producer says to each commit, in order."""

    def __init__(self, *commits: bool | Exception) -> None:
        self._commits = list(commits)
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.append(name)

    def commit(self, timeout_s: float) -> bool:
        self.calls.append("commit")
        answer = self._commits.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_commit_that_was_not_answered_is_repeated_and_nothing_else() -> None:
    producer: Any = Answers(False, False, True)
    _write_in_transaction(producer, "t", [(b"k", b"v")])
    assert producer.calls == ["init", "begin", "send_records", *["commit"] * 3, "abandon"]


def test_a_commit_that_was_never_answered_leaves_a_doubt_that_is_named() -> None:
    producer: Any = Answers(False, _NoAnswerError("no answer"))
    with pytest.raises(RestError, match="may or may not have been written to topic t") as raised:
        _write_in_transaction(producer, "t", [(b"k", b"v")])
    assert raised.value.status == 500
    assert producer.calls[-3:] == ["commit", "commit", "abandon"]


def test_a_transaction_that_is_refused_is_aborted_and_leaves_no_doubt() -> None:
    producer: Any = Answers(False, REFUSED)
    with pytest.raises(RecordRefusedError):
        _write_in_transaction(producer, "t", [(b"k", b"v")])
    assert producer.calls[-3:] == ["commit", "abort", "abandon"]


@pytest.mark.parametrize("first", [REFUSED, _NoAnswerError("no answer")])
def test_what_failed_first_is_raised_when_the_abort_fails_too(first: Exception) -> None:
    class Failing(Answers):
        def send_records(self, *args: Any) -> None:
            raise first

        def abort(self, timeout_s: float) -> None:
            self.calls.append("abort")
            raise ProducerError("Kafka did not answer the abort.")

    producer: Any = Failing()
    with pytest.raises(type(first)) as raised:
        _write_in_transaction(producer, "t", [(b"k", b"v")])
    assert raised.value is first
    assert producer.calls == ["init", "begin", "abort", "abandon"]
