"""Rounds of the incremental cooperative assignor: the consequences that users see, and what must hold always."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from connectx.core.group.assignor import (
    AssignorMemory,
    ClusterAssignment,
    IncrementalCooperativeAssignor,
    OffsetAgreement,
    agree_on_offset,
    assignment_messages,
    revocation_backoff_ms,
)
from connectx.model.group import Assignment, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId

DELAY_MS = 10_000
NOTHING = WorkSet()


def work(*names: str) -> WorkSet:
    """`a` is a connector, `a-0` a task of it."""
    tasks = sorted(TaskId(name.rpartition("-")[0], int(name.rpartition("-")[2])) for name in names if "-" in name)
    return WorkSet(tuple(sorted(name for name in names if "-" not in name)), tuple(tasks))


def connectors(count: int, tasks: int) -> WorkSet:
    names = [f"c{number}" for number in range(count)]
    return work(*names, *(f"{name}-{task}" for name in names for task in range(tasks)))


@dataclass
class Group:
    """Members that apply what the leader sends, as section "after a rebalance" of the protocol says."""

    configured: WorkSet
    running: dict[str, WorkSet] = field(default_factory=dict)
    memory: AssignorMemory = field(default_factory=AssignorMemory)
    max_delay_ms: int = DELAY_MS
    generation: int = 0
    now_ms: int = 1_000

    def join(self, *members: str) -> None:
        self.running.update(dict.fromkeys(members, NOTHING))

    def round(self, *, after_ms: int = 0, deaf: tuple[str, ...] = ()) -> ClusterAssignment:
        """One rebalance, which the members in `deaf` do not learn the outcome of."""
        self.now_ms += after_ms
        result = IncrementalCooperativeAssignor(self.max_delay_ms).assign(
            self.memory,
            self.configured,
            self.running,
            last_completed_generation=self.generation if self.generation else -1,
            generation=self.generation + 1,
            now_ms=self.now_ms,
        )
        self.generation += 1
        self.memory = result.memory
        for member in sorted(set(self.running) - set(deaf)):
            kept = self.running[member].minus(result.revoked[member])
            self.running[member] = kept.plus(result.assigned[member])
        return result

    def loads(self) -> dict[str, tuple[int, int]]:
        return {member: (len(work.connectors), len(work.tasks)) for member, work in sorted(self.running.items())}


def settled(members: int = 2, configured: WorkSet | None = None) -> Group:
    group = Group(configured or connectors(2, 2))
    group.join(*(f"m{number}" for number in range(1, members + 1)))
    group.round()
    group.round()
    return group


def still(result: ClusterAssignment) -> bool:
    return not any(result.assigned.values()) and not any(result.revoked.values()) and result.delay_ms == 0


def test_first_round_fills_the_least_loaded_level_by_level() -> None:
    group = Group(connectors(3, 1))
    group.join("m2", "m1")
    result = group.round()
    assert result == ClusterAssignment(
        memory=AssignorMemory(previous=connectors(3, 1), previous_generation=1, previous_members=("m1", "m2")),
        assigned={"m1": work("c0", "c2", "c0-0", "c2-0"), "m2": work("c1", "c1-0")},
        revoked={"m1": NOTHING, "m2": NOTHING},
        owners={"m1": work("c0", "c2", "c0-0", "c2-0"), "m2": work("c1", "c1-0")},
        lost=NOTHING,
        delay_ms=0,
        scheduled_rebalance_ms=0,
    )


def test_a_settled_group_stays_as_it_is() -> None:
    assert still(settled().round())


def test_a_newcomer_takes_three_rounds_and_no_delay() -> None:
    group = settled(configured=connectors(3, 4))
    group.join("m3")
    revoking = group.round()
    assert revoking.revoked == {"m1": work("c0", "c0-0", "c0-2"), "m2": work("c0-1", "c0-3"), "m3": NOTHING}
    assert not any(revoking.assigned.values())
    assigning = group.round()
    assert assigning.assigned == {"m1": NOTHING, "m2": NOTHING, "m3": work("c0", "c0-0", "c0-1", "c0-2", "c0-3")}
    assert (revoking.delay_ms, assigning.delay_ms) == (0, 0)
    assert still(group.round())
    assert group.loads() == {"m1": (1, 4), "m2": (1, 4), "m3": (1, 4)}


def test_new_connectors_and_tasks_go_to_the_least_loaded() -> None:
    group = settled()
    group.configured = work("c0", "c1", "d", "c0-0", "c0-1", "c0-2", "c1-0", "c1-1", "d-0")
    result = group.round()
    assert result.assigned == {"m1": work("d", "c0-2"), "m2": work("d-0")}


def test_deleted_work_is_revoked_and_does_not_come_back() -> None:
    group = settled()
    group.configured = work("c0", "c0-0", "c0-1")
    result = group.round()
    assert result.revoked == {"m1": work("c1-0"), "m2": work("c1", "c1-1")}
    assert not result.memory.revoked_in_previous
    assert still(group.round())


def test_nothing_configured_and_nothing_running_is_a_round_too() -> None:
    group = Group(NOTHING)
    group.join("m1")
    assert still(group.round())


def test_a_revocation_that_was_not_carried_out_is_repeated() -> None:
    group = settled()
    group.configured = work("c0", "c0-0", "c0-1")
    first = group.round(deaf=("m2",))
    assert first.revoked["m2"] == work("c1", "c1-1")
    assert group.round().revoked == {"m1": NOTHING, "m2": work("c1", "c1-1")}


def test_lost_work_waits_for_the_delay_and_then_goes_to_those_who_stayed() -> None:
    group = settled()
    lost = group.running.pop("m2")
    waiting = group.round()
    assert (waiting.delay_ms, waiting.scheduled_rebalance_ms, waiting.lost) == (DELAY_MS, group.now_ms + DELAY_MS, lost)
    assert not any(waiting.assigned.values())
    over = group.round(after_ms=DELAY_MS)
    assert over.assigned == {"m1": lost}
    assert (over.delay_ms, over.scheduled_rebalance_ms) == (0, 0)


def test_the_delay_is_over_at_its_very_millisecond() -> None:
    group = settled()
    group.running.pop("m2")
    group.round()
    assert group.round(after_ms=DELAY_MS - 1).delay_ms == 1
    assert group.round(after_ms=1).assigned["m1"]


def test_a_further_loss_does_not_move_the_deadline() -> None:
    group = settled(members=3)
    group.running.pop("m3")
    deadline_ms = group.round().scheduled_rebalance_ms
    group.running.pop("m2")
    later = group.round(after_ms=4_000)
    assert (later.delay_ms, later.scheduled_rebalance_ms) == (DELAY_MS - 4_000, deadline_ms)


def test_who_comes_empty_during_the_delay_gets_all_lost_work_whatever_its_id() -> None:
    group = settled()
    lost = group.running.pop("m2")
    group.round()
    group.join("m2-again")
    assert group.round(after_ms=100).memory.candidates == ("m2-again",)
    assert group.round(after_ms=DELAY_MS).assigned == {"m1": NOTHING, "m2-again": lost}


def test_who_comes_with_work_during_the_delay_is_no_candidate() -> None:
    group = settled(members=3, configured=connectors(3, 2))
    kept = group.running.pop("m3")
    group.running.pop("m2")
    group.round()
    group.running["m3"] = kept
    group.round(after_ms=100)
    assert group.memory.candidates == ()
    assert group.memory.delay_ms == DELAY_MS - 100


def test_who_returns_with_its_old_work_ends_the_delay_and_nothing_moves() -> None:
    group = settled()
    kept = group.running.pop("m2")
    assert group.round().delay_ms == DELAY_MS
    group.running["m2"] = kept
    assert still(group.round(after_ms=100))
    assert group.memory.scheduled_rebalance_ms == 0


def test_candidates_share_lost_work_in_order_of_appearance_beginning_anew_with_tasks() -> None:
    group = settled(configured=connectors(3, 3))
    group.running.pop("m1")
    group.running.pop("m2")
    group.join("m9")
    group.round()
    group.join("m5")
    group.round(after_ms=1)
    assert group.memory.candidates == ("m9", "m5")
    result = group.round(after_ms=DELAY_MS)
    assert result.assigned["m9"] == work("c0", "c2", "c0-0", "c0-2", "c1-1", "c2-0", "c2-2")
    assert result.assigned["m5"] == work("c1", "c0-1", "c1-0", "c1-2", "c2-1")


def test_candidates_that_left_again_get_nothing() -> None:
    group = settled()
    lost = group.running.pop("m2")
    group.round()
    group.join("m3")
    group.round(after_ms=1)
    group.running.pop("m3")
    assert group.round(after_ms=DELAY_MS).assigned == {"m1": lost}


def test_an_overloaded_candidate_is_balanced_in_the_round_that_overloads_it() -> None:
    group = settled(members=3, configured=connectors(6, 0))
    group.running.pop("m2")
    group.running.pop("m3")
    group.join("m4")
    group.round()
    result = group.round(after_ms=DELAY_MS)
    assert result.assigned == {"m1": NOTHING, "m4": work("c2", "c4", "c5")}
    assert result.revoked == {"m1": NOTHING, "m4": work("c1")}
    assert group.round().assigned == {"m1": work("c1"), "m4": NOTHING}
    assert group.loads() == {"m1": (3, 0), "m4": (3, 0)}


def test_new_work_is_assigned_while_a_delay_runs() -> None:
    group = settled()
    group.running.pop("m2")
    group.round()
    group.configured = group.configured.plus(work("d", "d-0"))
    result = group.round(after_ms=5)
    assert result.assigned == {"m1": work("d", "d-0")}
    assert result.delay_ms == DELAY_MS - 5


def test_no_balancing_while_a_delay_runs() -> None:
    group = settled(members=3, configured=connectors(6, 0))
    group.running.pop("m3")
    group.join("m4")
    result = group.round()
    assert result.delay_ms == DELAY_MS
    assert not any(result.revoked.values())


def test_without_a_delay_lost_work_is_assigned_at_once() -> None:
    group = settled()
    group.max_delay_ms = 0
    lost = group.running.pop("m2")
    result = group.round()
    assert (result.assigned, result.lost, result.delay_ms) == ({"m1": lost}, lost, 0)


def test_an_assignment_that_did_not_arrive_is_given_again_at_once() -> None:
    group = Group(connectors(2, 0))
    group.join("m1", "m2")
    group.round(deaf=("m2",))
    result = group.round()
    assert result.assigned == {"m1": NOTHING, "m2": work("c1")}
    assert (result.lost, result.delay_ms) == (work("c1"), 0)


def test_a_new_leader_hands_out_at_once_what_the_old_one_was_holding_back() -> None:
    group = settled()
    lost = group.running.pop("m2")
    assert group.round().delay_ms == DELAY_MS
    group.memory = AssignorMemory()
    assert group.round(after_ms=1).assigned == {"m1": lost}


def test_a_leader_whose_last_round_did_not_complete_forgets_what_was_previous() -> None:
    group = settled()
    lost = group.running.pop("m2")
    group.generation += 3  # rounds that others led
    result = group.round()
    assert (result.assigned, result.lost, result.delay_ms) == ({"m1": lost}, NOTHING, 0)


def test_an_idle_member_that_leaves_after_a_revoking_round_costs_a_delay_for_nothing() -> None:
    group = settled(configured=connectors(4, 0))
    group.join("m3", "m4", "m5")
    assert group.round().memory.revoked_in_previous
    group.running.pop("m5")
    odd = group.round()
    assert (odd.delay_ms, odd.lost) == (DELAY_MS, NOTHING)
    assert group.round(after_ms=1).delay_ms == 0


def test_every_second_round_of_newcomers_is_held_back() -> None:
    group = settled(configured=connectors(12, 0))
    group.join("m3")
    assert sum(len(work.connectors) for work in group.round().revoked.values()) == 4
    group.join("m4")
    held = group.round()
    assert not any(held.revoked.values())
    assert (held.delay_ms, held.scheduled_rebalance_ms) == (40, group.now_ms + 40)
    assert held.memory.consecutive_revocations == 1
    later = group.round(after_ms=40)
    assert any(later.revoked.values())
    assert later.delay_ms == 0


def test_with_a_delay_of_zero_newcomers_are_never_held_back() -> None:
    group = settled(configured=connectors(12, 0))
    group.max_delay_ms = 0
    group.join("m3")
    group.round()
    group.join("m4")
    result = group.round()
    assert any(result.revoked.values())
    assert (result.delay_ms, result.memory.consecutive_revocations) == (0, 1)


def test_a_round_without_revocation_resets_the_back_off() -> None:
    group = settled()
    group.memory = replace(group.memory, revoked_in_previous=True, consecutive_revocations=3)
    assert group.round().memory.consecutive_revocations == 0
    assert not group.memory.revoked_in_previous


def test_the_surplus_comes_from_the_front_of_what_the_member_reported() -> None:
    claims = {"m1": WorkSet(("b", "c", "a", "d")), "m2": NOTHING}
    result = IncrementalCooperativeAssignor(0).assign(
        AssignorMemory(), work("a", "b", "c", "d"), claims, last_completed_generation=-1, generation=1, now_ms=0
    )
    assert result.revoked["m1"] == work("b", "c")


def test_the_first_members_above_the_minimum_keep_the_extra_ones() -> None:
    names = work(*"abcdefg")
    claims = {"m3": work("a", "b", "c"), "m2": work("d", "e", "f"), "m1": work("g")}
    result = IncrementalCooperativeAssignor(0).assign(
        AssignorMemory(), names, claims, last_completed_generation=-1, generation=1, now_ms=0
    )
    assert result.revoked == {"m1": NOTHING, "m2": NOTHING, "m3": work("a")}


@pytest.mark.parametrize(
    ("attempt", "max_delay_ms", "expected_ms"),
    [(1, 300_000, 40), (2, 300_000, 1_600), (3, 300_000, 64_000), (9, 1_600, 1_600), (1, 0, 0), (5, 1, 1), (1, 20, 20)],
)
def test_the_back_off_grows_by_forty_up_to_the_delay(attempt: int, max_delay_ms: int, expected_ms: int) -> None:
    assert revocation_backoff_ms(attempt, max_delay_ms) in (expected_ms, expected_ms - 1)
    assert revocation_backoff_ms(attempt, max_delay_ms) <= max_delay_ms


def test_the_back_off_can_be_a_millisecond_low_at_its_cap_as_in_java() -> None:
    assert revocation_backoff_ms(7, 1_000) == 999
    assert revocation_backoff_ms(7, 300_000) in (299_999, 300_000)


def test_work_claimed_twice_is_taken_from_both_and_given_to_one_later() -> None:
    group = settled()
    group.running["m1"] = group.running["m1"].plus(work("c1", "c1-1"))
    result = group.round()
    assert result.revoked == {"m1": work("c1", "c1-1"), "m2": work("c1", "c1-1")}
    assert not any(result.assigned.values())
    assert group.round().assigned == {"m1": NOTHING, "m2": work("c1", "c1-1")}
    assert still(group.round())


def test_a_ghost_is_revoked_once_it_has_entered_the_leaders_memory() -> None:
    group = Group(connectors(2, 2), {"m1": work("ghost", "ghost-0")})
    group.join("m2")
    seen = [group.round().revoked["m1"] for _ in range(3)]
    assert seen[0] == NOTHING
    assert work("ghost", "ghost-0") in seen[1:]
    assert "ghost" not in group.running["m1"].connectors


def test_a_stopped_connector_runs_without_tasks() -> None:
    group = settled()
    group.configured = work("c0", "c1", "c1-0", "c1-1")
    result = group.round()
    assert result.revoked == {"m1": work("c0-0"), "m2": work("c0-1")}


def test_messages_have_every_member() -> None:
    sent = assignment_messages(
        ProtocolVersion.SESSIONED, "m1", "http://h/", 9, {"m1": work("a"), "m2": NOTHING}, {"m2": work("b")}, 7
    )
    assert sent == {
        "m1": Assignment(ProtocolVersion.SESSIONED, 0, "m1", "http://h/", 9, work("a"), NOTHING, 7),
        "m2": Assignment(ProtocolVersion.SESSIONED, 0, "m1", "http://h/", 9, NOTHING, work("b"), 7),
    }


@pytest.mark.parametrize(
    ("snapshot_offset", "fresh_offset", "expected"),
    [
        (9, 12, OffsetAgreement(9, agreed=True, use_fresh_snapshot=False)),
        (10, 12, OffsetAgreement(10, agreed=True, use_fresh_snapshot=False)),
        (8, 9, OffsetAgreement(9, agreed=True, use_fresh_snapshot=True)),
        (8, 12, OffsetAgreement(12, agreed=True, use_fresh_snapshot=True)),
        (7, 8, OffsetAgreement(9, agreed=False, use_fresh_snapshot=False)),
    ],
)
def test_the_config_offset_is_that_of_a_snapshot_no_member_is_ahead_of(
    snapshot_offset: int, fresh_offset: int, expected: OffsetAgreement
) -> None:
    assert agree_on_offset([-1, 9, 7], snapshot_offset, fresh_offset) == expected
