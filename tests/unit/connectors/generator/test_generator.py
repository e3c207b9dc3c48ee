"""The generator's rows follow from their number alone."""

from __future__ import annotations

from typing import Any, cast

import pytest

from connectx.connectors.generator.source import Generator
from connectx.errors.plugins import ConfigError
from connectx.model.ids import TaskId
from tests.support.profiles import dotted


class Context:
    """Never sleeps; notes what it was asked to."""

    task = TaskId("g", 0)

    def __init__(self) -> None:
        self.waits: list[int] = []

    def offset(self, partition: Any) -> None:
        return None

    def offsets(self, partitions: Any) -> list[None]:
        return [None] * len(partitions)

    def wait(self, timeout_ms: int) -> bool:
        self.waits.append(timeout_ms)
        return False


def task(**config: str) -> Any:
    given = dotted({"topic": "t", "rate": "0", **config})
    made = Generator.Task()
    made.start(given, cast("Any", Context()))
    return made


def rows(made: Any, offset: dict[str, int] | None) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", made.poll(None, offset).rows.to_pylist())


def test_the_same_number_gives_the_same_row_wherever_a_poll_begins() -> None:
    whole = rows(task(rows_per_poll="10"), None)
    again = task(rows_per_poll="5")
    assert rows(again, None) + rows(again, {"rows": 5}) == whole
    assert [row["id"] for row in whole] == list(range(10))
    assert len({row["amount"] for row in whole}) == 10


def test_tasks_make_ids_that_do_not_meet() -> None:
    configs = {"topic": "t", "rate": "0", "rows.per.poll": "3"}
    connector = Generator()
    connector.start(configs, cast("Any", None))
    ids = []
    for config in connector.task_configs(2):
        made = Generator.Task()
        made.start(config, cast("Any", Context()))
        ids.append([row["id"] for row in rows(made, None)])
        assert made.partition == {"generator": len(ids) - 1, "of": 2}
    assert ids == [[0, 2, 4], [1, 3, 5]]


def test_it_ends_after_max_rows() -> None:
    made = task(rows_per_poll="10", max_rows="12")
    assert made.poll(None, {"rows": 10}).offset == {"rows": 12}
    assert made.poll(None, {"rows": 12}) is None


def test_a_rate_is_kept_by_waiting_and_not_by_turning() -> None:
    made = task(rate="10")
    assert made.poll(None, None).offset == {"rows": 1}
    assert made.poll(None, {"rows": 1}) is None
    made.idle({"rows": 1})
    assert 50 < made.context.waits[0] <= 101


def test_a_task_that_was_held_up_catches_up_with_one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("connectx.connectors.generator.source.time.monotonic", lambda: now_s)
    made = task(rate="500")
    assert len(rows(made, None)) == 1
    now_s += 60
    assert len(rows(made, {"rows": 1})) == 500
    now_s += 1.5
    assert len(rows(made, {"rows": 501})) == 500
    now_s += 0.5
    assert len(rows(made, {"rows": 1001})) == 250


def test_a_rate_below_one_row_a_second_is_kept_though_idle_wakes_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("connectx.connectors.generator.source.time.monotonic", lambda: now_s)
    made = task(rate="0.5")
    at_s = []
    offset = {"rows": 0}
    while now_s < 107:
        if (found := made.poll(None, offset)) is not None:
            offset = found.offset
            at_s.append(now_s)
        made.idle(offset)
        now_s += made.context.waits[-1] / 1000 + 0.01  # turning takes time, too
    assert [round(each - 100) for each in at_s] == [0, 2, 4, 6]


def test_key_fields_make_the_key() -> None:
    table = task(rows_per_poll="2", key_fields="id").poll(None, None).rows
    assert table.column("key").to_pylist() == [0, 1]
    assert sorted(table.column("value").to_pylist()[0]) == ["amount", "id", "name"]
    both = task(rows_per_poll="1", key_fields="id,name").poll(None, None).rows
    assert sorted(both.column("key").to_pylist()[0]) == ["id", "name"]


@pytest.mark.parametrize("fields", ["id", "id:int", "id:string", "a:long,a:long", ""])
def test_fields_need_names_and_types(fields: str) -> None:
    with pytest.raises(ConfigError, match="fields"):
        task(fields=fields)


def test_a_key_field_has_to_be_a_field() -> None:
    with pytest.raises(ConfigError, match=r"key\.fields"):
        task(key_fields="nothing")
