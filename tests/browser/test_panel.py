"""The panel in a real JupyterLab: seen, clicked, reloaded, seen twice, scrolled away, and after its kernel is gone."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.lab import Book

CELLS = [
    """import connectx as cx
cluster = cx.Cluster(workers=3)
cluster.create("ticks", {"connector.class": "Generator", "topic": "ticks", "rate": "200", "tasks.max": "3"})
cluster.wait("ticks", "RUNNING")""",
    "cluster",
    "import time; time.sleep(20)",
    "print(len(list(__import__('comm').get_comm_manager().comms)))",
]
WORKER = '.cxp-worker[data-worker="{}"]'
RUNS = '.cxp-svg [data-worker="{}"][data-state="running"]'


def test_the_panel_lives_through_what_users_do(open_book: Callable[[str, list[str]], Book]) -> None:
    book = open_book("panel.ipynb", CELLS)
    page = book.page
    book.run_all()
    page.wait_for_selector(RUNS.format("worker-2"))
    book.shoot("panel-running")

    # a click is served while a cell runs, says what it calls, and what comes of it is drawn
    page.hover(WORKER.format("worker-2"))
    page.click('button[data-verb="kill"][data-worker="worker-2"]')
    page.wait_for_selector('.cxp-call:has-text("cluster.kill(\\"worker-2\\") done in")')
    assert page.locator(".jp-InputPrompt:has-text('[*]')").count() == 2, "the click was served while a cell ran"
    page.wait_for_selector('.cxp-svg [data-mark="fault"][data-worker="worker-2"]')
    page.wait_for_selector(WORKER.format("worker-2") + '[data-state="killed"]')
    page.wait_for_function(
        "() => [...document.querySelectorAll('.cxp-svg [data-state=running][data-worker]')]"
        ".filter(n => n.dataset.worker !== 'worker-2' && /ticks-\\d/.test(n.dataset.task)).length === 3"
    )
    book.shoot("panel-moved")

    # sentences by keyboard
    page.focus(".cxp-svg")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".cxp-tip:not([hidden])")
    assert page.locator(".cxp-tip").inner_text() != ""

    # an error is one sentence in the panel
    page.click('button[data-form="new"]')
    page.select_option('[data-field="connector.class"]', label="FileStreamSourceConnector (source)")
    page.fill('[data-field="name"]', "lines")
    page.wait_for_selector('.cxp-field [role="alert"]:has-text("Missing required configuration")')
    book.shoot("panel-form")
    page.click('[data-form="close"]')

    # a reload shows the state again, and a second view of the same output too
    page.wait_for_function("() => !document.body.innerText.includes('[*]')")
    book.command("docmanager:save")
    book.open()
    page.wait_for_selector(RUNS.format("worker-1"))
    page.wait_for_selector(WORKER.format("worker-2") + '[data-state="killed"]')
    page.click(".jp-OutputArea-output .cxp-head", button="right")
    page.click('.lm-Menu-itemLabel:has-text("Create New View for Cell Output")')
    page.wait_for_function("() => document.querySelectorAll('.cxp').length === 2")
    assert book.complaints == []

    # without its kernel, the picture does not pretend to be live
    book.restart_kernels()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.cxp-still')].every(node => /kernel|closed/.test(node.innerText))"
    )
