"""Kafka follows the scripts that the model broker follows in test_model."""

from __future__ import annotations

import pytest

from tests.conformance.brokers import COMPACTED, Broker
from tests.conformance.group_scenarios import CHOICES, GROUP_MOVES, LATE
from tests.conformance.membership_scenarios import MEMBERSHIP
from tests.conformance.producer_scenarios import COMPACTION, PRODUCER_MOVES, PRODUCERS
from tests.conformance.request_scenarios import REQUESTS
from tests.conformance.script import run, steps

GROUPS = MEMBERSHIP | CHOICES | LATE


@pytest.mark.parametrize("name", GROUPS)
def test_kafka_shows_to_members_what_the_script_says(shared: Broker, name: str) -> None:
    assert run(GROUPS[name], shared.groups()) == steps(GROUPS[name])


@pytest.mark.parametrize("name", PRODUCERS)
def test_kafka_shows_to_producers_what_the_script_says(shared: Broker, name: str) -> None:
    assert run(PRODUCERS[name], shared.producers()) == steps(PRODUCERS[name])


@pytest.mark.parametrize("name", REQUESTS)
def test_kafka_answers_single_requests_as_the_script_says(shared: Broker, name: str) -> None:
    assert run(REQUESTS[name], shared.requests()) == steps(REQUESTS[name])


@pytest.mark.parametrize("name", COMPACTION)
def test_kafka_compacts_as_the_script_says(own: Broker, name: str) -> None:
    assert run(COMPACTION[name], own.producers(COMPACTED)) == steps(COMPACTION[name])


@pytest.mark.parametrize("name", GROUP_MOVES)
def test_groups_survive_a_restart_of_kafka_as_the_script_says(own: Broker, name: str) -> None:
    assert run(GROUP_MOVES[name], own.groups()) == steps(GROUP_MOVES[name])


@pytest.mark.parametrize("name", PRODUCER_MOVES)
def test_producers_survive_a_restart_of_kafka_as_the_script_says(own: Broker, name: str) -> None:
    assert run(PRODUCER_MOVES[name], own.producers()) == steps(PRODUCER_MOVES[name])
