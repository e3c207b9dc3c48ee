"""What errors of librdkafka mean."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from connectx.errors import KafkaRequestError, KafkaUnreachableError
from connectx.kafka.kafka_errors import is_silence, typed


@pytest.mark.parametrize("name", ["_TIMED_OUT", "_TRANSPORT", "_DESTROY_BROKER"])
def test_a_request_whose_connection_ended_was_not_refused(name: str) -> None:
    error = KafkaError(getattr(KafkaError, name))
    assert is_silence(error)
    assert isinstance(typed(error, "list topics", "localhost:9092", None), KafkaUnreachableError)


def test_an_answer_of_the_broker_is_no_silence() -> None:
    error = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR)
    assert not is_silence(error)
    assert isinstance(typed(error, "create a topic", "localhost:9092", None), KafkaRequestError)
