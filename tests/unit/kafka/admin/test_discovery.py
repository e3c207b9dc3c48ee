"""Internal topics are known by the keys of their records."""

from __future__ import annotations

import pytest

from connectx.kafka.admin.discovery import kind_of


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"session-key"}, "config"),
        ({"connector-f1", "task-f1-0", "commit-f1"}, "config"),
        ({"tasks-fencing-f1"}, "config"),
        ({"status-task-f1-0"}, "status"),
        ({"status-connector-f1", "status-topic-t:connector-f1"}, "status"),
        ({'["f1",{"filename":"/a"}]'}, None),
        ({"order-1", ""}, None),
        (set(), None),
    ],
)
def test_the_kind_of_a_topic_shows_in_its_keys(keys: set[str], kind: str | None) -> None:
    assert kind_of(keys) == kind
