"""A check of a cluster ends with its time limit, also in the middle of reading."""

from __future__ import annotations

from typing import Any, cast

from connectx.history.log import EventLog
from connectx.model.events import EventKind
from connectx.verify.check.cluster_check import Began, ClusterChecker, Wanted
from connectx.verify.check.verdict import Verdict
from tests.support.histories import transition


class Endless(ClusterChecker):
    """A check whose first `passes` end with something pending, and whose next one never ends."""

    passes = 0

    def _check(self, wanted: Wanted, on_read: Any, began: Began) -> tuple[Verdict, bool]:
        if began.goals.setdefault("passes", 0) < self.passes:
            began.goals["passes"] += 1
            return Verdict("unknown", (), ("still arriving: 1 row",), (), pending=1), False
        rows = 0
        while True:
            rows += 1
            on_read("topic t", rows, 0)


class EndlessLater(Endless):
    passes = 1


def checker(cls: type[Endless], events: EventLog) -> Endless:
    nothing = cast(Any, None)
    return cls(events, nothing, nothing, nothing, nothing)


def test_reading_ends_with_the_time_limit_and_the_verdict_says_how_far_it_came_and_what_has_failed() -> None:
    events = EventLog()
    for state in ({"state": "RUNNING"}, {"state": "FAILED", "trace": "OSError: disk full"}):
        events.append(transition(EventKind.TASK_STATE, "out", 0, data={**state, "instance": 1}), "worker-1")
    verdict = checker(Endless, events).check(Wanted(), 0.05)
    assert verdict.answer == "unknown"
    first, second = verdict.reasons
    assert first.startswith("the check did not end within 0.05 s: ")
    assert "rows of topic t were read" in first
    assert second == "blocked: out-0 failed (OSError: disk full)"


def test_a_verdict_that_was_reached_before_is_returned_when_reading_again_takes_too_long() -> None:
    verdict = checker(EndlessLater, EventLog()).check(Wanted(), 1.0)
    assert verdict.reasons == ("still arriving: 1 row",)
