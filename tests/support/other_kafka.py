"""A broker of Kafka 3.9, the last before transactions of protocol 2 (KIP-890)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

from connectx.jvm import jars
from connectx.kafka.broker.embedded import EmbeddedKafka

_LOCK: Final = Path(__file__).with_name("kafka_3_9.lock.json")


@contextmanager
def kafka_3_9(*, gate: bool = True) -> Iterator[EmbeddedKafka]:
    """The embedded broker on the jars of 3.9.1, which a lock file of the tests names."""
    old = tuple(jars.Jar(**entry) for entry in json.loads(_LOCK.read_text())["kafka-3.9"])
    locked = jars.locked
    with patch.object(jars, "locked", lambda name: old if name == jars.KAFKA else locked(name)):
        kafka = EmbeddedKafka(gate=gate).start()
    with kafka:
        yield kafka
