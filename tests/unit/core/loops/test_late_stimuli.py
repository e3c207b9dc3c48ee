"""Stimuli that a task loop does not take: each has its reason, and nothing changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from connectx.core.ignored import NoChange, NotAwaited, TaskIsOver
from connectx.core.loops.messages import Answered, Done, EffectFailed
from connectx.core.sink import messages as sink
from connectx.core.sink.loop import SinkTaskCore
from connectx.core.sink.progress import SinkTaskSettings
from connectx.core.source.messages import Polled
from tests.support.source_loop import AT_5, ORDERS, TASK, exactly_once, run, working
from tests.support.task_loops import feed


@pytest.mark.parametrize(
    ("stimulus", "reason"),
    [
        (Answered(99, Polled(1, 2, AT_5.offset)), NotAwaited("Polled", 99)),
        (Answered(1, EffectFailed("late")), NotAwaited("EffectFailed", 1)),
        (ORDERS.resume, NoChange("SetTaskTargetState", "working")),
        (ORDERS.begin, NoChange("BeginTask", "working")),
    ],
)
def test_a_late_stimulus_changes_nothing_and_has_its_reason(stimulus: Any, reason: Any) -> None:
    core = working(exactly_once())
    before = copy.deepcopy(core)
    step = core.handle(stimulus, 0)
    assert (step.ignored, step.effects, step.transitions) == (reason, [], [])
    assert core == before


def test_an_answer_that_comes_twice_is_taken_once() -> None:
    core = working(exactly_once())
    (number,) = core.outstanding
    assert core.handle(Answered(number, Polled(1, 2, AT_5.offset)), 0).ignored is None
    assert core.handle(Answered(number, Polled(1, 2, AT_5.offset)), 0).ignored == NotAwaited("Polled", number)


def test_a_loop_that_has_ended_takes_nothing() -> None:
    core = working(exactly_once())
    run(core, ORDERS.cancel)
    (number,) = core.outstanding
    core.handle(Answered(number, Polled(1, 2, AT_5.offset)), 0)
    late: list[Any] = [ORDERS.stop, Answered(number, Polled(1, 2, AT_5.offset)), EffectFailed("late")]
    for stimulus in late:
        assert core.handle(stimulus, 0).ignored == TaskIsOver(TASK, 0)


def test_an_answer_that_does_not_fit_its_effect_is_a_defect_of_the_driver() -> None:
    core = working(exactly_once())
    (number,) = core.outstanding
    with pytest.raises(AssertionError, match="does not answer"):
        core.handle(Answered(number, Done()), 0)


def test_a_sink_says_why_it_ignores_a_commit_or_a_job_that_nothing_waits_for() -> None:
    core = SinkTaskCore(SinkTaskSettings(TASK, exactly_once=False))
    for stimulus in (ORDERS.begin, Done()):
        feed(core, stimulus)
    assert feed(core, sink.OffsetsCommitted(7)).ignored == NotAwaited("OffsetsCommitted", 7)
    assert feed(core, sink.BulkStaged(7, 1)).ignored == NotAwaited("BulkStaged", 7)
    assert feed(core, sink.BulkFailed(7, "x", {})).ignored == NotAwaited("BulkFailed", 7)
