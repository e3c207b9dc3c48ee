"""The model broker follows the scripts that Kafka follows in test_kafka: the simulation runs on what Kafka is."""

from __future__ import annotations

import pytest

from tests.conformance.group_scenarios import CHOICES, GROUP_MOVES, LATE
from tests.conformance.membership_scenarios import MEMBERSHIP
from tests.conformance.on_model import GroupsOnModel, ProducersOnModel, RequestsOnModel
from tests.conformance.producer_scenarios import COMPACTION, PRODUCER_MOVES, PRODUCERS
from tests.conformance.request_scenarios import REQUESTS
from tests.conformance.script import run, steps

GROUPS = MEMBERSHIP | CHOICES | LATE | GROUP_MOVES
ALL_PRODUCERS = PRODUCERS | PRODUCER_MOVES | COMPACTION


@pytest.mark.parametrize("name", GROUPS)
def test_the_model_shows_to_members_what_the_script_says(name: str) -> None:
    assert run(GROUPS[name], GroupsOnModel()) == steps(GROUPS[name])


@pytest.mark.parametrize("name", ALL_PRODUCERS)
def test_the_model_shows_to_producers_what_the_script_says(name: str) -> None:
    assert run(ALL_PRODUCERS[name], ProducersOnModel()) == steps(ALL_PRODUCERS[name])


@pytest.mark.parametrize("name", REQUESTS)
def test_the_model_answers_single_requests_as_the_script_says(name: str) -> None:
    assert run(REQUESTS[name], RequestsOnModel()) == steps(REQUESTS[name])
