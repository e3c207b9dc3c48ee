"""The rules of a fetcher's core: each is broken by a mutant, and holds in the sound core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from connectx.core.clients.requests import RequestsInFlight
from connectx.core.fetcher import messages as msg
from connectx.core.fetcher.fetcher import FetcherCore
from connectx.core.fetcher.invariants import Rule
from connectx.core.fetcher.state import FetcherState, Partition
from tests.unit.core.fetcher.script import T0, T1, Script, fetching


def nothing(*args: object, **named: object) -> None:
    """The call is forgotten."""


def restart_without_taken(self: Partition, offset: int, version: int) -> None:
    self.position, self.version = offset, version


def same_version(self: FetcherCore) -> int:
    return 1


def none_pending(self: RequestsInFlight[Any], kind: type) -> Any:
    return iter(())


def always_counts(self: FetcherCore, fetch: msg.PartitionFetch) -> bool:
    return True


def from_the_beginning(self: FetcherCore, target: object, at: Partition) -> msg.PartitionFetch:
    return msg.PartitionFetch(T0, 0, -1, -1, at.version)


def one_comes(script: Script) -> None:
    script.bring(T0, 15)


def two_come(script: Script) -> None:
    script.bring(T0, 15)
    script.bring(T0, 20)


def goes_back(script: Script) -> None:
    script.bring(T0, 15)
    script.do(msg.Taken({T0: (15, 100)}), msg.FetchFrom({T0: 5}))


def goes_back_while_asked(script: Script) -> None:
    script.do(msg.FetchFrom({T0: 5}))
    script.bring(T0, 15)


def another_partition_comes(script: Script) -> None:
    script.do(msg.FetchFrom({T1: 7}))
    script.lead()


def leader_is_lost(script: Script) -> None:
    script.refuse(T0, "NOT_LEADER_OR_FOLLOWER")
    script.wait()


def buffer_is_full(script: Script) -> None:
    for number in range(4):
        if script.fetches():
            script.bring(T0, 15 + number)


@dataclass(frozen=True)
class Mutant:
    """A way to break the core by replacing one method, and what happens until the rule finds it."""

    rule: Rule
    part: type
    method: str
    replacement: Any
    story: Callable[[Script], None]


SMALL = {"buffer_bytes": 150, "max_bytes": 100, "partition_max_bytes": 100}
MUTANTS = (
    Mutant(Rule.TAKEN_WAS_FETCHED, Partition, "restart", restart_without_taken, goes_back),
    Mutant(Rule.FETCH_AT_POSITION, FetcherCore, "_fetch", from_the_beginning, two_come),
    Mutant(Rule.FETCH_AT_POSITION, FetcherCore, "_new_version", same_version, goes_back_while_asked),
    Mutant(Rule.BUFFER_LIMIT, FetcherState, "buffered_bytes", 0, buffer_is_full),
    Mutant(Rule.NEVER_STUCK, FetcherCore, "_send", nothing, one_comes),
    Mutant(Rule.NEVER_STUCK, FetcherCore, "leaderless", lambda _: [], leader_is_lost),
    Mutant(Rule.NEVER_BACK, FetcherCore, "_new_version", same_version, goes_back),
)


def name(mutant: Mutant) -> str:
    return f"{mutant.rule.name}-{mutant.method}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=name)
def test_a_mutant_breaks_its_rule(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    script = fetching(**SMALL)
    script.is_mutant = True
    monkeypatch.setattr(mutant.part, mutant.method, mutant.replacement)
    mutant.story(script)
    assert mutant.rule in {broken.rule for broken in script.broken}


def test_two_requests_to_one_node_break_their_rule() -> None:
    script = fetching()
    script.core.requests.add(1, msg.Fetch(100, ()))
    assert [broken.rule for broken in script.core.check()] == [Rule.ONE_FETCH_PER_NODE]


@pytest.mark.parametrize("mutant", MUTANTS, ids=name)
def test_the_sound_core_keeps_its_rules(mutant: Mutant) -> None:
    mutant.story(fetching(**SMALL))


def test_every_rule_can_be_broken() -> None:
    assert {mutant.rule for mutant in MUTANTS} | {Rule.ONE_FETCH_PER_NODE} == set(Rule)
