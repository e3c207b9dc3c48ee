"""The panel in a real JupyterLab: seen, clicked, counted, reloaded, seen twice, scrolled away, and without its kernel.

The tests share one kernel with one cluster, and go from what leaves it whole to what does not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.support.lab import Book

CREATE = """import connectx as cx
cluster = cx.Cluster(workers=3)
cluster.create("ticks", {"connector.class": "Generator", "topic": "ticks", "rate": "10", "tasks.max": "3"})
cluster.wait("ticks", "RUNNING")
print("Spark", cluster.spark.version)"""
UNTIL_KILLED = """import time
deadline = time.monotonic() + 60
while cluster.workers["worker-2"].state != "killed" and time.monotonic() < deadline:
    time.sleep(0.1)
print(cluster.workers["worker-2"].state)"""
MEASURE = """import gc, json, threading, comm, psutil
gc.collect()
print(json.dumps({"comms": len(comm.get_comm_manager().comms), "rss": psutil.Process().memory_info().rss >> 20,
                  "threads": sum(thread.name.startswith("connectx-panel") for thread in threading.enumerate())}))"""
PAUSE = 'cluster["ticks"].pause(); cluster.wait("ticks", "PAUSED")'
LONG = "print('\\n'.join(map(str, range(300))))"
CELLS = [CREATE, "cluster", UNTIL_KILLED, MEASURE, PAUSE, LONG]
SHOW, WAIT, FACTS, QUIET, DOWN = range(1, 6)

WORKER = '.cxp-worker[data-worker="{}"]'
RUNS = '.cxp-svg [data-worker="{}"][data-state="running"]'
BUSIEST_S = 5.0


@pytest.fixture(scope="module")
def book(make_book: Callable[..., Book]) -> Iterator[Book]:
    """An open notebook whose cluster runs and is shown."""
    made = make_book("panel.ipynb", CELLS)
    made.run_cell(0)
    made.run_cell(SHOW)
    made.page.wait_for_selector(RUNS.format("worker-2"))
    yield made
    assert made.complaints == []


def generations(book: Book) -> list[int]:
    return [
        int(text)
        for text in book.page.locator(".cxp-svg [data-generation]").evaluate_all(
            "nodes => nodes.map(node => node.dataset.generation).filter(Boolean)"
        )
    ]


def test_a_starting_cluster_says_what_it_does(book: Book) -> None:
    started = book.page.locator('.jp-OutputArea-output:has-text("Starting Kafka: ")')
    assert "Starting 3 workers: " in started.first.inner_text()


def test_the_panel_takes_the_theme_of_the_page(book: Book) -> None:
    colour = "() => getComputedStyle(document.querySelector('.cxp')).backgroundColor"
    light = book.page.evaluate(colour)
    book.shoot("lab-light")
    book.command("apputils:change-theme", theme="JupyterLab Dark")
    book.page.wait_for_function(f"({colour})() !== {light!r}")
    book.shoot("lab-dark")
    book.command("apputils:change-theme", theme="JupyterLab Light")
    book.page.wait_for_function(f"({colour})() === {light!r}")


def test_a_form_says_its_errors_in_the_panel(book: Book) -> None:
    page = book.page
    page.click('button[data-form="new"]')
    page.select_option('[data-field="connector.class"]', label="FileStreamSourceConnector (source)")
    page.fill('[data-field="name"]', "lines")
    page.wait_for_selector('.cxp-field [role="alert"]:has-text("Missing required configuration")')
    book.shoot("lab-form")
    page.keyboard.press("Escape")
    page.wait_for_selector(".cxp-form", state="hidden")


def test_a_click_is_served_while_a_cell_runs_and_the_rebalance_is_drawn(book: Book) -> None:
    page = book.page
    before = max(generations(book))
    page.evaluate(
        f"""() => {{ const book = window.jupyterapp.shell.currentWidget.content; book.activeCellIndex = {WAIT};
        window.jupyterapp.commands.execute("notebook:run-cell"); }}"""
    )
    page.wait_for_selector(".jp-InputPrompt:has-text('[*]')")
    page.hover(WORKER.format("worker-2"))
    page.click('button[data-verb="kill"][data-worker="worker-2"]')
    page.wait_for_selector('.cxp-call:has-text("cluster.kill(\\"worker-2\\") done in")')
    page.wait_for_selector('.cxp-svg [data-mark="fault"][data-worker="worker-2"]')
    page.wait_for_selector(WORKER.format("worker-2") + '[data-state="killed"]')
    page.wait_for_function(
        f"""() => [...document.querySelectorAll(".cxp-svg [data-generation]")]
        .some(node => Number(node.dataset.generation) > {before})"""
    )
    page.wait_for_function(
        "() => [...document.querySelectorAll('.cxp-svg [data-state=running][data-worker]')]"
        ".filter(n => n.dataset.worker !== 'worker-2' && /ticks-\\d/.test(n.dataset.task)).length === 3"
    )
    page.wait_for_function("() => !document.body.innerText.includes('[*]')")
    book.shoot("lab-killed")


def test_the_fence_of_a_zombie_is_drawn(book: Book) -> None:
    page = book.page
    page.hover(WORKER.format("worker-3"))
    page.click('button[data-verb="stall"][data-worker="worker-3"]')
    page.wait_for_selector('.cxp-svg [data-worker="worker-3"][data-state="zombie"]')
    page.wait_for_selector('.cxp-svg [data-worker="worker-3"][data-mark="fenced"]')
    # The picture moves while a pointer is on its way, so the event is sent to the mark itself.
    page.dispatch_event('.cxp-svg [data-worker="worker-3"][data-mark="fenced"]', "mouseover")
    page.wait_for_selector('.cxp-tip:has-text("rejected")')
    book.shoot("lab-fenced")
    page.hover(WORKER.format("worker-3"))
    page.click('button[data-verb="resume"][data-worker="worker-3"]')
    page.wait_for_selector(WORKER.format("worker-3") + '[data-state="up"]')


def test_the_picture_goes_on_after_it_was_scrolled_away(book: Book) -> None:
    page = book.page
    book.run_cell(DOWN)
    outer = "document.querySelector('.jp-WindowedPanel-outer')"
    page.evaluate(f"() => {{ {outer}.scrollTop = {outer}.scrollHeight; }}")
    page.wait_for_function(
        f"""() => {{ const top = {outer}.getBoundingClientRect().top, panel = document.querySelector(".cxp");
        return !panel || panel.getBoundingClientRect().bottom < top; }}"""
    )
    page.evaluate(f"() => {{ {outer}.scrollTop = 0; }}")
    page.wait_for_selector(RUNS.format("worker-1"))
    assert page.locator(".cxp").count() == 1
    drawn = page.locator(".cxp-svg svg").inner_html()
    page.wait_for_function("drawn => document.querySelector('.cxp-svg svg').innerHTML !== drawn", arg=drawn)


def test_what_is_sent_stays_within_its_limits_and_a_quiet_cluster_is_silent(book: Book) -> None:
    sent = book.recorded
    spans = [[kind for other, kind in sent if 0 <= other - moment < BUSIEST_S] for moment, _ in sent]
    busiest = max(spans, key=len)
    assert len(busiest) <= 11 * BUSIEST_S, f"ten changes and one snapshot a second: {Counter(busiest)}"
    book.run_cell(QUIET)
    before = len(book.recorded)

    def silent() -> bool:
        return [kind for _, kind in book.recorded[before:]][-2:] == ["beat", "beat"]

    for _ in range(600):
        if silent():
            break
        book.page.wait_for_timeout(100)
    assert silent(), book.recorded[before:]


def test_fifty_runs_of_the_cell_leave_no_more_behind_than_one(book: Book) -> None:
    book.run_cell(SHOW, times=5)
    first = json.loads(book.run_cell(FACTS))
    book.run_cell(SHOW, times=50)
    last = json.loads(book.run_cell(FACTS))
    assert (last["comms"], last["threads"]) == (first["comms"], first["threads"])
    assert last["rss"] - first["rss"] < 10, "MB for 50 runs"


def test_a_reload_and_a_second_view_show_the_state(book: Book) -> None:
    page = book.page
    book.command("docmanager:save")
    book.open()
    page.wait_for_selector(WORKER.format("worker-2") + '[data-state="killed"]')
    page.wait_for_selector('.cxp-svg [data-worker="worker-1"][data-state="paused"]')
    page.click(".jp-OutputArea-output .cxp-head", button="right")
    page.click('.lm-Menu-itemLabel:has-text("Create New View for Cell Output")')
    page.wait_for_function("() => document.querySelectorAll('.cxp').length === 2")
    page.locator(".cxp").last.locator(WORKER.format("worker-2") + '[data-state="killed"]').wait_for()
    book.shoot("lab-two-views")


def test_a_view_of_the_output_stays_in_sight_when_the_notebook_scrolls(book: Book) -> None:
    page = book.page
    visible = "([inside, count]) => [...document.querySelectorAll(`${inside} .cxp`)].filter(" + (
        "panel => { const box = panel.getBoundingClientRect();"
        " return box.top >= 0 && box.top < innerHeight; }).length === count"
    )
    outer = "document.querySelector('.jp-WindowedPanel-outer')"
    page.evaluate(f"() => {{ {outer}.scrollTop = {outer}.scrollHeight; }}")
    page.wait_for_function(visible, arg=[".jp-Notebook", 0])
    page.wait_for_function(visible, arg=[".jp-LinkedOutputView", 1])
    page.evaluate(f"() => {{ {outer}.scrollTop = 0; }}")
    page.wait_for_function(visible, arg=[".jp-Notebook", 1])


def test_without_its_kernel_the_picture_stands_still_and_says_so(book: Book) -> None:
    assert book.page.locator(".cxp-still").count() == 2
    book.restart_kernels()
    book.page.wait_for_function(
        """() => { const said = [...document.querySelectorAll('.cxp-still')].map(node => node.innerText);
        return said.length > 0 && said.every(text => /kernel|closed/.test(text)); }"""
    )
    book.shoot("lab-no-kernel")
    drawn = book.page.locator(".cxp-svg svg").first.inner_html()
    book.page.wait_for_timeout(1000)
    assert book.page.locator(".cxp-svg svg").first.inner_html() == drawn
