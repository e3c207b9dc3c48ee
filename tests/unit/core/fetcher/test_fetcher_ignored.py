"""Late answers and calls about partitions that are not fetched: the core takes nothing from them, and says why."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.core.clients.messages import Answered, Unanswered
from connectx.core.fetcher import messages as msg
from connectx.core.ignored import Ignored, NotFetched, NotPending
from tests.unit.core.fetcher.script import T0, T1, fetching

STALE = msg.Fetched({T0: msg.PartitionResult(None, 100, 15, 5)})
IGNORED: list[tuple[Any, Ignored]] = [
    (Answered(99, STALE), NotPending(99)),
    (Unanswered(99, "cut"), NotPending(99)),
    (msg.Pause((T1,)), NotFetched(("t-1",))),
    (msg.Resume((T1,)), NotFetched(("t-1",))),
    (msg.Forget((T1,)), NotFetched(("t-1",))),
    (msg.Taken({T1: (5, 10)}), NotFetched(("t-1",))),
]


@pytest.mark.parametrize(("stimulus", "reason"), IGNORED, ids=lambda value: type(value).__name__)
def test_what_is_late_is_ignored(stimulus: Any, reason: Ignored) -> None:
    script = fetching()
    state = repr(script.core)
    script.do(stimulus)
    assert script.ignored == reason
    assert repr(script.core) == state


def test_an_answer_to_a_position_that_was_left_is_ignored() -> None:
    script = fetching()
    script.do(msg.FetchFrom({T0: 5}))
    assert script.ignored is None
    script.answer(msg.Fetch, STALE)
    assert script.ignored == NotFetched(("t-0",))
    assert script.kept == []
