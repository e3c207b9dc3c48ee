"""Panels on plain pages, for the tests that need no JupyterLab."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.histories import pause_with_fence
from tests.support.stage import Show, Stage, StagedCluster

CONFIGS = {
    "flights-in": {"connector.class": "FileSource", "topic": "flights", "file": "/data/flights.csv", "tasks.max": "1"},
    "audit": {"connector.class": "FileStreamSink", "file": "/data/audit.txt", "topics": "audit"},
    "flights-out": {"connector.class": "PostgresSink", "connection.password": "secret", "topics": "flights"},
}


@pytest.fixture
def show(browser: Browser) -> Iterator[Show]:
    """`show(history, theme=..., width=..., samples=...)`: a panel on a new page."""
    stages: list[Stage] = []

    def make(
        history: Any = None, *, theme: str = "light", width: int = 900, samples: Any = None, **context: Any
    ) -> Stage:
        page = browser.new_page(viewport={"width": width, "height": 800}, **context)
        events = (history or pause_with_fence()).events
        stages.append(Stage(page, StagedCluster(events, CONFIGS, samples), theme))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()
        assert stage.errors == []
        stage.page.close()
