"""Partitions as Java's producer chooses them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_one

from connectx.protocol.partitions import StickyPartitioner, murmur2, partitions_of_keys

# org.apache.kafka.common.utils.UtilsTest
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_murmur2_is_javas() -> None:
    assert murmur2(pa.array(list(JAVA), pa.binary())).astype(np.int32).tolist() == list(JAVA.values())


@given(st.lists(st.binary(max_size=70), min_size=1, max_size=30), st.integers(1, 50))
def test_a_column_of_keys_is_hashed_as_each_of_its_keys(keys: list[bytes], count: int) -> None:
    column = pa.array([b"before", *keys], pa.binary()).slice(1)
    assert murmur2(column).tolist() == [murmur2_of_one(key) & 0xFFFFFFFF for key in keys]
    expected = [(murmur2_of_one(key) & 0x7FFFFFFF) % count for key in keys]
    assert partitions_of_keys(column, count).tolist() == expected


def test_records_without_a_key_stay_in_a_partition_until_a_batch_is_full() -> None:
    choices = iter([2, 0, 1])
    sticky = StickyPartitioner(100, lambda count: next(choices))
    assert sticky.assign("t", np.full(5, 40), [0, 1, 2]).tolist() == [2, 2, 2, 0, 0]
    assert sticky.assign("t", np.full(2, 40), [0, 1, 2]).tolist() == [0, 1]


def test_a_partition_that_lost_its_leader_is_left() -> None:
    sticky = StickyPartitioner(100, lambda count: count - 1)
    assert sticky.assign("t", np.full(1, 1), [0, 1]).tolist() == [1]
    assert sticky.assign("t", np.full(1, 1), [0]).tolist() == [0]


@pytest.mark.parametrize("topics", [("a", "b")])
def test_each_topic_has_its_own_current_partition(topics: tuple[str, str]) -> None:
    choices = iter([1, 0])
    sticky = StickyPartitioner(100, lambda count: next(choices))
    assert [sticky.assign(topic, np.full(1, 1), [0, 1]).tolist() for topic in (*topics, *topics)] == [
        [1],
        [0],
        [1],
        [0],
    ]
