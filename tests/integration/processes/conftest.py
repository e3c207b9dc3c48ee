"""A cluster whose workers are processes, shared by the tests that end them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import connectx as cx
from tests.integration.cluster.conftest import QUICK, WAIT_S, Lines, events, make_lines, names, owner_of, until

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider

__all__ = ["QUICK", "WAIT_S", "Lines", "events", "make_lines", "names", "owner_of", "until"]


@pytest.fixture(scope="session")
def processes(spark_provider: SparkProvider) -> Iterator[cx.Cluster]:
    """Three workers in processes of their own, and fast failover."""
    with cx.Cluster(workers=3, config=QUICK, isolation="process", fast_failover=True) as made:
        yield made
