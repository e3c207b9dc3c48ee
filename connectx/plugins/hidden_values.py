"""Values that nothing may show: what the placeholders of configurations stood for, hidden in texts and in the log.

Each worker has its own. The log of a process is one: there, values of all its workers are hidden, in message and trace
of every record of connectx, for any handler. A log call therefore needs no masking.
"""

from __future__ import annotations

import logging
import threading
import traceback
import weakref
from collections.abc import Set
from typing import Any, Final

from connectx.views import HIDDEN

_SHORTEST: Final = 4
_lock: Final = threading.Lock()
_of_the_log: Final[list[weakref.ref[HiddenValues]]] = []
"""Those with a value, while they are used; the record factory is installed with the first one."""


class HiddenValues:
    """The hidden values of one worker. `values` only grows, from any thread."""

    def __init__(self) -> None:
        self.values: frozenset[str] = frozenset()

    def add(self, value: str) -> None:
        """Hide a value from now on. One below four characters is not hidden: every text would be full of holes."""
        value = value.strip()  # plugins use that of a file without its line break
        if len(value) < _SHORTEST or value in self.values:
            return
        with _lock:
            if not _of_the_log:
                _install()
            if not self.values:
                _of_the_log[:] = [*(each for each in _of_the_log if each() is not None), weakref.ref(self)]
            self.values |= {value}

    def masked(self, text: str) -> str:
        """Text, such as a trace, with `[hidden]` in the place of every value."""
        return _without(self.values, text)


def _install() -> None:
    make = logging.getLogRecordFactory()

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made: logging.LogRecord = make(*args, **kwargs)
        if str(made.name).partition(".")[0] == "connectx":
            _hide(made)
        return made

    logging.setLogRecordFactory(record)


def _hide(record: logging.LogRecord) -> None:
    """Format what has a hidden value here, so that no handler sees it."""
    if record.exc_info and record.exc_info[1] is not None:
        trace = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        if (shown := _masked(trace)) != trace:
            record.exc_info, record.exc_text = None, shown
    try:
        message = record.getMessage()
    except Exception:  # arguments that do not fit the message; logging would print them
        record.args, message = (), str(record.msg)
    if (shown := _masked(message)) != message:
        record.msg, record.args = shown, ()


def _masked(text: str) -> str:
    known = (each() for each in tuple(_of_the_log))
    return _without({value for hidden in known if hidden is not None for value in hidden.values}, text)


def _without(values: Set[str], text: str) -> str:
    for value in sorted(values, key=len, reverse=True):  # a value may be part of a longer one
        text = text.replace(value, HIDDEN)
    return text
