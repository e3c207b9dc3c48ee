"""A whole cluster on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import connectx as cx
from tests.support.clusters import MakeCluster
from tests.support.profiles import QUICK


@pytest.fixture(scope="package")
def cluster(make_cluster: MakeCluster) -> Iterator[cx.Cluster]:
    """Two workers, for tests that break no worker."""
    with make_cluster(workers=2, config=QUICK) as made:
        yield made
