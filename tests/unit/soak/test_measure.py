"""The soak's verdict sees what is lost, twice, out of order, or from nowhere."""

from __future__ import annotations

from tests.soak.measure import expected_ids, measure, out_of_order


def test_it_is_good_only_when_each_record_is_there_once() -> None:
    assert measure("t", "abc", ["c", "a", "b"]).is_good
    lost, twice, foreign = measure("t", "abc", "ab"), measure("t", "abc", "abcbb"), measure("t", "abc", "abcx")
    assert (lost.lost, twice.duplicated, foreign.foreign) == (1, 2, 1)
    assert not any(one.is_good for one in (lost, twice, foreign, measure("t", "abc", "abc", reordered=1)))
    assert (lost.examples, twice.examples, foreign.examples) == (("lost c",), ("twice b",), ("foreign x",))


def test_order_counts_within_a_partition_and_a_source() -> None:
    assert out_of_order({0: [("a", 1), ("b", 0), ("a", 2)], 1: [("a", 0)]}) == 0
    assert out_of_order({0: [("a", 1), ("a", 3), ("a", 2), ("a", 4)]}) == 1


def test_the_ids_of_a_generator_are_shared_out_over_its_tasks() -> None:
    assert sorted(expected_ids({0: 3, 1: 2}), key=int) == ["0", "1", "2", "3", "4"]
