"""A place for source tasks on the broker and the Spark of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.task_harness import Place

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider


@pytest.fixture
def place(kafka: EmbeddedKafka, spark_provider: SparkProvider) -> Iterator[Place]:
    made = Place(kafka, spark_provider)
    yield made
    made.close()
