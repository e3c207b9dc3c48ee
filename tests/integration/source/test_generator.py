"""The generator from rows to topic."""

from __future__ import annotations

import json

from tests.support.task_harness import Place
from tests.support.waiting import until


def test_ids_are_gapless_over_a_kill(place: Place) -> None:
    config = {
        "connector.class": "Generator",
        "topic": f"{place.group}-t",
        "rate": "0",
        "rows.per.poll": "500",
        "max.rows": "5000",
        "key.fields": "id",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    first = place.task(config).begin()
    until(lambda: "commits" in first.runner.metrics() and len(place.values(f"{place.group}-t")) >= 500, "some rows")
    first.runner.kill()
    assert first.runner.join(20)
    second = place.task(config, instance=2).begin()
    values = [json.loads(value) for value in place.wait_for_values(f"{place.group}-t", 5000)]
    assert [value["id"] for value in values] == list(range(5000))
    second.stop()
    assert place.committed({"generator": 0, "of": 1}) == {"rows": 5000}
