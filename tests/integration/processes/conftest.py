"""A cluster whose workers are processes, shared by the tests that end them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import connectx as cx
from tests.support.profiles import QUICK

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider


@pytest.fixture(scope="package")
def processes(spark_provider: SparkProvider) -> Iterator[cx.Cluster]:
    """Three workers in separate processes, and fast failover."""
    with cx.Cluster(workers=3, config=QUICK, isolation="process", fast_failover=True) as made:
        yield made
