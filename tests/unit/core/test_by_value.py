"""Cores beside that of the worker compare by value."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from connectx.core.fetcher import messages as fetcher
from connectx.core.fetcher.fetcher import FetcherCore
from connectx.core.messages import BeginTask
from connectx.core.producer import messages as producer
from connectx.core.producer.producer import ProducerCore
from connectx.core.source.loop import SourceTaskCore
from connectx.model.ids import TopicPartition
from tests.support.source_loop import AT_LEAST_ONCE, TASK

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("core", "stimulus"),
    [
        (ProducerCore(producer.ProducerSettings()), producer.Call.INITIALIZE),
        (FetcherCore(fetcher.FetcherSettings()), fetcher.FetchFrom({T0: 5})),
        (SourceTaskCore(AT_LEAST_ONCE), BeginTask(TASK, 0)),
    ],
    ids=["producer", "fetcher", "source loop"],
)
def test_a_copy_of_a_core_is_equal_until_the_two_take_different_stimuli(core: Any, stimulus: Any) -> None:
    other = copy.deepcopy(core)
    assert other == core
    core.handle(stimulus, 1_000)
    assert other != core
    other.handle(stimulus, 1_000)
    assert other == core
