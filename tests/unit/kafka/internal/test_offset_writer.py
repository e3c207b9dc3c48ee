"""A user's write of source offsets whose commit Kafka does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.errors import RecordRefusedError, RestError
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
