"""Bodies of requests become values, or a 400."""

from __future__ import annotations

import pytest

from connectx.errors.rest import RestError
from connectx.model.states import TargetState
from connectx.rest import bodies


def test_scalars_of_a_configuration_keep_the_text_they_were_written_as() -> None:
    body = (
        b'{"int": 10, "big": 12345678901234567890, "float": 1.50, "exp": 1e3, "yes": true, "no": false, "none": null}'
    )
    assert bodies.parse_config(body) == {
        "int": "10",
        "big": "12345678901234567890",
        "float": "1.50",
        "exp": "1e3",
        "yes": "true",
        "no": "false",
        "none": None,
    }


def test_a_create_request_needs_no_more_than_a_name() -> None:
    assert bodies.parse_create(b'{"name": " f1 "}') == ("f1", {}, None)
    assert bodies.parse_create(b"{}") == ("", {}, None)
    assert bodies.parse_create(b'{"name": "f1", "config": null, "initial_state": null}') == ("f1", {}, None)
    assert bodies.parse_create(b'{"initial_state": "stopped"}') == ("", {}, TargetState.STOPPED)


def test_offsets_keep_numbers_as_numbers() -> None:
    body = b'{"offsets": [{"partition": {"p": 1}, "offset": {"o": 9223372036854775807, "ratio": 0.5}}]}'
    assert bodies.parse_offsets(body) == [
        {"partition": {"p": 1}, "offset": {"o": 9223372036854775807, "ratio": 0.5}},
    ]


def test_the_name_of_the_path_goes_into_the_configuration() -> None:
    assert bodies.with_name({"a": "1"}, "f1") == {"a": "1", "name": "f1"}
    assert bodies.with_name({"name": "f1"}, "f1") == {"name": "f1"}
    with pytest.raises(RestError, match=r"\(f2\) doesn't match connector name in the URL \(f1\)"):
        bodies.with_name({"name": "f2"}, "f1")


@pytest.mark.parametrize("half", [b"\\ud83d", b"\xed\xa0\xbd"])
def test_text_that_no_topic_can_hold_is_refused_for_the_core_would_fail_to_write_it(half: bytes) -> None:
    with pytest.raises(RestError, match="surrogates not allowed") as refused:
        bodies.parse_config(b'{"file": "' + half + b'"}')
    assert refused.value.status == 400
    with pytest.raises(RestError):
        bodies.parse_create(b'{"name": "a' + half + b'", "config": {}}')
    with pytest.raises(RestError):
        bodies.parse_task_configs(b'[{"' + half + b'": "a"}]')
    with pytest.raises(RestError):
        bodies.parse_offsets(b'{"offsets": [{"partition": {"a": "' + half + b'"}, "offset": null}]}')
    assert bodies.parse_config(b'{"file": "\\ud83d\\ude00"}') == {"file": "\U0001f600"}
