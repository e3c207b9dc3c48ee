"""The log of connectx shows no value of a placeholder, whichever module logs it, and with any handler."""

from __future__ import annotations

import gc
import logging

import pytest

from connectx.plugins.hidden_values import HiddenValues

SECRET = "s3cret 100%"
Log = pytest.LogCaptureFixture


@pytest.fixture
def hidden() -> HiddenValues:
    made = HiddenValues()
    made.add(SECRET)
    return made


class Quoting:
    """Something whose text has the secret."""

    def __str__(self) -> str:
        return f"a thing with {SECRET}"


@pytest.mark.parametrize("name", ["connectx", "connectx.connectors.new.module"])
def test_a_log_call_of_any_module_hides_values_in_its_message_and_its_trace(
    name: str, hidden: HiddenValues, caplog: Log
) -> None:
    log = logging.getLogger(name)
    log.error("login %s: %s, %d", SECRET, Quoting(), 7)
    log.error("%(why)s", {"why": SECRET})
    try:
        raise ValueError(f"{SECRET} is refused")
    except ValueError:
        log.exception("It %s", "failed")
    assert [record.getMessage() for record in caplog.records] == [
        "login [hidden]: a thing with [hidden], 7",
        "[hidden]",
        "It failed",
    ]
    assert "ValueError: [hidden] is refused" in caplog.text
    assert all(record.exc_info is None for record in caplog.records), "no handler makes a trace of it"
    assert SECRET not in caplog.text


def test_what_has_no_hidden_value_is_left_as_it_is(hidden: HiddenValues, caplog: Log) -> None:
    try:
        raise ValueError("x")
    except ValueError:
        logging.getLogger("connectx.a").exception("%d rows", 7)
    logging.getLogger("others").error("%s", SECRET)
    mine, others = caplog.records
    assert (mine.msg, mine.args) == ("%d rows", (7,))
    assert mine.exc_info is not None
    assert others.getMessage() == SECRET, "the log of other packages belongs to them"


def test_arguments_that_do_not_fit_are_not_printed(
    hidden: HiddenValues, caplog: Log, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logging.getLogger("connectx.a").error("%d rows", SECRET)
    assert "%d rows" in caplog.text
    assert SECRET not in caplog.text + capsys.readouterr().err


def test_values_of_several_workers_are_hidden_while_the_workers_are_used(caplog: Log) -> None:
    short, long = HiddenValues(), HiddenValues()
    short.add("abcd")
    long.add("abcd-efgh")
    log = logging.getLogger("connectx.a")
    log.error("abcd-efgh and abcd")
    del long
    gc.collect()
    log.error("abcd-efgh")
    assert caplog.messages == ["[hidden] and [hidden]", "[hidden]-efgh"]


def test_a_text_hides_the_longest_value_first_and_no_short_one() -> None:
    hidden = HiddenValues()
    for value in ("pass", "password\n", "abc", " "):
        hidden.add(value)
    assert hidden.masked("password pass abc") == "[hidden] [hidden] abc"
