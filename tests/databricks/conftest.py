"""A real JupyterLab and a browser, as in tests/browser."""

from __future__ import annotations

from tests.browser.conftest import browser, lab, make_book

__all__ = ["browser", "lab", "make_book"]
