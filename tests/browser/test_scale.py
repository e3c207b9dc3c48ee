"""Ten workers and a hundred connectors on one screen, on a plain page: filter, order, rows in sight, small bars."""

from __future__ import annotations

import json

import pytest

from connectx.model.events import EventKind
from tests.support.histories import History, many, small_cluster
from tests.support.stage import Show, Stage, joined, shoot

ROWS = ".cxp-connectors tbody tr[data-connector]"


def names(stage: Stage) -> list[str]:
    return list(stage.page.locator(ROWS).evaluate_all("nodes => nodes.map(node => node.dataset.connector)"))


def moving(stage: Stage, second: int) -> None:
    """Every task of every connector moves records."""
    found: dict[str, dict[str, dict[str, object]]] = {f"worker-{number}": {} for number in range(1, 11)}
    for number in range(100):
        name, records = f"{('orders', 'table')[number % 2]}{number // 2:02}", second * (1_000 + 7 * number)
        offset = (
            {"lag": number * second} if number % 2 else {"source_offset": {"rows": records, "file": "/data/in.csv"}}
        )
        for task in range(2):
            found[f"worker-{number % 10 + 1}"][f"{name}-{task}"] = {
                "records": records,
                "topics": [f"topic{number // 2:02}"],
                **offset,
            }
            stage.cluster.commit(f"{name}-{task}", records)
    for worker, metrics in found.items():
        stage.cluster.runs(worker, metrics)


@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (900, "dark")])
def test_a_hundred_connectors_fit_on_one_screen(show: Show, width: int, theme: str) -> None:
    stage = show(many(), width=width, theme=theme)
    stage.until(f"{ROWS} >> nth=10")
    moving(stage, 1)
    stage.until('.cxp-track:has-text("lag")')
    moving(stage, 2)
    stage.until('.cxp-track:has-text("records/s")')
    stage.until(".cxp-flows:not([open])")
    height = stage.page.locator(".cxp").bounding_box()
    assert height is not None
    assert height["height"] <= 950
    assert stage.page.locator(".cxp-connectors tbody tr").count() < 60
    assert stage.page.locator(".cxp-worker").count() == 10
    shoot(stage.page, f"panel-100-{width}")
    stage.page.click('[data-expand="worker-3"]')
    stage.until('.cxp-worker[data-worker="worker-3"]:not(.cxp-folded)')
    shoot(stage.page, f"panel-100-{width}-expanded")


def test_rows_out_of_sight_come_when_the_table_is_scrolled(show: Show) -> None:
    stage = show(many(), width=1400)
    assert "table49" not in names(stage)
    table = stage.page.locator(".cxp-table")

    def scrolled_to_the_end() -> bool:
        table.evaluate("node => { node.scrollTop = node.scrollHeight; }")
        return "table49" in names(stage)

    stage.wait(scrolled_to_the_end)
    assert stage.page.locator(f'{ROWS}[data-connector="table49"]').get_attribute("aria-rowindex") == "101"
    assert "orders00" not in names(stage)


def test_a_filter_and_an_order_choose_rows_and_bars(show: Show) -> None:
    stage = show(many(), width=1400)
    stage.cluster.task_state("orders07-0", "FAILED", "OSError: No space left on device")
    stage.until('.cxp-notice:has-text("No space left")')
    stage.page.fill("[data-filter]", "failed")
    stage.wait(lambda: names(stage) == ["orders07"])
    stage.page.fill("[data-filter]", "table1")
    stage.wait(lambda: names(stage) == [f"table1{number}" for number in range(10)])
    assert stage.page.inner_text(".cxp-count") == "10 of 100 connectors"
    tasks = stage.page.locator(".cxp-svg [data-task]").evaluate_all("nodes => nodes.map(node => node.dataset.task)")
    assert all(task.startswith("table1") for task in tasks)
    shoot(stage.page, "panel-100-filtered")
    stage.cluster.commit("table13-0", 99)
    stage.page.select_option("[data-order-by]", "records")
    stage.wait(lambda: names(stage)[0] == "table13")
    stage.page.click('th[data-order="name"]')
    stage.wait(lambda: names(stage)[0] == "table10")
    stage.page.fill("[data-filter]", "nowhere")
    stage.until('.cxp-connectors td:has-text("no connector matches")')


def test_messages_of_a_hundred_busy_connectors_stay_below_50_kilobytes_for_each_reading(show: Show) -> None:
    stage = show(many(), width=1400)
    sizes = []
    for second in range(1, 6):
        sent = len(stage.panel.recorded)
        moving(stage, second)
        stage.wait(lambda since=sent: any(m["kind"] == "change" for m in stage.panel.recorded[since:]))  # type: ignore[misc]
        changes = [message for message in stage.panel.recorded[sent:] if message["kind"] == "change"]
        sizes.append(sum(len(json.dumps(message)) for message in changes))
    assert max(sizes) < 50_000
    stage.until(f"{ROWS} .cxp-rate:not(:empty)")


def test_dead_workers_of_which_nothing_is_in_sight_are_folded_away(show: Show) -> None:
    dead = History().started("worker-8", "worker-9").fault("kill", "worker-8").fault("kill", "worker-9")
    history = small_cluster()
    history.events = joined(dead.at(200).add(EventKind.SESSION_KEY_ROTATED, "worker-9").events, history.events)
    stage = show(history, width=900)
    stage.page.click('[data-span="30000"]')
    stage.until('[data-dead]:has-text("2 dead workers")')
    assert stage.page.locator(".cxp-worker").count() == 3
    stage.page.click("[data-dead]")
    stage.wait(lambda: stage.page.locator(".cxp-worker").count() == 5)
