"""How xdist gives tests to its workers: a file goes to one worker, in the order of the command line.

The tests of a file share its fixtures. Tests that start everything themselves, such as a notebook each, are given out
one by one.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

ONE_BY_ONE: Final = ("tests/notebooks/test_notebooks.py", "tests/integration/demo/test_demo.py")


class FileScheduling(LoadScopeScheduling):
    """Gives out whole files, but for those in ONE_BY_ONE."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file in ONE_BY_ONE else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    config.option.loadscopereorder = False
    return FileScheduling(config, log)
