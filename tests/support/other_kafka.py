"""Brokers of other Kafkas than the embedded one, on jars that lock files of the tests name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

from connectx.jvm import jars
from connectx.kafka.broker.embedded import EmbeddedKafka

VERSIONS: Final = ("3.9", "4.4")
"""3.9.1 is the last before transactions of protocol 2 (KIP-890), 4.4.0 is what users' clusters may have."""


@contextmanager
def other_kafka(version: str) -> Iterator[None]:
    """Every broker that is started meanwhile has this version."""
    path = Path(__file__).with_name(f"kafka_{version.replace('.', '_')}.lock.json")
    others = tuple(jars.Jar(**entry) for entry in json.loads(path.read_text())[f"kafka-{version}"])
    locked = jars.locked
    with patch.object(jars, "locked", lambda name: others if name == jars.KAFKA else locked(name)):
        yield


@contextmanager
def kafka_3_9(*, gate: bool = True) -> Iterator[EmbeddedKafka]:
    """A broker of Kafka 3.9."""
    with other_kafka("3.9"):
        kafka = EmbeddedKafka(gate=gate).start()
    with kafka:
        yield kafka
