"""The tutorials as readers meet them: in JupyterLab before they trust them, as a page alone, and the first one run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbconvert
import pytest
from playwright.sync_api import Browser, Page

from tests.support.lab import ROOT, SHOTS, Book, Lab

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OF_THE_DRAWING = "the group assigns its work again"
"""A tooltip in every drawing of a timeline. In running text it is a remnant of a drawing."""


def check_outputs(page: Page) -> None:
    """Pictures are pictures, and nothing is left of drawings that were taken apart."""
    page.wait_for_function("() => [...document.images].every(image => image.complete)")
    shown = page.locator(".jp-OutputArea-output img")
    broken = shown.evaluate_all("all => all.filter(one => one.src && !one.naturalWidth).map(one => one.outerHTML)")
    assert broken == []
    assert OF_THE_DRAWING not in page.inner_text("body")


@pytest.fixture(scope="module")
def reading(make_book: Callable[..., Book]) -> Book:
    """One JupyterLab in which the tutorials are opened: it takes longer to load than any of them."""
    return make_book("reading.ipynb", [])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_can_be_read_before_it_is_trusted(reading: Book, lab: Lab, path: Path) -> None:
    lab.write(path.name, [], path)
    page = reading.page
    reading.errors.clear()
    reading.command("docmanager:open", path=path.name)
    page.wait_for_function("path => window.jupyterapp.shell.currentWidget.context?.path === path", arg=path.name)
    page.set_viewport_size({"width": 1300, "height": 10000})
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.node.querySelectorAll('.jp-Notebook .jp-Cell').length"
        " === window.jupyterapp.shell.currentWidget.content.model.cells.length"
    )
    check_outputs(page)
    page.set_viewport_size({"width": 1300, "height": 1000})
    assert reading.complaints == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_can_be_read_as_a_page_that_is_offline(browser: Browser, tmp_path: Path, path: Path) -> None:
    body, _ = nbconvert.HTMLExporter().from_filename(str(path))
    file = tmp_path / "tutorial.html"
    file.write_text(body, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1100, "height": 1000}, color_scheme="dark")
    page.route("http*://**", lambda route: route.abort())
    page.goto(file.as_uri(), wait_until="domcontentloaded")
    check_outputs(page)
    page.close()


def test_the_first_tutorial_runs_and_its_panel_is_live(make_book: Callable[..., Book]) -> None:
    book = make_book("run.ipynb", [], NOTEBOOKS[0])
    book.page.set_viewport_size({"width": 1300, "height": 10000})
    book.wait_for_all_cells()
    book.page.wait_for_selector('.cxp-still:has-text("the cluster is closed")')
    book.page.click('.cxp [data-span="null"]')
    book.page.wait_for_selector('.cxp-svg [data-mark="fault"]')
    assert book.page.locator(".cxp-svg [data-generation]").count() > 1
    book.page.locator(".jp-WindowedPanel-viewport").first.screenshot(path=str(SHOTS / "tutorial-run.png"))
    assert book.complaints == []
