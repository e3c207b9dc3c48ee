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


def test_a_stage_that_is_over_names_its_end() -> None:
    sentence = (
        "The last operation the worker completed was starting the connector, which began at 1970-01-01T00:00:01Z "
        "and completed at 1970-01-01T00:00:02.500Z."
    )
    assert Stage("starting the connector", 1_000, 2_500).summary() == sentence
