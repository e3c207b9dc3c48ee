"""Flows of numbered lines for the clusters of integration tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import connectx as cx
from tests.support.flows import Lines


@pytest.fixture
def make_lines(tmp_path: Path, numbers: Iterator[int]) -> Iterator[Callable[..., Lines]]:
    """`make_lines(cluster, partitions=1)`: a new file, connector name and topic."""
    made: list[Lines] = []

    def make(cluster: cx.Cluster, partitions: int = 1) -> Lines:
        lines = Lines(cluster, f"lines{next(numbers)}", tmp_path, partitions)
        made.append(lines)
        return lines

    yield make
    for lines in made:
        lines.close()
