"""A short soak: all kinds of faults, the broker's death among them, while a file and generators flow into targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.history.log import EventLog
from connectx.model.events import EventKind
from tests.soak.run import KINDS, soak
from tests.support.options import WHOLE

pytestmark = pytest.mark.rule("always.9")


@WHOLE
@pytest.mark.timeout(400)
def test_nothing_is_lost_and_nothing_comes_twice_under_chaos(postgres: str, tmp_path: Path) -> None:
    history = tmp_path / "soak.jsonl"
    half = soak("thread", seed=7, seconds=28, every_s=3.1, uri=postgres, history=history, say=lambda text: None)
    assert half.is_good, half
    assert set(half.faults) == set(KINDS)
    recorded = {
        event.data["chaos_fault"]
        for event in EventLog.from_jsonl(history)
        if event.kind is EventKind.FAULT_INJECTED and "chaos_fault" in event.data
    }
    assert len(recorded) == sum(half.faults.values()) >= 8
    assert half.records > 1000
