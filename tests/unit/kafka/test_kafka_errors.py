"""What errors of librdkafka and kafka-python mean."""

from __future__ import annotations

import kafka.errors as kafka_errors
import pytest
from confluent_kafka import KafkaError

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import KafkaLoginError, KafkaPermissionError, KafkaRequestError, KafkaUnreachableError
from connectx.kafka.kafka_errors import is_silence, typed, typed_reply


@pytest.mark.parametrize("name", ["_TIMED_OUT", "_TRANSPORT", "_DESTROY_BROKER"])
def test_a_request_whose_connection_ended_was_not_refused(name: str) -> None:
    error = KafkaError(getattr(KafkaError, name))
    assert is_silence(error)
    assert isinstance(typed(error, "list topics", "localhost:9092", None), KafkaUnreachableError)


def test_an_answer_of_the_broker_is_no_silence() -> None:
    error = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR)
    assert not is_silence(error)
    assert isinstance(typed(error, "create a topic", "localhost:9092", None), KafkaRequestError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (kafka_errors.SaslAuthenticationFailedError(), KafkaLoginError),
        (kafka_errors.TopicAuthorizationFailedError(), KafkaPermissionError),
        (kafka_errors.UnknownTopicOrPartitionError(), KafkaRequestError),
        (kafka_errors.KafkaConnectionError(), KafkaUnreachableError),
        (OSError(), KafkaUnreachableError),
    ],
)
def test_an_error_of_kafka_python_is_typed(error: Exception, kind: type[ConnectxError]) -> None:
    assert type(typed_reply(error, "list topics", "localhost:9092")) is kind
