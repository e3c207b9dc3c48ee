"""The masker of a worker: hides what placeholders of configurations stood for, and secrets in their usual forms.

All that leaves a worker goes through its masker: stimuli on their way to the core, and so statuses, events and answers
of the core (`connectx.runtime.masking`), refusals of REST (`connectx.rest.app`), dead letters, and the log. The log of
a process is one: there, values of all its workers are hidden, in message and trace of every record of connectx, for any
handler. A log call therefore needs no masking.
"""

from __future__ import annotations

import html
import json
import logging
import threading
import traceback
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

from connectx.views import HIDDEN, masked_text

_SHORTEST: Final = 4
_SHORTEST_LINE: Final = 16
"""Of a value of several lines, such as a key: shorter ones, as `-----` or a brace, may be in any text."""
_lock: Final = threading.Lock()
_of_the_log: Final[list[weakref.ref[HiddenValues]]] = []
"""Those with a value, while they are used; the record factory is installed with the first one."""


class HiddenValues:
    """The hidden values of one worker. They only grow, from any thread."""

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self.forms: tuple[str, ...] = ()
        """Texts that a value may have, the longest first, because one may be part of another."""

    def add(self, value: str) -> None:
        """Hide a value from now on. One below four characters is not hidden: every text would be full of holes."""
        value = value.strip()  # plugins use that of a file without its line break
        if len(value) < _SHORTEST or value in self._values:
            return
        with _lock:
            if not _of_the_log:
                _install()
            if not self._values:
                _of_the_log[:] = [*(each for each in _of_the_log if each() is not None), weakref.ref(self)]
            self._values |= {value}
            forms = {form for each in self._values for form in _forms(each)}
            self.forms = tuple(sorted(forms, key=len, reverse=True))

    def masked(self, text: str) -> str:
        """Text, such as a trace, with `[hidden]` in the place of every secret."""
        return masked_text(_without(self.forms, text))


def _forms(value: str) -> Iterator[str]:
    """A value as texts have it: as it is, by lines, in a repr, as JSON, in a URL, in HTML and in SQL."""
    yield value
    yield from (line.strip() for line in value.splitlines() if len(line.strip()) >= _SHORTEST_LINE)
    yield repr(value)[1:-1]
    yield repr(value + '"')[1:-2]  # quoted by the other kind of quotation mark
    yield repr(value.encode("utf-8", "surrogatepass"))[2:-1]
    yield from (json.dumps(value, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
    yield from (quote(value, safe=safe, errors="replace") for safe in ("", "/"))
    yield quote_plus(value, errors="replace")
    yield html.escape(value)
    yield value.replace("'", "''")


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
    forms = {form for hidden in known if hidden is not None for form in hidden.forms}
    return masked_text(_without(sorted(forms, key=len, reverse=True), text))


def _without(forms: Iterable[str], text: str) -> str:
    for form in forms:
        text = text.replace(form, HIDDEN)
    return text
