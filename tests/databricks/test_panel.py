"""The panel in a real JupyterLab with ipykernel 6 and ipywidgets 7: a click waits for the cell, and says so."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.lab import Book

CELLS = [
    """import connectx as cx
cluster = cx.Cluster(workers=2)
cluster.create("ticks", {"connector.class": "Generator", "topic": "ticks", "rate": "2", "tasks.max": "2"})
cluster.wait("ticks", "RUNNING")""",
    "cluster",
    "import time; time.sleep(20)",  # a cell that is busy; the click is served when it ends, not before
]
START = """() => {{
  window.jupyterapp.shell.currentWidget.content.activeCellIndex = {};
  void window.jupyterapp.commands.execute("notebook:run-cell");
}}"""
WORKER = '.cxp-worker[data-worker="{}"]'


def test_a_click_while_a_cell_runs_waits_says_so_and_is_served_after_it(
    make_book: Callable[[str, list[str]], Book],
) -> None:
    book = make_book("databricks.ipynb", CELLS)
    page = book.page
    book.run_cell(0)
    book.run_cell(1)
    page.wait_for_selector('.cxp-svg [data-worker="worker-2"][data-state="running"]')
    page.evaluate(START.format(2))
    page.wait_for_selector(".jp-InputPrompt:has-text('[*]')")
    page.hover(WORKER.format("worker-2"))
    page.click('button[data-verb="kill"][data-worker="worker-2"]')
    page.wait_for_selector('.cxp-call:has-text("the click waits: the kernel is busy with a cell")')
    assert page.locator(".jp-InputPrompt:has-text('[*]')").count() >= 1, "a cell still runs"
    book.shoot("databricks-click-waits")
    page.wait_for_selector('.cxp-call:has-text("cluster.kill(\\"worker-2\\") done in")')
    page.wait_for_selector(WORKER.format("worker-2") + '[data-state="killed"]')
    book.shoot("databricks-panel")
    assert book.complaints == []
