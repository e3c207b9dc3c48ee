"""Every step of a worker's core in these tests leaves its rules intact (`connectx.core.invariants`)."""

from __future__ import annotations

import pytest

from connectx.core.messages import Stimulus, WorkerStep
from connectx.core.worker import WorkerCore


@pytest.fixture(autouse=True)
def _check_each_step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("unchecked"):
        return
    handle = WorkerCore.handle

    def handle_and_check(self: WorkerCore, stimulus: Stimulus, now_ms: int) -> WorkerStep:
        before = self.marks()
        step = handle(self, stimulus, now_ms)
        assert not self.check(before), f"{stimulus} breaks a rule: {'; '.join(map(str, self.check(before)))}"
        return step

    monkeypatch.setattr(WorkerCore, "handle", handle_and_check)
