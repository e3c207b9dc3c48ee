"""Bodies of requests become values, or a 400."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectx.errors.rest import RestError
from connectx.model.states import TargetState
from connectx.rest import bodies
from connectx.rest.bodies import InitialState, NewConnector, NewOffset, NewOffsets, Settings


def test_scalars_of_a_configuration_keep_the_text_they_were_written_as() -> None:
    body = (
        b'{"int": 10, "big": 12345678901234567890, "float": 1.50 , "exp": 1e3, "yes": true, "no": false, "none": null}'
    )
    assert bodies.as_config(bodies.decode(body, Settings)) == {
        "int": "10",
        "big": "12345678901234567890",
        "float": "1.50",
        "exp": "1e3",
        "yes": "true",
        "no": "false",
        "none": None,
    }


def test_a_create_request_needs_no_more_than_a_name() -> None:
    assert bodies.decode(b'{"name": "f1"}', NewConnector) == NewConnector("f1")
    assert bodies.decode(b"{}", NewConnector) == NewConnector()
    nulls = b'{"name": "f1", "config": null, "initial_state": null}'
    assert bodies.decode(nulls, NewConnector) == NewConnector("f1")
    assert bodies.decode(b'{"initial_state": "stopped"}', NewConnector).initial_state is InitialState.STOPPED


def test_each_initial_state_has_a_target_state() -> None:
    assert [state.target for state in InitialState] == [*TargetState]


def test_offsets_keep_numbers_as_numbers() -> None:
    body = b'{"offsets": [{"partition": {"p": 1}, "offset": {"o": 92233720368547758070, "ratio": 0.5}}]}'
    offset = NewOffset({"p": 1}, {"o": 92233720368547758070, "ratio": 0.5})
    assert bodies.decode(body, NewOffsets) == NewOffsets([offset])
    assert bodies.decode(b'{"offsets": [{}]}', NewOffsets) == NewOffsets([NewOffset(None, None)])


def test_the_name_of_the_path_goes_into_the_configuration() -> None:
    assert bodies.with_name({"a": "1"}, "f1") == {"a": "1", "name": "f1"}
    assert bodies.with_name({"name": "f1"}, "f1") == {"name": "f1"}
    with pytest.raises(RestError, match=r"\(f2\) doesn't match connector name in the URL \(f1\)"):
        bodies.with_name({"name": "f2"}, "f1")


@pytest.mark.parametrize("half", [b"\\ud83d", b"\xed\xa0\xbd"])
def test_text_that_no_topic_can_hold_is_refused_for_the_core_would_fail_to_write_it(half: bytes) -> None:
    with pytest.raises(RestError):
        bodies.as_config({"file": msgspec.Raw(b'"' + half + b'"')})
    refused: list[tuple[bytes, Any]] = [
        (b'{"' + half + b'": "a"}', Settings),
        (b'{"name": "a' + half + b'", "config": {}}', NewConnector),
        (b'{"offsets": [{"partition": {"a": "' + half + b'"}, "offset": null}]}', NewOffsets),
    ]
    for body, kind in refused:
        with pytest.raises(RestError) as error:
            bodies.decode(body, kind)
        assert error.value.status == 400
    whole: Settings = bodies.decode(b'{"file": "\\ud83d\\ude00"}', Settings)
    assert bodies.as_config(whole) == {"file": "\U0001f600"}


@pytest.mark.parametrize("deep", [b'{"a":' + b"[" * 100_000, b'{"a":' + b'{"a":' * 100_000])
def test_a_body_that_is_too_deep_is_refused(deep: bytes) -> None:
    for kind in (Settings, dict[str, Any]):
        with pytest.raises(RestError):
            bodies.decode(deep, kind)
