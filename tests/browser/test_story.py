"""The story line of the panel, on a plain page: what happened last, how long lost work waits, the past."""

from __future__ import annotations

import time

from connectx.history.folds.lost import DELAY, LostWork
from connectx.model.ids import TaskId
from tests.support.histories import kill_of_source, pause_with_fence
from tests.support.stage import Show, shoot

SENTENCE = ".cxp-sentence .cxp-jump"


def test_the_newest_sentence_is_shown_and_a_click_goes_to_its_moment(show: Show) -> None:
    stage = show(pause_with_fence(), width=1300)
    page = stage.page
    stage.until(f'{SENTENCE}:has-text("worker-2 was paused while it ran flights-in-0")')
    page.click('[data-span="30000"]')
    page.click(SENTENCE)
    stage.until('.cxp-tip:has-text("fault: pause worker-2; worker-2 was paused while it ran")')
    stage.wait(lambda: page.locator(".cxp-svg .chosen").get_attribute("data-mark") == "fault")
    page.click('[data-span="30000"]')
    shoot(page, "panel-story")


def test_the_past_is_marked_as_past_with_clock_times(show: Show) -> None:
    stage = show(pause_with_fence(), width=900, theme="dark")
    page = stage.page
    page.click("[data-span='30000']")
    page.locator("input[type=range]").fill("400")
    stage.until('.cxp-past-note:has-text("the past: ")')
    stage.until('.cxp-now:has-text("workers as they are now")')
    labels = page.locator(".cxp-svg text.dim").all_text_contents()
    assert any(label.count(":") == 2 for label in labels), labels
    assert "now" not in labels
    shoot(page, "panel-past")
    page.click("[data-live]")
    stage.wait(lambda: page.locator(".cxp-past-note").inner_text() == "")


def test_lost_work_counts_down_until_it_moves(show: Show) -> None:
    stage = show(kill_of_source(), width=900)
    due_ms = time.time_ns() // 1_000_000 + 60_000
    lost = LostWork("worker-2", "was killed", due_ms - 60_000, (), (TaskId("flights-in", 0),), due_ms, (DELAY,))
    stage.cluster.loses("worker-2", lost)
    stage.cluster.kill("worker-2")
    stage.until('.cxp-countdown:has-text("flights-in-0 of worker-2 moves in 5")')
    before = stage.page.inner_text(".cxp-countdown")
    stage.wait(lambda: stage.page.inner_text(".cxp-countdown") != before)
    assert stage.page.locator(".cxp-countdown").get_attribute("title") == DELAY
    shoot(stage.page, "panel-countdown")
    stage.cluster.loses("worker-2", None)
    stage.cluster.kill("worker-2")
    stage.wait(lambda: stage.page.locator(".cxp-countdown").count() == 0)
