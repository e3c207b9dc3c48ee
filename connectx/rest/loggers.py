"""Python's loggers for `/admin/loggers`, with the names and levels of Kafka Connect's REST API.

Decides how names and levels of log4j translate: `root` is the root logger, the packages of Kafka Connect's runtime are
the packages here that do the same. Levels are the process's, as a JVM's are: workers that are threads of one process
share them. It never adds a handler. Mirrors Kafka Connect's Loggers (KIP-495, KIP-976).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final

from connectx.core.messages import SetLoggerLevel
from connectx.errors.rest import RestError
from connectx.rest.bodies import Logger

_log = logging.getLogger(__name__)

_ROOT: Final = "root"
_LEVELS: Final = {
    "ALL": 1,
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
_PACKAGES: Final = {
    "org.apache.kafka.connect": "connectx",
    "org.apache.kafka.connect.runtime": "connectx.runtime",
    "org.apache.kafka.connect.runtime.rest": "connectx.rest",
    "org.apache.kafka.connect.storage": "connectx.kafka",
}
"""So that a level that is set for a whole cluster of both kinds of worker means the same on each."""


class WorkerLoggers:
    """Levels of the loggers of a worker's process, and when this worker changed them."""

    def __init__(self) -> None:
        self._modified_ms: dict[str, int] = {}

    def levels(self) -> dict[str, Logger]:
        """Levels in force of all loggers: name to {"level", "last_modified"}."""
        found = {_ROOT: logging.getLogger(), **dict(_existing())}
        return {name: self._level_of(name, logger) for name, logger in sorted(found.items())}

    def level(self, name: str) -> Logger:
        """Level in force for a logger: {"level", "last_modified"} (ms since 1970, None: not changed by this worker).

        Raises:
            RestError: 404, there is no such logger.
        """
        own = _own_name(name)
        logger = logging.getLogger() if own == _ROOT else dict(_existing()).get(own)
        if logger is None:
            raise RestError(f"Logger {name} not found.", status=404)
        return self._level_of(own, logger)

    def set_level(self, namespace: str, level: str) -> list[str]:
        """Set the level of a logger, which is made if it is missing, and of all below it; returns those that changed.

        Raises:
            RestError: 404, `level` is none of log4j's.
        """
        number, own = _LEVELS[checked_level(level)], _own_name(namespace)
        chosen = {own: logging.getLogger(None if own == _ROOT else own)}
        chosen |= {name: logger for name, logger in _existing() if own == _ROOT or name.startswith(f"{own}.")}
        changed = {name: logger for name, logger in sorted(chosen.items()) if logger.level != number}
        for name, logger in changed.items():
            logger.setLevel(number)
            self._modified_ms[name] = time.time_ns() // 1_000_000
        return list(changed)

    def execute(self, effect: SetLoggerLevel) -> None:
        """Carry out a command of the config topic; any worker of the group may have written it, so with any level."""
        try:
            self.set_level(effect.namespace, effect.level)
        except RestError as error:
            _log.warning("Logger %s stays as it is: %s", effect.namespace, error)

    def _level_of(self, name: str, logger: logging.Logger) -> Logger:
        return {"level": _word(logger.getEffectiveLevel()), "last_modified": self._modified_ms.get(name)}


def checked_level(level: str) -> str:
    """The level in capitals; RestError 404 when log4j has none of that name, as Kafka Connect answers."""
    if level.upper() not in _LEVELS:
        raise RestError(f"invalid log level '{level}'.", status=404, next_step=f"Use one of {', '.join(_LEVELS)}.")
    return level.upper()


def _own_name(name: str) -> str:
    return _ROOT if name.lower() == _ROOT else _PACKAGES.get(name, name)


def _existing() -> Iterator[tuple[str, logging.Logger]]:
    """Loggers in use; the manager also holds placeholders for names between them."""
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            yield name, logger


def _word(number: int) -> str:
    """The nearest level of log4j that lets the same records through."""
    return next((word for word, level in _LEVELS.items() if number <= level), "OFF")
