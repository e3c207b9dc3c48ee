"""Clusters that this process has open, and the end of all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connectx.api import open_clusters


class Open:
    """What the list knows of a cluster; closing it may fail."""

    def __init__(self, group_id: str, *, fails: bool = False) -> None:
        self.config = SimpleNamespace(group_id=group_id)
        self.kafka = object()
        self._fails = fails

    def close(self) -> None:
        open_clusters.closed(self)  # type: ignore[arg-type]
        if self._fails:
            raise OSError("the disk is full")


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    clusters: list[Any] = [Open("a"), Open("b", fails=True), Open("c")]
    monkeypatch.setattr(open_clusters, "_OPEN", clusters)
    return clusters


def test_all_are_closed_although_one_cannot_be(listed: list[Any]) -> None:
    with pytest.raises(OSError, match="full"):
        open_clusters.close_all()
    assert open_clusters.clusters() == []
    assert listed == []


def test_a_list_that_was_asked_for_stays_as_it_was(listed: list[Any]) -> None:
    before = open_clusters.clusters()
    open_clusters.closed(listed[0])
    assert len(before) == 3
    assert len(open_clusters.clusters()) == 2


def test_only_the_same_group_is_told(listed: list[Any], recwarn: pytest.WarningsRecorder) -> None:
    open_clusters.warn_of_another("d")
    listed[0].kafka = None
    open_clusters.warn_of_another("a")  # on your Kafka: a group that is in use is refused there
    assert not recwarn
    with pytest.warns(UserWarning, match="'b'"):
        open_clusters.warn_of_another("b")
