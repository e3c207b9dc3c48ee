"""Python's loggers with the names and levels of Kafka Connect's REST API."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from connectx.errors.rest import RestError
from connectx.rest.loggers import WorkerLoggers

NAMES = ("lg", "lg.a", "lg.a.b", "lgx", "connectx.runtime")


@pytest.fixture
def loggers() -> Iterator[WorkerLoggers]:
    before = {name: logging.getLogger(name).level for name in (*NAMES, "")}
    yield WorkerLoggers()
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_a_level_counts_for_a_logger_and_those_below_it_only(loggers: WorkerLoggers) -> None:
    assert loggers.set_level("lg", "debug") == ["lg", "lg.a", "lg.a.b"]
    assert [logging.getLogger(name).getEffectiveLevel() == logging.DEBUG for name in NAMES] == [True] * 3 + [False] * 2


def test_what_has_that_level_already_is_not_named_and_keeps_its_time(loggers: WorkerLoggers) -> None:
    loggers.set_level("lg.a", "DEBUG")
    recorded = loggers.level("lg.a")
    assert isinstance(recorded["last_modified"], int)
    assert (loggers.set_level("lg.a", "DEBUG"), loggers.level("lg.a")) == ([], recorded)
    assert loggers.set_level("lg", "DEBUG") == ["lg"]


def test_an_unknown_logger_is_a_404_until_it_is_set(loggers: WorkerLoggers) -> None:
    with pytest.raises(RestError, match=r"Logger lg\.never not found") as refused:
        loggers.level("lg.never")
    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("level", "number"),
    [("TRACE", 5), ("DEBUG", 10), ("info", 20), ("WARN", 30), ("ERROR", 40), ("FATAL", 50), ("OFF", 60)],
)
def test_levels_are_those_of_log4j(loggers: WorkerLoggers, level: str, number: int) -> None:
    loggers.set_level("lg", level)
    assert (logging.getLogger("lg").level, loggers.level("lg")["level"]) == (number, level.upper())


@pytest.mark.parametrize("level", ["LOUD", "", "10", "WARNING"])
def test_any_other_level_is_a_404(loggers: WorkerLoggers, level: str) -> None:
    with pytest.raises(RestError, match="invalid log level") as refused:
        loggers.set_level("lg", level)
    assert refused.value.status == 404


def test_packages_of_kafka_connect_are_the_packages_that_do_the_same_here(loggers: WorkerLoggers) -> None:
    assert "connectx.runtime" in loggers.set_level("org.apache.kafka.connect.runtime", "TRACE")
    assert loggers.level("org.apache.kafka.connect.runtime") == loggers.level("connectx.runtime")


def test_root_is_the_root_logger(loggers: WorkerLoggers) -> None:
    logging.getLogger().setLevel(logging.ERROR)
    assert loggers.level("ROOT")["level"] == loggers.levels()["root"]["level"] == "ERROR"
    changed = loggers.set_level("root", "WARN")
    assert {"root", "lg", "lg.a"} <= {*changed}
