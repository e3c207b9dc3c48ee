"""A source task finds or creates each topic once, also topics that come later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from connectx.runtime.tasks.source.topics import SourceTopics


class OneUseAdmin:
    """An admin client that knows all topics, until it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def partition_counts(self, topics: Sequence[str], timeout_s: float) -> dict[str, int]:
        assert not self.closed, "the client was closed"
        return dict.fromkeys(topics, 1)

    def close(self) -> None:
        self.closed = True


def test_new_topics_may_come_more_than_once() -> None:
    made: list[OneUseAdmin] = []
    used: list[str] = []

    def admin() -> Any:
        made.append(OneUseAdmin())
        return made[-1]

    settings: Any = None
    topics = SourceTopics(
        settings, create=True, offsets_topic="offsets", admin=admin, checkpoint=lambda: None, used=used.append
    )
    for named in (["a"], ["a"], ["b", "c"]):
        topics.ensure(named)
    assert used == ["a", "b", "c"]
    assert [one.closed for one in made] == [True, True]
