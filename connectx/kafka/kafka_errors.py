"""Wording of librdkafka's and kafka-python's errors, and which of librdkafka's are transient."""

from __future__ import annotations

from typing import Final

import kafka.errors as kafka_errors
from confluent_kafka import KafkaError

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import KafkaLoginError, KafkaPermissionError, KafkaRequestError, KafkaUnreachableError
from connectx.kafka.net import AUTHENTICATION_ERRORS

_LOGIN: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED})
_PERMISSION: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_SILENCE: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._DESTROY_BROKER,  # librdkafka replaced a connection while it learned the brokers' names
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


def is_permission_error(error: KafkaError) -> bool:
    """True when the broker accepts the client's login and refuses its request."""
    return error.code() in _PERMISSION


def is_silence(error: KafkaError) -> bool:
    """True when no response came in time."""
    return error.code() in _SILENCE


def worth_knowing(error: KafkaError) -> bool:
    """True for an error of the connection that has a separate cause."""
    return error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


def typed(error: KafkaError, what: str, bootstrap_servers: str, connection_error: KafkaError | None) -> ConnectxError:
    """The typed error for a failed call; `what` completes "connectx wanted to ...".

    `connection_error` is the last trouble with a connection: a call reports only a timeout.
    """
    if connection_error is not None and error.code() in _SILENCE:
        if connection_error.code() in _LOGIN:
            return KafkaLoginError(bootstrap_servers, connection_error.str())
        return KafkaUnreachableError(bootstrap_servers, what, connection_error.str())
    if error.code() in _LOGIN:
        return KafkaLoginError(bootstrap_servers, error.str())
    if error.code() in _PERMISSION:
        return KafkaPermissionError(what, error.str())
    if error.code() in _SILENCE:
        return KafkaUnreachableError(bootstrap_servers, what, error.str())
    return KafkaRequestError(what, error.str())


def typed_reply(error: Exception, what: str, bootstrap_servers: str) -> ConnectxError:
    """The typed error for a failed call of kafka-python; `what` completes "connectx wanted to ..."."""
    if isinstance(error, AUTHENTICATION_ERRORS):
        return KafkaLoginError(bootstrap_servers, f"{error}")
    if isinstance(error, kafka_errors.AuthorizationError):
        return KafkaPermissionError(what, f"{error}")
    if isinstance(error, kafka_errors.BrokerResponseError):
        return KafkaRequestError(what, f"{error}")
    return KafkaUnreachableError(bootstrap_servers, what, f"{error}")
