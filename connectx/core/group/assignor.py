"""The leader's assignor for `compatible` and `sessioned` groups: increments of assigned and revoked work.

It decides increments from the work that members claim and from its memory of the last round. It never decides
when a round takes place and holds no clock; its memory is a value that the caller keeps for as long as it leads.

Mirrors Kafka Connect's IncrementalCooperativeAssignor (KIP-415, with the balancing revocations of KAFKA-12495).
Wherever Java's result depends on the order of a hash table, ours goes by member id.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle

from connectx.model.group import Assignment, ProtocolVersion, WorkSet
from connectx.model.ids import TASK_ORDER, TaskId
from connectx.values import Value

Item = str | TaskId  # a connector or a task

CONFIG_MISMATCH = 1


class OffsetAgreement(Value):
    """Outcome of `agree_on_offset`: `agreed` False means that members must catch up first (CONFIG_MISMATCH)."""

    config_offset: int
    agreed: bool
    use_fresh_snapshot: bool


def agree_on_offset(member_offsets: Iterable[int], snapshot_offset: int, fresh_offset: int) -> OffsetAgreement:
    """Which config offset a leader assigns with.

    `member_offsets` are what all members joined with (at least one), `snapshot_offset` is that of the snapshot that
    the leader would assign from, `fresh_offset` that of its config log now. A leader with an older snapshot takes the
    fresh one; if that is too old as well, nothing can be assigned. The offset of the snapshot goes with the assignment,
    so that a member never starts work with an older config than it was assigned from. (Java sends the highest member's;
    there it is the same, as its leader assigns from the very snapshot that it joined with.)
    """
    highest = max(member_offsets)
    if snapshot_offset >= highest:
        return OffsetAgreement(snapshot_offset, agreed=True, use_fresh_snapshot=False)
    if fresh_offset >= highest:
        return OffsetAgreement(fresh_offset, agreed=True, use_fresh_snapshot=True)
    return OffsetAgreement(highest, agreed=False, use_fresh_snapshot=False)


class AssignorMemory(Value):
    """What a leader remembers from round to round; a new leader begins with an empty one."""

    previous: WorkSet = field(
        default_factory=WorkSet
    )  # assigned, or lost and not yet assigned again, as of the last round
    previous_revocation: WorkSet = field(default_factory=WorkSet)
    revoked_in_previous: bool = False  # balancing revocations only
    candidates: tuple[str, ...] = ()  # members that came empty while lost work waited, in order of appearance
    scheduled_rebalance_ms: int = 0  # absolute, on the leader's clock; 0: none
    delay_ms: int = 0
    previous_generation: int = -1
    previous_members: tuple[str, ...] = ()
    consecutive_revocations: int = 0


class ClusterAssignment(Value):
    """Result of a round. The mappings have every member, in order of id.

    `owners` is who runs what once the round is applied. `lost` is the work of departed members: still waiting when
    `delay_ms` is above 0, given out again otherwise. `scheduled_rebalance_ms` is 0 when none is scheduled.
    """

    memory: AssignorMemory
    assigned: Mapping[str, WorkSet]
    revoked: Mapping[str, WorkSet]
    owners: Mapping[str, WorkSet]
    lost: WorkSet
    delay_ms: int
    scheduled_rebalance_ms: int


def assignment_messages(
    version: ProtocolVersion,
    leader: str,
    leader_url: str,
    config_offset: int,
    assigned: Mapping[str, WorkSet],
    revoked: Mapping[str, WorkSet] | None = None,
    delay_ms: int = 0,
    error: int = 0,
) -> dict[str, Assignment]:
    """What the leader sends: one message for each member in `assigned`."""
    given_back = revoked or {}
    return {
        member: Assignment(
            version, error, leader, leader_url, config_offset, work, given_back.get(member, WorkSet()), delay_ms
        )
        for member, work in assigned.items()
    }


def revocation_backoff_ms(attempt: int, max_delay_ms: int) -> int:
    """How long the `attempt`-th revoking round in a row (from 1) is held back: 40^attempt, capped; 0 for a cap of 0.

    Kafka's ExponentialBackoff, with its floating-point power that can come out 1 ms below the cap.
    """
    if max_delay_ms <= 1:
        return max_delay_ms
    return min(int(math.pow(40, min(attempt, math.log(max_delay_ms) / math.log(40)))), max_delay_ms)


class IncrementalCooperativeAssignor(Value):
    """Assigns increments; `max_delay_ms` is the worker setting `scheduled.rebalance.max.delay.ms`."""

    max_delay_ms: int

    def assign(
        self,
        memory: AssignorMemory,
        configured: WorkSet,
        claims: Mapping[str, WorkSet],
        *,
        last_completed_generation: int,
        generation: int,
        now_ms: int,
    ) -> ClusterAssignment:
        """One round.

        Args:
            memory: of this leader's last round.
            configured: all connectors of the snapshot and the tasks of those whose task configs are consistent.
            claims: member id to what the member reports that it runs, in the order of its report.
            last_completed_generation: of the group as this leader saw it; another one than that of the last round
                means that the last round never took effect.
            generation: of this round.
            now_ms: the leader's clock.
        """
        members = sorted(claims)
        claimed = {member: list(dict.fromkeys(_items(claims[member]))) for member in members}
        wanted = set(_items(configured))
        holders = Counter(item for member in members for item in claimed[member])
        active = set(holders)
        previous = set(_items(memory.previous)) if memory.previous_generation == last_completed_generation else set()
        if not active.isdisjoint(_items(memory.previous_revocation)):  # a revocation was not carried out
            previous = active
        deleted = previous - wanted
        lost = previous - active - deleted
        withdrawn = deleted | {item for item, count in holders.items() if count > 1}
        round_ = _Round(
            self.max_delay_ms,
            now_ms,
            memory,
            owned={member: [item for item in claimed[member] if item not in withdrawn] for member in members},
            revoked={member: [item for item in claimed[member] if item in withdrawn] for member in members},
        )
        reassigned = round_.handle_lost(lost)
        round_.balance(wanted)
        # As in Java, work that is new goes out before work that was lost.
        to_assign = _in_order(wanted - previous - active) + _in_order(reassigned)
        round_.fill([item for item in to_assign if isinstance(item, str)])
        round_.fill([item for item in to_assign if isinstance(item, TaskId)])
        return self._result(round_, claimed, deleted, lost, generation)

    @staticmethod
    def _result(
        round_: _Round, claimed: dict[str, list[Item]], deleted: set[Item], lost: set[Item], generation: int
    ) -> ClusterAssignment:
        kept = {member: set(items) - deleted for member, items in claimed.items()}
        revoked = {item for items in round_.revoked.values() for item in items}
        owned = {item for items in round_.owned.values() for item in items}
        return ClusterAssignment(
            memory=replace(
                round_.memory,
                previous=_work((owned - revoked) | lost),
                previous_revocation=_work(revoked),
                previous_generation=generation,
                previous_members=tuple(claimed),
            ),
            assigned={member: _work(set(items) - kept[member]) for member, items in round_.owned.items()},
            revoked={member: _work(items) for member, items in round_.revoked.items()},
            owners={member: _work(items) for member, items in round_.owned.items()},
            lost=_work(lost),
            delay_ms=round_.memory.delay_ms,
            scheduled_rebalance_ms=round_.memory.scheduled_rebalance_ms,
        )


@dataclass(slots=True)
class _Round:
    """Working state of one round: what each member will own, and what it has to give back."""

    max_delay_ms: int
    now_ms: int
    memory: AssignorMemory
    owned: dict[str, list[Item]]
    revoked: dict[str, list[Item]] = field(default_factory=dict)

    def handle_lost(self, lost: set[Item]) -> set[Item]:
        """Begin, continue with or end the delay for lost work; returns what is to be assigned like new work."""
        memory = self.memory
        if not lost and not memory.revoked_in_previous:
            self._end_delay()
            return set()
        scheduled_ms = memory.scheduled_rebalance_ms
        all_are_here = set(memory.previous_members) <= set(self.owned)
        if (scheduled_ms <= 0 and all_are_here) or self.max_delay_ms == 0:
            return lost
        if 0 < scheduled_ms <= self.now_ms:
            takers = [member for member in memory.candidates if member in self.owned]
            if takers:
                self._deal([item for item in lost if isinstance(item, str)], takers)
                self._deal([item for item in lost if isinstance(item, TaskId)], takers)
            self._end_delay()
            self.memory = replace(self.memory, revoked_in_previous=False)
            return set() if takers else lost
        idle = [member for member in self.owned if not self.owned[member] and member not in memory.candidates]
        delay_ms = self.max_delay_ms
        if self.now_ms < scheduled_ms:  # a further loss does not move the deadline
            delay_ms = min(scheduled_ms - self.now_ms, self.max_delay_ms)
        self.memory = replace(
            memory,
            candidates=(*memory.candidates, *idle),
            delay_ms=delay_ms,
            scheduled_rebalance_ms=self.now_ms + delay_ms,
        )
        return set()

    def _end_delay(self) -> None:
        self.memory = replace(self.memory, candidates=(), scheduled_rebalance_ms=0, delay_ms=0)

    def _deal(self, items: Iterable[Item], takers: list[str]) -> None:
        """One after the other, whatever the takers own already."""
        for number, item in enumerate(_in_order(items)):
            self.owned[takers[number % len(takers)]].append(item)

    def balance(self, wanted: set[Item]) -> None:
        """Revoke what is above an even share, unless a delay runs or the last round revoked too."""
        memory = self.memory
        if memory.delay_ms != 0:
            self.memory = replace(memory, revoked_in_previous=False)
            return
        surplus: dict[str, list[Item]] = {}
        if wanted and any(self.owned.values()):
            surplus = self._surplus(wanted, str)
            for member, items in self._surplus(wanted, TaskId).items():
                surplus.setdefault(member, []).extend(items)
        if not surplus:
            if memory.revoked_in_previous:
                self.memory = replace(memory, revoked_in_previous=False, consecutive_revocations=0)
            return
        if memory.revoked_in_previous:
            attempt = memory.consecutive_revocations + 1
            delay_ms = revocation_backoff_ms(attempt, self.max_delay_ms)
            self.memory = memory = replace(memory, consecutive_revocations=attempt, delay_ms=delay_ms)
            if delay_ms != 0:
                self.memory = replace(memory, scheduled_rebalance_ms=self.now_ms + delay_ms)
                return
        else:
            self.memory = replace(memory, revoked_in_previous=True)
        for member, items in surplus.items():
            gone = set(items)
            self.revoked[member].extend(items)
            self.owned[member] = [item for item in self.owned[member] if item not in gone]

    def _surplus(self, wanted: set[Item], kind: type) -> dict[str, list[Item]]:
        """What each member owns of one kind above an even share of what is configured, from the front of its list."""
        total = sum(isinstance(item, kind) for item in wanted)
        owned = {member: [item for item in items if isinstance(item, kind)] for member, items in self.owned.items()}
        minimum, extra = divmod(total, len(owned))
        counts = Counter(len(items) for items in owned.values())
        if counts[minimum + 1] == extra and counts[minimum] + counts[minimum + 1] == len(owned):
            return {}
        surplus: dict[str, list[Item]] = {}
        for member, items in owned.items():
            if len(items) <= minimum:
                continue
            share = minimum + 1 if extra > 0 else minimum
            extra -= 1
            if len(items) > share:
                surplus[member] = items[: len(items) - share]
        return surplus

    def fill(self, items: list[Item]) -> None:
        """Give items of one kind to the least loaded members, level by level, in order of (load, member id)."""
        if not items:
            return
        kind = type(items[0])
        load = {member: sum(isinstance(item, kind) for item in owned) for member, owned in self.owned.items()}
        members = sorted(load, key=lambda member: (load[member], member))
        left = iter(items)
        while True:
            level = load[members[0]]
            for member in [member for member in members if load[member] <= level]:
                item = next(left, None)
                if item is None:
                    return
                self.owned[member].append(item)
                load[member] += 1


def _items(work: WorkSet) -> list[Item]:
    return [*work.connectors, *work.tasks]


def _in_order(items: Iterable[Item]) -> list[Item]:
    """Connectors by name, then tasks by connector and number."""
    work = _work(items)
    return [*work.connectors, *work.tasks]


def _work(items: Iterable[Item]) -> WorkSet:
    connectors: list[str] = []
    tasks: list[TaskId] = []
    for item in items:
        if isinstance(item, TaskId):
            tasks.append(item)
        else:
            connectors.append(item)
    return WorkSet(tuple(sorted(connectors)), tuple(sorted(tasks, key=TASK_ORDER)))


def assign_eagerly(configured: WorkSet, members: Iterable[str]) -> dict[str, WorkSet]:
    """Member id to its complete work: connectors in turn over the members by id, then tasks, from the next member on.

    Assigns everything again in every round, from the names alone. `members` has at least one member. Mirrors Kafka
    Connect's EagerAssignor, for groups of the protocol `default`.
    """
    connectors: dict[str, list[str]] = {member: [] for member in sorted(members)}
    tasks: dict[str, list[TaskId]] = {member: [] for member in connectors}
    turn = cycle(connectors)
    for connector in sorted(configured.connectors):
        connectors[next(turn)].append(connector)
    for task in sorted(configured.tasks, key=TASK_ORDER):
        tasks[next(turn)].append(task)
    return {member: WorkSet(tuple(connectors[member]), tuple(tasks[member])) for member in connectors}
