"""The rules of a producer's core: each is broken by a mutant, and holds in the sound core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from connectx.core.clients.messages import Unanswered
from connectx.core.clients.requests import RequestsInFlight
from connectx.core.producer import messages as msg
from connectx.core.producer.delivery import Delivery, PartitionQueue, Pending
from connectx.core.producer.invariants import Rule
from connectx.core.producer.producer import ProducerCore
from tests.unit.core.producer.script import T0, Script, transactional


def nothing(*args: object, **named: object) -> None:
    """The call is forgotten."""


def opened(version: int = 2, **settings: Any) -> Script:
    script = transactional(version, **settings)
    script.do(msg.Call.BEGIN)
    return script


def new_sequence_for_each_attempt(self: PartitionQueue, pending: Pending) -> None:
    pending.sequence = 5
    self.waiting.insert(0, pending)
    self.recovering = True


def at_the_end(self: PartitionQueue, pending: Pending) -> None:
    self.waiting.append(pending)
    self.recovering = True


def without_recovery(self: PartitionQueue, pending: Pending) -> None:
    self.waiting.insert(0, pending)


def forget_batches(self: Delivery, target: object, number: int) -> None:
    self.queues.clear()


def always_sendable(self: PartitionQueue, now_ms: int) -> bool:
    return bool(self.waiting)


def next_epoch(self: ProducerCore, *args: Any) -> None:
    self.epoch += 1


def backwards(self: ProducerCore, producer_id: int, epoch: int) -> None:
    self.epoch = 9 - epoch


def append_always(self: ProducerCore, batches: tuple[msg.Batch, ...]) -> None:
    self.delivery.append(batches, self.now_ms)


def refuse_without_reason(self: ProducerCore, why: msg.Failure) -> None:
    self._move(msg.ProducerPhase.REFUSED)


def fail_with_work(self: ProducerCore, why: msg.Failure) -> None:
    self._move(msg.ProducerPhase.FAILED)
    self.failure = why


def has_none(self: RequestsInFlight[Any], *kinds: type) -> bool:
    return False


def end_now(self: ProducerCore) -> msg.Request | None:
    return msg.EndTransaction("x", self.producer_id, self.epoch, True, 2)


def two_are_sent(script: Script) -> None:
    script.append(1, 2)


def first_is_lost(script: Script) -> None:
    script.append(1, 2)
    script.lose(msg.Produce)


def second_is_lost_before_the_first(script: Script) -> None:
    script.append(1, 2)
    last = max(script.open)
    script.do(Unanswered(last, "cut"))
    script.lose(msg.Produce)


def eight_are_sent(script: Script) -> None:
    script.append(*range(1, 9))


def one_is_taken(script: Script) -> None:
    script.append(1, 2)
    script.take_all()


def commit_is_asked_for(script: Script) -> None:
    script.append(1)
    script.take_all()
    script.do(msg.Call.COMMIT)


def commit_is_asked_for_too_early(script: Script) -> None:
    one_is_taken(script)
    script.do(msg.Call.COMMIT)


def committed_with_the_next_epoch(script: Script) -> None:
    commit_is_asked_for(script)
    script.answer(msg.EndTransaction, msg.TransactionEnded(None, 77, 1))


def two_epochs_later(script: Script) -> None:
    committed_with_the_next_epoch(script)
    script.do(msg.Call.BEGIN)
    commit_is_asked_for(script)
    script.answer(msg.EndTransaction, msg.TransactionEnded(None, 77, 2))


def batch_is_refused(script: Script) -> None:
    script.append(1)
    script.take_all("INVALID_RECORD")


def is_fenced(script: Script) -> None:
    script.append(1, 2)
    script.take_all("PRODUCER_FENCED")


def leaders_are_unknown(script: Script) -> None:
    script.core.delivery.leaders.clear()
    script.append(1)
    script.append(2)


def lends(script: Script) -> None:
    script.append(1)
    script.do(msg.Lend((T0,)))


def batch_comes_while_ready(script: Script) -> None:
    script.do(msg.Call.COMMIT)
    script.append(1)


@dataclass(frozen=True)
class Mutant:
    """A way to break the core by replacing one method, and what happens until the rule finds it."""

    rule: Rule
    part: type
    method: str
    replacement: Callable[..., Any]
    story: Callable[[Script], None]
    settings: tuple[tuple[str, Any], ...] = ()


MUTANTS = (
    Mutant(Rule.SEQUENCES_FOLLOW, PartitionQueue, "put_back", new_sequence_for_each_attempt, first_is_lost),
    Mutant(Rule.ORDER_IS_KEPT, PartitionQueue, "put_back", at_the_end, second_is_lost_before_the_first),
    Mutant(Rule.ORDER_IS_KEPT, PartitionQueue, "put_back", without_recovery, first_is_lost),
    Mutant(Rule.AWAITED_ONCE, Delivery, "delivered", forget_batches, one_is_taken),
    Mutant(Rule.AWAITED_ONCE, Delivery, "delivered", nothing, one_is_taken),
    Mutant(Rule.LIMITS, PartitionQueue, "is_sendable", always_sendable, eight_are_sent, (("max_in_flight", 9),)),
    Mutant(Rule.PRESENT_EPOCH, ProducerCore, "_on_result", next_epoch, one_is_taken),
    Mutant(Rule.ENDS_WHOLE, ProducerCore, "_coordinator_request", end_now, two_are_sent),
    Mutant(Rule.ENDS_WHOLE, Delivery, "is_empty", lambda _: True, commit_is_asked_for_too_early),
    Mutant(Rule.ONE_COORDINATOR_REQUEST, RequestsInFlight, "has", has_none, leaders_are_unknown),
    Mutant(Rule.NEVER_STUCK, ProducerCore, "_ask_coordinator", nothing, commit_is_asked_for),
    Mutant(Rule.NEVER_STUCK, Delivery, "leaderless_topics", lambda _: (), leaders_are_unknown),
    Mutant(Rule.REASON_IS_KNOWN, ProducerCore, "_refuse_transaction", refuse_without_reason, batch_is_refused),
    Mutant(Rule.REASON_IS_KNOWN, ProducerCore, "_fail", fail_with_work, is_fenced),
    Mutant(Rule.EMPTY_WITHOUT_TRANSACTION, ProducerCore, "_append", append_always, batch_comes_while_ready),
    Mutant(Rule.LENDER_WAITS, Delivery, "is_empty", lambda _: True, lends),
    Mutant(Rule.NEVER_BACK, ProducerCore, "_adopt", backwards, two_epochs_later),
)


def name(mutant: Mutant) -> str:
    return f"{mutant.rule.name}-{mutant.method}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=name)
def test_a_mutant_breaks_its_rule(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    script = opened(**dict(mutant.settings))
    script.is_mutant = True
    monkeypatch.setattr(mutant.part, mutant.method, mutant.replacement)
    mutant.story(script)
    assert mutant.rule in {broken.rule for broken in script.broken}


@pytest.mark.parametrize("mutant", MUTANTS, ids=name)
def test_the_sound_core_keeps_its_rules(mutant: Mutant) -> None:
    mutant.story(opened(**dict(mutant.settings)))


def test_every_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in MUTANTS} == set(Rule)
