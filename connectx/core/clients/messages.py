"""Requests of a client's core and their outcome. Record bytes never come here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from connectx.core.step import EffectT, Step
from connectx.model.ids import TopicPartition
from connectx.values import Value

AnswerT_co = TypeVar("AnswerT_co", covariant=True)
RequestT_co = TypeVar("RequestT_co", covariant=True)


class FetchMetadata(Value):
    """Ask any broker for the leaders of topics."""

    topics: tuple[str, ...]


class Leader(Value):
    """Node that leads a partition, and since which epoch; -1 if that is not known."""

    node: int
    epoch: int = -1


class MetadataFetched(Value):
    """Answer to FetchMetadata.

    Attributes:
        leaders: partitions with a leader.
        errors: topics that Kafka does not know or does not show, with Kafka's name of the error.
        leaderless: partitions that exist without a leader.
    """

    leaders: Mapping[TopicPartition, Leader]
    errors: Mapping[str, str] = field(default_factory=dict)
    leaderless: frozenset[TopicPartition] = frozenset()


class SendRequest(Value, Generic[RequestT_co]):
    """Send on the connection to a node, which is opened if there is none; `node` None: any broker.

    Requests to one node keep their order. Each gets one Answered or Unanswered.
    """

    request_id: int
    node: int | None
    request: RequestT_co


class Answered(Value, Generic[AnswerT_co]):
    """A request was answered on the connection that it was sent on."""

    request_id: int
    answer: AnswerT_co


class Unanswered(Value):
    """A request gets no answer any more: its connection was cut, timed out, or could not be opened.

    `sent` is False only if no byte of it can have left. A request that was sent may still arrive at any later time.
    """

    request_id: int
    reason: str = ""
    sent: bool = True


class TimeReached(Value):
    """The time that the last step asked for, or any later time."""


@dataclass(slots=True)
class ClientStep(Step[EffectT]):
    """A step of a client's core; `wake_at_ms` is when TimeReached is due, None if it is not needed."""

    wake_at_ms: int | None = None
