"""What a command changes in its process is undone, since here it runs in that of the tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A worker's process logs to its own stderr."""
    root, own = logging.getLogger(), logging.getLogger("connectx")
    handlers, levels = list(root.handlers), (root.level, own.level)
    yield
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
    root.setLevel(levels[0])
    own.setLevel(levels[1])
