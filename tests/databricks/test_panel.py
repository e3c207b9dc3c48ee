"""The panel in a real JupyterLab with ipykernel 6 and ipywidgets 7: a click waits for the cell, and says so."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.lab import Book
from tests.browser.test_panel import CELLS, RUNS, WORKER


def test_a_click_while_a_cell_runs_waits_says_so_and_is_served_after_it(
    open_book: Callable[[str, list[str]], Book],
) -> None:
    book = open_book("databricks.ipynb", CELLS)
    page = book.page
    book.run_all()
    page.wait_for_selector(RUNS.format("worker-2"))
    page.wait_for_selector(".jp-InputPrompt:has-text('[*]')")
    page.hover(WORKER.format("worker-2"))
    page.click('button[data-verb="kill"][data-worker="worker-2"]')
    page.wait_for_selector('.cxp-call:has-text("the click waits: the kernel is busy with a cell")')
    book.shoot("databricks-click-waits")
    page.wait_for_selector('.cxp-call:has-text("cluster.kill(\\"worker-2\\") done in")')
    page.wait_for_selector(WORKER.format("worker-2") + '[data-state="killed"]')
    page.wait_for_function("() => !document.body.innerText.includes('[*]')")
    book.shoot("databricks-panel")
    assert book.complaints == []
