"""Late answers and calls that the phase does not allow: the core takes nothing from them, and says why."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from connectx.core.clients.messages import Answered, Unanswered
from connectx.core.ignored import Ignored, NoChange, NotPending
from connectx.core.producer import messages as msg
from tests.unit.core.producer.script import T0, Script, transactional

LATE = Answered(99, msg.Produced({1: msg.BatchResult()}))
REFUSED = msg.Failure("MESSAGE_TOO_LARGE", "send records to t")
IN_NEW: list[tuple[Any, Ignored]] = [
    (msg.Call.BEGIN, NoChange("begin", "new")),
    (msg.Call.COMMIT, NoChange("commit", "new")),
    (msg.Call.ABORT, NoChange("abort", "new")),
    (msg.Refuse(REFUSED), NoChange("Refuse", "new")),
    (msg.Lend((T0,)), NoChange("Lend", "new")),
    (msg.Returned({}), NoChange("Returned", "new")),
    (msg.BatchSplit(7, ()), NoChange("BatchSplit", "new")),
    (LATE, NotPending(99)),
    (Unanswered(99, "cut"), NotPending(99)),
]
WHEN_READY: list[tuple[Any, Ignored]] = [
    (msg.Call.INITIALIZE, NoChange("initialize", "ready")),
    (msg.Call.COMMIT, NoChange("commit", "ready")),
    (msg.Borrow(msg.Loan(1, 0, 2, {})), NoChange("Borrow", "ready")),
]


def check_ignored(script: Script, stimulus: Any, reason: Ignored) -> None:
    before = copy.deepcopy(script.core)
    script.do(stimulus)
    assert (script.ignored, script.core) == (reason, before)


@pytest.mark.parametrize(("stimulus", "reason"), IN_NEW, ids=lambda value: type(value).__name__)
def test_a_new_producer_ignores_it(stimulus: Any, reason: Ignored) -> None:
    script = Script(transactional_id="x", idempotent=True)
    script.do(msg.Append(()))
    check_ignored(script, stimulus, reason)


@pytest.mark.parametrize(("stimulus", "reason"), WHEN_READY, ids=lambda value: type(value).__name__)
def test_a_ready_producer_ignores_it(stimulus: Any, reason: Ignored) -> None:
    check_ignored(transactional(), stimulus, reason)


def test_a_call_that_comes_twice_is_ignored_the_second_time() -> None:
    script = transactional()
    for call, phase in ((msg.Call.BEGIN, "open"), (msg.Call.PURGE, "refused"), (msg.Call.ABORT, "ready")):
        script.do(call)
        assert script.ignored is None
        script.do(call)
        assert script.ignored == NoChange(call, phase)


def test_a_failed_producer_ignores_that_it_fails() -> None:
    script = transactional()
    script.do(msg.AuthenticationFailed("no"))
    check_ignored(script, msg.AuthenticationFailed("no"), NoChange("AuthenticationFailed", "failed"))
