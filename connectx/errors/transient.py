"""Which errors pass by themselves, so that the same call may succeed later.

An error of connectx names it (`retriable`). Of errors of libraries those of the network, of the system's resources and
of a database's connection or server pass. Any other error of a library is about the data, the settings or a defect, and
would come again each time. Databases have codes for that: the class of an error does not show it, since drivers also
raise OperationalError for a table that does not exist.
"""

from __future__ import annotations

import errno
import re
from typing import Any, Final

from connectx.errors.base import ConnectxError

LASTING: Final = frozenset(
    (
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
    )
)
"""Errors of the system that stay until someone changes a setting or a disk."""

_DATABASE: Final = frozenset(("DatabaseError", "InterfaceError", "SQLAlchemyError"))
"""Names that Python's database API (PEP 249) and SQLAlchemy give errors of databases and their drivers."""

_MAY_PASS: Final = frozenset(("OperationalError", "InterfaceError", "TimeoutError"))
"""Names of those that pass if they have no code, as when a connection breaks or none of a pool becomes free."""

TRANSIENT_SQLSTATES: Final = ("08", "40", "53", "57P", "55P03", "55006", "25P03")
"""Prefixes of SQLSTATEs: connections, conflicts of transactions, resources, shutdowns, locks, sessions ended idle."""

MYSQL_LOCK_TIMEOUT: Final = 1205

TRANSIENT_MYSQL_ERRORS: Final = frozenset(
    (
        1040,
        1053,
        1077,
        1078,
        1080,
        1152,
        1158,
        1159,
        1160,
        1161,
        1180,
        1184,
        1203,
        1206,
        1213,
        1317,
        1637,
        1836,
        1927,
        1928,
        1969,
        2002,
        2003,
        2006,
        2013,
        2055,
        3024,
        4031,
    )
)
"""Numbers of errors of MySQL and MariaDB: connections, deadlocks, resources, shutdowns, ended statements."""

_SQLITE: Final = frozenset((5, 6, 9, 10, 14, 15))
"""Primary result codes of SQLite: busy, locked, interrupted, no answer of the disk, no such file, a race for a lock."""

_DUCKDB: Final = re.compile(r"Could not set lock|Conflicting lock|conflict", re.IGNORECASE)
"""DuckDB's errors have no codes."""
LOST_CONNECTION: Final = re.compile(
    "server closed|SSL connection has been closed|SSL SYSCALL error|SSL error|could not (?:receive|send) data"
    "|lost synchronization|no connection|connection not open|terminating|is active for PID"
)
"""Texts of libpq about a connection that has ended. Such an error has no SQLSTATE."""

_PASSING_LOGIN: Final = (
    r"starting up|shutting down|recovery|too many|connection slots|terminating|canceling authentication"
    r"|not (?:yet )?accepting connections|no more connections|login has been failing|query_wait_timeout"
)
"""Texts of PostgreSQL and PgBouncer if the same login may succeed later."""

_REFUSED_LOGIN: Final = re.compile(
    rf"FATAL:(?!.*(?:{_PASSING_LOGIN}))|password|certificate|private key"
    r"|SSL(?! SYSCALL| connection has been closed| error: unexpected eof)",
    re.DOTALL | re.IGNORECASE,
)
_PLACE: Final = re.compile(r"(?:connection to server (?:at|on socket)|translate host name|resolve host) (['\"]).*?\1")


def is_refused_login(message: str) -> bool:
    """Whether an attempt to connect to PostgreSQL has failed permanently, by libpq's text: it has no SQLSTATE.

    It passes unless the server answers and refuses the login, or cannot be trusted.
    """
    return bool(_REFUSED_LOGIN.search(_PLACE.sub("", message)))


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later."""
    if isinstance(error, ConnectxError):
        return error.retriable
    if isinstance(error, OSError):
        return error.errno not in LASTING
    return is_of_database(error) and _passes(getattr(error, "orig", None) or error)  # SQLAlchemy's has the driver's


def is_of_database(error: BaseException) -> bool:
    """Whether an error is one of a database's driver, or of SQLAlchemy."""
    return any(base.__name__ in _DATABASE for base in type(error).__mro__)


def _passes(error: Any) -> bool:
    """The same for an error of a database's driver."""
    driver = type(error).__module__.partition(".")[0]
    if driver in ("sqlite3", "pysqlite2", "aiosqlite"):
        return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in _SQLITE
    if driver in ("duckdb", "_duckdb"):
        return type(error).__name__ in ("IOException", "TransactionException") and bool(_DUCKDB.search(str(error)))
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    number = getattr(error, "errno", None) or (error.args[0] if error.args else None)
    if isinstance(number, int):
        is_closed = number == 0 and type(error).__name__ == "InterfaceError"
        return number in TRANSIENT_MYSQL_ERRORS or number == MYSQL_LOCK_TIMEOUT or is_closed
    if state:
        return str(state).startswith(TRANSIENT_SQLSTATES)
    may_pass = any(base.__name__ in _MAY_PASS for base in type(error).__mro__)
    return may_pass and not is_refused_login(str(error))
