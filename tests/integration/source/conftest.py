"""A place for source tasks on the broker and the Spark of all tests, and databases to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.jdbc_shops import MariaShop, Shop
from tests.support.task_harness import Place

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider


@pytest.fixture
def place(kafka: EmbeddedKafka, spark_provider: SparkProvider) -> Iterator[Place]:
    made = Place(kafka, spark_provider)
    yield made
    made.close()


@pytest.fixture
def shop(postgres: str) -> Iterator[Shop]:
    """A schema in PostgreSQL for one test."""
    made = Shop(postgres)
    yield made
    made.close()


@pytest.fixture
def maria(mariadb: str) -> Iterator[MariaShop]:
    """A database in MariaDB for one test."""
    made = MariaShop(mariadb)
    yield made
    made.close()
