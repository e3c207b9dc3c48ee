"""Stages, in Kafka Connect's sentences."""

from __future__ import annotations

import pytest

from connectx.rest.stages import Stage


@pytest.mark.parametrize(
    ("began_ms", "shown"),
    [(1_700_000_000_042, "2023-11-14T22:13:20.042Z"), (1_700_000_000_000, "2023-11-14T22:13:20Z")],
)
def test_a_stage_names_its_beginning_as_java_does(began_ms: int, shown: str) -> None:
    sentence = f"The worker is currently starting the connector, which began at {shown}."
    assert Stage("starting the connector", began_ms).summary() == sentence
