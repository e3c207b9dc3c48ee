"""A check of a cluster ends with its time limit, also in the middle of reading."""

from __future__ import annotations

from typing import Any, cast

from connectx.history.log import EventLog
from connectx.jvm.progress import silent
from connectx.model.events import EventKind
from connectx.verify.check.check import Checking
from connectx.verify.check.verdict import Verdict
from connectx.verify.check.wanted import Began, Wanted
from tests.support.histories import transition


class Endless(Checking):
    """A check whose first `passes` end with something pending, and whose next one never ends."""

    passes = 0

    def once(self, on_read: Any, began: Began) -> tuple[Verdict, bool]:
        if began.goals.setdefault("passes", 0) < self.passes:
            began.goals["passes"] += 1
            return Verdict("unknown", (), ("still arriving: 1 row",), (), pending=1), False
        rows = 0
        while True:
            rows += 1
            on_read("topic t", rows, 0)


class EndlessLater(Endless):
    passes = 1


def until(cls: type[Endless], events: EventLog, timeout_s: float) -> Verdict:
    nothing = cast(Any, None)
    checking = cls(lambda: list(events), nothing, nothing, Wanted())
    return checking.until(timeout_s, 0.0, lambda place, rows, size: None, silent)


def test_reading_ends_with_the_time_limit_and_the_verdict_says_how_far_it_came_and_what_has_failed() -> None:
    events = EventLog()
    for state in ({"state": "RUNNING"}, {"state": "FAILED", "trace": "OSError: disk full"}):
        events.append(transition(EventKind.TASK_STATE, "out", 0, data={**state, "instance": 1}), "worker-1")
    verdict = until(Endless, events, 0.05)
    assert verdict.answer == "unknown"
    (reason,) = verdict.reasons
    assert reason.startswith("the limit of 0.05 s was reached after ")
    assert "rows of topic t (give the check more time with timeout=)" in reason
    assert verdict.sentence == f"Unknown: out-0 failed: OSError: disk full; {reason}."


def test_a_verdict_that_was_reached_before_is_returned_when_reading_again_takes_too_long() -> None:
    verdict = until(EndlessLater, EventLog(), 1.0)
    assert verdict.reasons == ("still arriving: 1 row",)
