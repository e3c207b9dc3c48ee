"""What the panel shows of connectors and their data, on a plain page: details, rates, failures."""

from __future__ import annotations

import pytest

from tests.support.histories import small_cluster
from tests.support.stage import Show, Stage, shoot

DETAILS = 'button[data-open="flights-in"]'


def test_open_details_show_the_trace_of_a_task_that_fails_and_then_that_of_its_next_failure(show: Show) -> None:
    stage = show(small_cluster())
    stage.page.click(DETAILS)
    stage.until(".cxp-config")
    stage.cluster.task_state("flights-in-0", "FAILED", "FileNotFoundError: /nope/missing.csv")
    stage.until('.cxp-details pre:has-text("missing.csv")')
    stage.cluster.task_state("flights-in-0", "RUNNING")
    stage.wait(lambda: stage.page.locator(".cxp-details pre").count() == 0)
    stage.cluster.task_state("flights-in-0", "FAILED", "ValueError: line 4 has no field")
    stage.until('.cxp-details pre:has-text("line 4")')
    assert stage.page.locator(".cxp-details pre").count() == 1


def test_open_details_show_a_configuration_as_soon_as_a_worker_has_read_it(show: Show) -> None:
    stage = show(small_cluster())
    stage.page.click(DETAILS)
    stage.until('.cxp-config td:has-text("/data/flights.csv")')
    stage.cluster.configure("flights-in", {"connector.class": "FileSource", "topic": "flights", "file": "/data/new"})
    stage.until('.cxp-config td:has-text("/data/new")')


def test_edit_starts_from_the_configuration_as_it_is_at_the_click(show: Show) -> None:
    stage = show(small_cluster())
    stage.page.click(DETAILS)
    stage.until(".cxp-config")
    stage.cluster["flights-in"].config = {"connector.class": "FileSource", "topic": "elsewhere", "file": "/data/a"}
    stage.page.click('button[data-edit="flights-in"]')
    stage.until('[data-field="topic"]')
    assert stage.page.input_value('[data-field="topic"]') == "elsewhere"


def test_details_of_a_connector_that_is_deleted_elsewhere_close(show: Show) -> None:
    stage = show(small_cluster())
    stage.cluster.configure("flights-in", {"connector.class": "FileSource"})
    stage.page.click(DETAILS)
    stage.until(".cxp-config")
    stage.cluster.delete("flights-in")
    stage.wait(lambda: stage.page.locator(".cxp-details").is_hidden())
    assert stage.page.locator(".cxp-error").is_hidden()


def test_totals_and_rates_are_drawn_and_a_burst_does_not_flicker(show: Show) -> None:
    stage = show(small_cluster())
    stage.cluster.runs("worker-2", {"flights-in-0": {"records": 0}})
    stage.until('tr[data-connector="flights-in"] .cxp-rate:has-text("0/s")')
    stage.cluster.commit("flights-in-0", 27_004)
    stage.cluster.runs("worker-2", {"flights-in-0": {"records": 27_004}})
    stage.until('tr[data-connector="flights-in"] .cxp-total:has-text("27,004")')
    stage.until('tr[data-connector="flights-in"] .cxp-rate:not(:has-text("0/s"))')
    stage.until('tr[data-connector="flights-in"] .cxp-spark path')
    before = len(stage.panel.recorded)
    stage.wait(lambda: sum(m["kind"] == "change" for m in stage.panel.recorded[before:]) >= 3)
    assert stage.page.inner_text('tr[data-connector="flights-in"] .cxp-rate') != "0/s"


def test_a_task_shows_its_lane_its_reason_and_the_progress_of_its_job(show: Show) -> None:
    stage = show(small_cluster(), width=1300)
    stage.page.click('button[data-open="flights-out"]')
    row, why = '[data-task-row="0"] .cxp-lane', "104.9 MB wait, and Spark has 8 cores"
    bulk = {"records": 5, "lag": 90, "positions": {}, "lane": "bulk", "lane_reason": why}
    tail = {**bulk, "lane": "tail", "lane_reason": "20 bytes wait", "job": None}
    for done in (None, 3):
        job = {"job": 7, "parts": 8, "parts_done": done}
        stage.cluster.runs("worker-3", {"flights-out-0": {**bulk, "job": job}})
        stage.cluster.runs("worker-1", {"flights-out-1": tail})
        stage.until(f'{row}:has-text("bulk"):has-text("{done or 0}/8 parts"):has-text("{why}")')
    assert stage.page.locator(f"{row} progress").evaluate("bar => bar.position") == 3 / 8
    assert stage.page.get_attribute(row, "title") == why
    stage.until('[data-task-row="1"] .cxp-lane:has-text("tail"):has-text("20 bytes wait")')
    mark = 'tr[data-connector="flights-out"] .cxp-bulk'
    assert stage.page.get_attribute(mark, "aria-label") == "1 task in bulk: Spark's executors convert and write"
    shoot(stage.page, "panel-lanes")
    stage.cluster.runs("worker-3", {"flights-out-0": tail})
    stage.wait(lambda: stage.page.locator(f"{mark}, .cxp-lane progress").count() == 0)


def test_what_a_zombie_writes_is_in_the_rate_and_said(show: Show) -> None:
    stage = show(small_cluster(), width=1300)
    for records in (0, 40_000):
        stage.cluster.runs("worker-3", {"flights-out-0": {"records": records, "lag": 0}}, generation=2)
        stage.cluster.runs("worker-1", {"flights-out-0": {"records": 0, "lag": 7}}, generation=3)
        stage.until('tr[data-connector="flights-out"] .cxp-where:has-text("lag 7")')
    stage.until('.cxp-notice[data-notice="flights-out"]:has-text("zombies write")')
    shoot(stage.page, "panel-zombie-writes")


def places(stage: Stage) -> list[object]:
    """Where the buttons of the connectors are, and the height of the table."""
    return list(
        stage.page.evaluate(
            """() => [...document.querySelectorAll(".cxp-actions button, .cxp-connectors")].map((node) => {
              const box = node.getBoundingClientRect();
              return [node.getAttribute("aria-label"), box.x, box.y, node.tagName === "TABLE" ? box.height : 0]; })"""
        )
    )


@pytest.mark.parametrize("width", [1300, 900])
def test_no_button_of_a_connector_moves_while_states_numbers_and_failures_change(show: Show, width: int) -> None:
    stage = show(small_cluster(), width=width)
    stage.until('tr[data-connector="flights-in"]')
    before = places(stage)
    stage.cluster.commit("flights-in-0", 123_456_789)
    offset = {"records": 123_456_789, "source_offset": {"rows": 123_456_789, "file": "/data/flights-of-the-year.csv"}}
    stage.cluster.runs("worker-2", {"flights-in-0": offset})
    stage.cluster.task_state("flights-out-0", "FAILED", "OSError: [Errno 28] No space left on device: '/data/out'")
    stage.cluster.kill("worker-2")
    stage.until('.cxp-notice:has-text("No space left")')
    stage.until('tr[data-connector="flights-in"]:has-text("LOST")')
    stage.until('tr[data-connector="flights-in"] .cxp-where:has-text("flights-of-the-year")')
    shoot(stage.page, f"panel-failover-{width}")
    assert places(stage) == before
    stage.page.click('button[data-verb="delete"][data-connector="flights-out"]')
    stage.until("button.sure")
    shoot(stage.page, f"panel-sure-{width}")
    assert [place[1:] for place in places(stage)] == [place[1:] for place in before]  # type: ignore[index]


@pytest.mark.parametrize("width", [1300, 620])
def test_the_flow_goes_from_a_source_through_its_topic_into_a_sink(show: Show, width: int) -> None:
    stage = show(small_cluster(), width=width, theme="dark" if width == 620 else "light")
    stage.cluster.commit("flights-in-0", 27_004)
    stage.cluster.commit("flights-out-0", 26_900)
    out = {"records": 26_900, "lag": 0, "positions": {"flights-0": 26_900}}
    for lag, latency in ((0, {40: 1}), (104, {40: 900, 80: 20})):
        stage.cluster.runs("worker-2", {"flights-in-0": {"records": 27_004, "topics": ["flights"]}})
        stage.cluster.runs("worker-3", {"flights-out-0": {**out, "lag": lag, "latency": latency}})
        stage.until(f'tr[data-connector="flights-out"] .cxp-where:has-text("lag {lag}")')
    flow = '.cxp-flow[data-topic="flights"]'
    stage.until(f'{flow} [data-flow="flights-in"]:has-text("27,004 in")')
    stage.until(f'{flow} .cxp-topic:has-text("27,004 in it")')
    stage.until(f'{flow} [data-flow="flights-out"]:has-text("26,900 out"):has-text("lag 104, ")')
    stage.until(f'{flow} [data-flow="flights-out"]:has-text("p50 35 ms, p99 1.1 s")')
    shoot(stage.page, f"panel-flow-{width}")


def test_records_of_a_topic_are_looked_at_and_filtered_in_the_panel(show: Show) -> None:
    stage = show(small_cluster(), width=1300)
    stage.cluster.runs("worker-2", {"flights-in-0": {"records": 9, "topics": ["flights"]}})
    stage.until('button[data-peek="flights"]')
    stage.page.click('button[data-peek="flights"]')
    stage.until('.cxp-rows td:text-is("UA19")')
    assert stage.page.locator(".cxp-rows tbody tr").count() == 20
    shoot(stage.page, "panel-peek")
    stage.page.fill("[data-peek-filter]", "ua777")
    stage.until('.cxp-rows td:text-is("UA777")')
    assert stage.page.locator(".cxp-rows tbody tr").count() == 1
    assert stage.page.evaluate("document.activeElement.matches('[data-peek-filter]')")
    stage.page.keyboard.press("Escape")
    assert stage.page.locator(".cxp-peek").is_hidden()


def test_a_dead_letter_is_corrected_and_sent_again_from_the_panel(show: Show) -> None:
    stage = show(small_cluster(), width=900, theme="dark")
    stage.cluster.skip("flights-out-0", 2, dead_letters=2)
    stage.until('button[data-letters="flights-out"]')
    stage.page.click('button[data-letters="flights-out"]')
    stage.until('.cxp-rows td:has-text("the field delay is no number")')
    stage.page.click('[data-correct][data-offset="1"]')
    stage.until("[data-corrected]")
    assert stage.page.input_value("[data-corrected]") == '{"delay": "?"}'
    stage.page.fill("[data-corrected]", '{"delay": 1}')
    shoot(stage.page, "panel-dead-letters")
    stage.page.click("[data-with-value]")
    stage.until('.cxp-call:has-text("only(0, 1).send_again(lambda value: corrected) done in")')
    assert [letter.raw_value for letter in stage.cluster.sent] == [b'{"delay": 1}']


def test_a_failure_is_told_below_the_table_with_what_repairs_it(show: Show) -> None:
    stage = show(small_cluster())
    stage.cluster.task_state("flights-in-0", "FAILED", 'Traceback\n  File "x"\nFileNotFoundError: /nope/missing.csv')
    notice = '.cxp-notice[data-notice="flights-in"]'
    stage.until(f'{notice}:has-text("FileNotFoundError: /nope/missing.csv")')
    stage.page.click(f'{notice} button[data-edit="flights-in"]')
    stage.until('.cxp-form [data-field="file"]')
    stage.cluster.task_state("flights-in-0", "RUNNING")
    stage.wait(lambda: stage.page.locator(notice).count() == 0)


def test_the_buttons_of_a_worker_leave_its_state_in_sight_and_say_what_they_do(show: Show) -> None:
    stage = show(small_cluster(), width=1300)
    worker = stage.page.locator('.cxp-worker[data-worker="worker-1"]')
    worker.hover()
    buttons = worker.locator(".cxp-verbs").bounding_box()
    name = worker.locator("b").bounding_box()
    lines = worker.locator(".cxp-state").all()
    assert buttons is not None
    assert name is not None
    assert buttons["x"] >= name["x"] + name["width"]
    for line in lines:
        box = line.bounding_box()
        assert box is not None
        assert buttons["y"] + buttons["height"] <= box["y"] + 2, "the buttons end above it"
    shoot(stage.page, "panel-worker-buttons")
    untold = stage.page.locator(".cxp-verbs button:not([title]), .cxp-actions button:not([title])")
    assert untold.count() == 0


def test_a_failed_sink_keeps_its_lag(show: Show) -> None:
    stage = show(small_cluster())
    stage.cluster.task_state("flights-out-0", "FAILED", "OSError: No space left on device")
    stage.until('tr[data-connector="flights-out"] .cxp-where:has-text("lag 50")')


def test_skipped_records_dead_letters_and_a_missing_file_are_said(show: Show) -> None:
    stage = show(small_cluster(), width=1300)
    stage.cluster.skip("flights-out-0", 5, dead_letters=5)
    waits = {"records": 0, "waits": "The file in.txt does not exist.", "retries": 1, "record_failures": 12}
    stage.cluster.runs("worker-2", {"flights-in-0": waits})
    stage.until('tr[data-connector="flights-in"] .cxp-trouble:has-text("12 errors, 1 retry")')
    stage.until('tr[data-connector="flights-out"] .cxp-trouble:has-text("5 skipped, 5 dead letters")')
    stage.until('.cxp-notice:has-text("flights-out: 5 records skipped because of errors; they are in the dead letter")')
    stage.until('.cxp-notice:has-text("flights-in waits: The file in.txt does not exist.")')
    shoot(stage.page, "panel-notices")
