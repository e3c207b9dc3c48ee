"""A real JupyterLab, and Debian's Chromium that looks at it. Screenshots go to test-artefacts/."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.lab import SHOTS, Book, Lab

_SWITCHES = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for name in names if (path := shutil.which(name))), None)
    assert program, "these tests need Chromium on PATH: install Debian's package chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=_SWITCHES)
        yield started
        started.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"))
    made.wait()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def make_book(browser: Browser, lab: Lab) -> Iterator[Callable[..., Book]]:
    """`make_book(name, cells, copy_of=None)`: a new notebook in a new page, for the tests of a file."""
    pages: list[Page] = []

    def make(name: str, cells: list[str], copy_of: Path | None = None) -> Book:
        lab.write(name, cells, copy_of)
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        pages.append(page)
        return Book(page, lab, name)

    yield make
    for number, page in enumerate(pages):
        page.screenshot(path=str(SHOTS / f"last-{number}.png"))
        page.close()
