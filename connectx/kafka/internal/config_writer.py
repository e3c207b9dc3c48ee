"""Writes to the config topic that need no leadership, and all writes while exactly-once is disabled.

It decides nothing and has no thread: `write` hands records over, `serve` handles their results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from connectx.kafka.settings.client_config import ClientConfig

KeyValue = tuple[str, bytes | None]
Outcome = Callable[[str | None], object]


@dataclass(slots=True)
class _Step:
    """A write, or what has to wait for the writes before it; over when nothing of it is outstanding."""

    outstanding: int
    outcome: Outcome
    error: str | None = None


class ConfigProducer:
    """The producer, created with the first write."""

    def __init__(self, config: Callable[[], ClientConfig], topic: str) -> None:
        self._config = config
        self._topic = topic
        self._producer: Producer | None = None
        self._steps: deque[_Step] = deque()

    def write(self, records: Sequence[KeyValue], outcome: Outcome) -> None:
        """Append records, in order. Never blocks; from one thread. `outcome` gets None, or why a record is lost."""
        step = _Step(len(records), outcome)

        def delivered(error: KafkaError | None, message: Any) -> None:
            step.outstanding -= 1
            if error is not None:
                step.error = error.str()

        try:
            if self._producer is None:
                self._producer = Producer(self._config())
            self._steps.append(step)
            for key, value in records:
                self._producer.produce(self._topic, value=value, key=key, on_delivery=delivered)
        except (KafkaException, BufferError) as error:
            if step in self._steps:
                self._steps.remove(step)
            outcome(str(error))

    def after_writes(self, action: Callable[[], object]) -> None:
        """Run this when all previous writes have ended: immediately if there are none."""
        if self._steps:
            self._steps.append(_Step(0, lambda error: action()))
        else:
            action()

    def serve(self) -> None:
        """Report the outcome of writes that have ended. Called repeatedly from one thread; never blocks."""
        producer = self._producer
        if producer is not None:
            producer.poll(0)
        while self._steps and self._steps[0].outstanding == 0:
            step = self._steps.popleft()
            step.outcome(step.error)

    def close(self, timeout_s: float) -> None:
        """Send what is outstanding, as far as the time allows, and let the producer go."""
        if self._producer is not None:
            self._producer.flush(timeout_s)
            self._producer = None

    def abandon(self) -> None:
        """A killed worker: send nothing more."""
        if self._producer is not None:
            self._producer.purge(blocking=False)
            self._producer = None
