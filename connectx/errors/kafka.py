"""Errors of Kafka: its clients, topics, offsets and producers."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class ClientSettingError(ConnectxError):
    """A setting of a Kafka client is wrong, or connectx's clients do not support it."""


class KafkaUnreachableError(ConnectxError):
    """No broker answered."""

    retriable = True

    def __init__(self, bootstrap_servers: str, what: str, cause: str) -> None:
        super().__init__(
            f"No Kafka broker at {bootstrap_servers} answered when connectx tried to {what} ({cause}).",
            next_step="Check that the brokers run and that bootstrap.servers and security.protocol fit them.",
        )


class KafkaLoginError(ConnectxError):
    """The brokers do not accept the credentials or the certificate of a client, or the client does not trust them."""

    def __init__(self, bootstrap_servers: str, cause: str) -> None:
        super().__init__(
            f"The login to Kafka at {bootstrap_servers} failed ({cause}).",
            next_step="Check security.protocol and the sasl.* and ssl.* settings.",
        )


class KafkaPermissionError(ConnectxError):
    """The brokers accept the login of a client and refuse its request."""

    def __init__(self, what: str, cause: str) -> None:
        super().__init__(
            f"Kafka does not allow connectx to {what} ({cause}).",
            next_step="Give the user of this client the permission (ACL) for it.",
        )


class KafkaRequestError(ConnectxError):
    """Kafka refused a request for another reason, which the message names."""

    def __init__(self, what: str, cause: str, *, next_step: str = "") -> None:
        super().__init__(f"Kafka did not let connectx {what} ({cause}).", next_step=next_step)


class TopicMissingError(ConnectxError):
    """A topic does not exist and cannot be created."""

    def __init__(self, topic: str, why: str, *, next_step: str) -> None:
        reason = f" and was not created: {why}" if why else ""
        super().__init__(f"The topic {topic} does not exist{reason}.", next_step=next_step)


class InternalTopicError(ConnectxError):
    """An internal topic exists, but is not one that workers can use."""

    def __init__(self, setting: str, topic: str, why: str, *, next_step: str) -> None:
        super().__init__(f"The topic {topic} of the setting {setting} cannot be used: {why}.", next_step=next_step)


class ReadToEndError(ConnectxError):
    """The end of a topic was not reached in time."""

    retriable = True

    def __init__(self, topic: str, timeout_s: float, why: str) -> None:
        super().__init__(
            f"The topic {topic} was not read to its end within {timeout_s:g} s: {why}.",
            next_step="Check the brokers; with exactly-once, an open transaction in the topic holds readers back "
            "until it ends or transaction.timeout.ms has passed.",
        )


class ClientClosedError(ConnectxError):
    """The worker or the task was stopped while this call waited for Kafka."""


class ProducerFencedError(ConnectxError):
    """Another producer initialised the same transactional id: this one may not write any more (KIP-618)."""

    def __init__(self, transactional_id: str, cause: str) -> None:
        super().__init__(
            f"The producer was fenced by a newer producer with the same transactional id {transactional_id} ({cause}).",
            next_step="Another instance of this task runs; restart this one only if it should take over.",
        )


class TransactionExpiredError(ConnectxError):
    """A transaction was open for longer than the broker allows and was aborted by it."""

    def __init__(self, transactional_id: str, *, open_ms: int, timeout_ms: int, cause: str) -> None:
        super().__init__(
            f"The transaction of {transactional_id} expired: it was open for {open_ms} ms and transaction.timeout.ms "
            f"is {timeout_ms} ms ({cause}).",
            next_step="Raise producer.override.transaction.timeout.ms, shorten transaction.boundary.interval.ms, or "
            "use transaction.boundary=poll; nothing of it was committed, restart the task.",
        )


class RecordTooLargeError(ConnectxError):
    """A record is larger than the producer, the topic or the broker takes."""


class RecordRefusedError(ConnectxError):
    """Kafka refused a record permanently."""


class ProducerError(ConnectxError):
    """The producer of a task cannot be used."""


class TopicNotCreatableError(ConnectxError):
    """A topic that a source task writes to is missing and could not be created (KIP-158)."""


class OwnOffsetsTopicError(ConnectxError):
    """A source task produced to the topic that holds its own offsets."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"The task writes records to {topic}, which is the topic that its own source offsets go to: its open "
            "transaction would block every reader of the offsets.",
            next_step="Choose another topic for the records, or another offset.storage.topic for the workers.",
        )


class RecordBatchError(ConnectxError):
    """A batch of a topic cannot be read. Kafka's consumers stop there, too."""

    def __init__(self, partition: str, offset: int, why: str) -> None:
        super().__init__(
            f"The record batch of {partition} at offset {offset} cannot be read: {why}.",
            next_step="To continue after it, stop the connector, alter its offset of that partition "
            "(PATCH /connectors/NAME/offsets) and resume it; or delete the records up to it from the topic.",
        )


class OffsetOutOfRangeError(ConnectxError):
    """The log of a partition does not have the offset where a sink task continues."""

    def __init__(self, partition: str, offset: int, cause: str) -> None:
        super().__init__(
            f"The log of {partition} has no offset {offset}, where the task should continue ({cause}): retention "
            "removed records that were not read yet, or the topic was created again.",
            next_step="Restart the task to continue where auto.offset.reset points; for an exactly-once sink first "
            "correct or delete the row of that partition in the target's table of offsets.",
        )
        self.partition, self.offset = partition, offset
