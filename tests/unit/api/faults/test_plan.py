"""A seed gives one plan, and a plan gives every kind its turn."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest

from connectx.api.faults.chaos import chosen_kinds
from connectx.api.faults.plan import DIRECTIONS, KINDS, PlannedFault, plan
from connectx.errors.clusters import NoGateError

FAULTS = 72


def planned(seed: int, kinds: tuple[str, ...] = KINDS) -> list[PlannedFault]:
    return list(islice(plan(seed, kinds, every_s=2.0, hold_s=(0.5, 6.0)), FAULTS))


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert planned(7) == planned(7)
    assert planned(7) != planned(8)


def test_the_order_in_which_kinds_are_named_changes_nothing() -> None:
    assert planned(7, KINDS[::-1]) == planned(7)


def test_a_plan_does_not_depend_on_how_python_hashes() -> None:
    code = "from itertools import islice; from connectx.api.faults.plan import *; "
    code += "print(list(islice(plan(7, KINDS, every_s=2.0, hold_s=(0.5, 6.0)), 72)))"
    recorded = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert recorded == {str(planned(7))}


def test_one_fault_comes_in_each_span_of_time() -> None:
    assert [int(fault.at_s // 2.0) for fault in planned(7)] == list(range(FAULTS))
    assert [fault.number for fault in planned(7)] == list(range(1, FAULTS + 1))


def test_each_kind_comes_once_before_one_comes_again() -> None:
    kinds = [fault.kind for fault in planned(7)]
    for first in range(0, FAULTS, len(KINDS)):
        assert sorted(kinds[first : first + len(KINDS)]) == sorted(KINDS)


def test_only_partitions_have_a_direction_and_all_three_come() -> None:
    cut = [fault.direction for fault in planned(7) if fault.kind == "partition"]
    assert set(cut) == set(DIRECTIONS)
    assert {fault.direction for fault in planned(7) if fault.kind != "partition"} == {None}


def test_times_and_picks_stay_within_their_bounds() -> None:
    assert all(0.5 <= fault.hold_s <= 6.0 and 0 <= fault.pick < 1 for fault in planned(7))
    assert max(Counter(round(fault.pick, 1) for fault in planned(7)).values()) < FAULTS / 3


def test_kinds_that_a_cluster_cannot_be_given_are_refused_or_left_out() -> None:
    assert chosen_kinds(None, has_gate=True) == tuple(kind for kind in KINDS if kind != "broker_kill")
    assert chosen_kinds(["stall", "kill"], has_gate=False) == ("kill", "stall")
    for kind in ("partition", "delay"):
        assert kind not in chosen_kinds(None, has_gate=False)
        with pytest.raises(NoGateError, match="no gate"):
            chosen_kinds([kind], has_gate=False)
    with pytest.raises(ValueError, match=r"kill, stop, .*, not flood"):
        chosen_kinds(["kill", "flood"], has_gate=True)
    with pytest.raises(ValueError, match="not none"):
        chosen_kinds([], has_gate=True)
