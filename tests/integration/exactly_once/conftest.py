"""Three workers to break, for the rules of KIP-618; flows of known rows, and a link that can be shut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

import connectx as cx
from tests.support.clusters import MakeCluster, ask, restore
from tests.support.flows import Rows
from tests.support.links import Valve
from tests.support.profiles import EOS


@pytest.fixture
def asked() -> Iterator[Callable[..., Future[httpx.Response]]]:
    """`asked(worker, method, path)`: a request on a thread of its own, answered later."""
    with ThreadPoolExecutor(4) as pool:
        yield lambda *args: pool.submit(ask, *args)


@pytest.fixture(scope="package")
def group(make_cluster: MakeCluster) -> Iterator[cx.Cluster]:
    """Three workers to break."""
    with make_cluster(workers=3, config=EOS) as made:
        yield made


@pytest.fixture
def workers(group: cx.Cluster) -> cx.Cluster:
    """Three workers that run and agree, and no connectors."""
    restore(group)
    return group


@pytest.fixture
def valve(group: cx.Cluster) -> Iterator[Valve]:
    made = Valve(group.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def make_rows(numbers: Iterator[int]) -> Iterator[Callable[[cx.Cluster], Rows]]:
    made: list[Rows] = []

    def make(cluster: cx.Cluster) -> Rows:
        rows = Rows(cluster, f"rows{next(numbers)}")
        made.append(rows)
        return rows

    yield make
    for rows in made:
        rows.close()
