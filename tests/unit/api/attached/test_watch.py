"""The watch of an attached cluster goes on whatever a record holds, and says what it could not take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from connectx.api.attached.observation import CONFIG_TOPIC
from connectx.api.attached.watch import KafkaSide, Watch
from connectx.history.log import EventLog
from connectx.rest.client import RestClient


def record(timestamp_ms: Any) -> Any:
    return SimpleNamespace(
        topic=lambda: "configs", key=lambda: b"connector-x", value=lambda: b'{"properties":{"topic":"t"}}',
        offset=lambda: 7, timestamp=lambda: (1, timestamp_ms),
    )  # fmt: skip


def test_a_record_that_cannot_be_taken_is_told_and_the_next_one_is_taken() -> None:
    events, client = EventLog(), RestClient(["http://127.0.0.1:9"])
    kafka = KafkaSide(None, None, "configs", "statuses")  # type: ignore[arg-type]
    watch = Watch(client, kafka, events, 2.0, lambda: 1_000, "http")
    watch._take_news(record(None))
    assert [event.kind.value for event in events] == ["sight_lost"]
    assert watch.lost[CONFIG_TOPIC][1].startswith("TypeError")
    watch._take_news(record(5))
    assert [event.kind.value for event in events] == ["sight_lost", "connector_configured", "sight_regained"]
    assert watch.lost == {}
    client.close()
