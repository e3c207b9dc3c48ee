"""A plugin of pytest for `tests.support.tiers`: tests after a crash, and a file that names the tests under way.

When a worker process dies, pytest-xdist 3.8 queues its finished files again, which no worker reports, and the crashed
test, which kills the next worker too; and a worker that gets one test waits for a second one. The run then waits
forever (pytest-xdist issues 1323 and 1327, pull request 1371). Here the crashed test has failed, and a new worker runs
what was left of its files.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SCHEDULING = pytest.StashKey["FileScheduling"]()


class FileScheduling(LoadFileScheduling):
    """Gives whole files to workers, as `--dist=loadfile` does, also after a crash."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Queue what a worker left; the name of the test that it crashed in, None if it had finished."""
        work = self.assigned_work.pop(node)
        left = {file: [name for name, is_done in tests.items() if not is_done] for file, tests in work.items()}
        crashed = next((name for names in left.values() for name in names), None)
        for file, names in reversed(left.items()):
            if rest := {name: False for name in names if name != crashed}:
                self.workqueue[file] = rest
                self.workqueue.move_to_end(file, last=False)
        if crashed is not None:
            for other in self.nodes:
                self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:  # it replaces a crashed worker and is still collecting
            return
        super()._reschedule(node)
        # A worker runs a test when it knows the next one, or that there is none.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


class Progress:
    """Writes the names of the tests under way to a file, whose time is that of the latest change."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._names: dict[str, None] = {}
        self._write()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._names[nodeid] = None
        self._write()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._names.pop(nodeid, None)
        self._write()

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        self.pytest_runtest_logfinish(crashitem)

    def _write(self) -> None:
        self._file.write_text("".join(f"{name}\n" for name in self._names))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--progress", type=Path, help="file for the names of the tests under way")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--progress")
    if file is not None and not hasattr(config, "workerinput"):  # xdist's workers report to the process that has it
        config.pluginmanager.register(Progress(file))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    config.stash[_SCHEDULING] = FileScheduling(config, log)
    return config.stash[_SCHEDULING]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that left tests out because too many workers crashed: xdist ends it as if it were whole."""
    scheduling = session.config.stash.get(_SCHEDULING, None)
    if scheduling is not None and scheduling.workqueue and not session.shouldstop:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
