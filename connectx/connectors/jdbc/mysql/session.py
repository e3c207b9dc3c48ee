"""One connection to MySQL or MariaDB by PyMySQL, and what its errors mean."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from connectx.connectors.jdbc.database import DatabaseSettings
from connectx.connectors.jdbc.mysql.rows import RowReader
from connectx.connectors.jdbc.mysql.tls import Mode, Tls
from connectx.connectors.shared import sql
from connectx.errors.base import ConnectxError
from connectx.errors.databases import (
    DatabaseError,
    DatabasePermissionError,
    DatabaseUnavailableError,
    LockTimeoutError,
    RowRefusedError,
    TableMismatchError,
    TableMissingError,
)
from connectx.errors.plugins import ConfigError
from connectx.errors.transient import MYSQL_LOCK_TIMEOUT, TRANSIENT_MYSQL_ERRORS
from connectx.extras import require

if TYPE_CHECKING:
    import pyarrow as pa
    import pymysql

_Result = TypeVar("_Result")
_CONNECT_S: Final = 10
_NO_TLS: Final = 2026
_CUT: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Connections that end in a TLS handshake, which may succeed later."""
_PERMISSION: Final = (1044, 1045, 1142, 1143, 1227, 1370, 1698)
_MISSING: Final = (1146, 1049)
_MISMATCH: Final = (1054, 1110, 1136, 1166)
_ROW: Final = (
    1048,
    1062,
    1169,
    1216,
    1217,
    1264,
    1265,
    1292,
    1364,
    1365,
    1366,
    1406,
    1411,
    1426,
    1451,
    1452,
    1557,
    1644,
    1690,
    3140,
    3819,
    4025,
)
_TABLE: Final = re.compile(
    r"\b(?:FROM|INTO|UPDATE|TABLE(?: IF (?:NOT )?EXISTS)?) +((?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*)"
)
_BINARY: Final = 63
"""Number of the character set of columns that are no text."""
_CHARSET: Final = "utf8mb4"
_VARIABLES: Final = {
    "time_zone": "'+00:00'",
    "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "character_set_client": _CHARSET,
    "character_set_connection": _CHARSET,
    "character_set_results": _CHARSET,
    "system_versioning_asof": "DEFAULT",
}
"""Session variables that decide which rows a query has and what their texts are, whatever the server's defaults are."""
_NO_LIMIT: Final = (1 << 64) - 1
_NULL_DATES: Final = re.compile(r"[?&]zeroDateTimeBehavior=convert_?to_?null(&|$)", re.IGNORECASE)
"""Connector/J's parameter of a URL."""


class QueryColumn(NamedTuple):
    """A column of a query as the protocol describes it: `code` of the type, `length` of the longest text."""

    name: str
    code: int
    is_unsigned: bool
    length: int
    scale: int


class MySqlSession:
    """A connection that is made when first used, by one thread.

    Args:
        settings: URL and login.
        variables: session variables, in SQL; those that the server does not have are left out.
        texts: values are the texts that the server sends, so that Arrow casts whole columns; otherwise Python's.

    Attributes:
        nulls_zero_dates: the URL asks for zero dates as nulls.
    """

    def __init__(self, settings: DatabaseSettings, variables: dict[str, str], *, texts: bool = False) -> None:
        self._variables = variables
        self._connection: pymysql.Connection[Any] | None = None
        self.place, self.database, self._arguments, self._tls = place_of(settings)
        self.nulls_zero_dates = bool(_NULL_DATES.search(settings.uri))
        self._arguments |= {"conv": {}} if texts else {}

    def execute(self, sql: str) -> None:
        """Run a statement."""
        self._call(sql, lambda connection: _run(connection, sql))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        return self._call(sql, lambda connection: _run(connection, sql))

    def read(self, sql: str, rows: int) -> Iterator[list[tuple[pa.Array, bool]]]:
        """Columns of a query as they come, at most `rows` rows at a time: as binary, and whether they are text."""
        reader, texts = self._call(sql, lambda connection: _reader(connection, sql))
        is_whole = False
        try:
            while columns := self._call(sql, lambda _: reader.next(rows)):
                yield list(zip(columns, texts, strict=True))
            is_whole = True
        finally:
            if not is_whole:  # the server would send all other rows before it answers again
                self.close()

    def described(self, query: str) -> list[QueryColumn]:
        """The columns of a query."""

        def run(connection: Any) -> list[QueryColumn]:
            from pymysql.constants import FLAG

            with connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM ({query}\n) AS r LIMIT 0")
                return [
                    QueryColumn(
                        field.name, field.type_code, bool(field.flags & FLAG.UNSIGNED), field.length, field.scale
                    )
                    for field in cursor._result.fields
                ]

        return self._call(query, run)

    def explained(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query's plan, by column."""

        def run(connection: Any) -> list[dict[str, Any]]:
            from pymysql.cursors import DictCursor

            with connection.cursor(DictCursor) as cursor:
                cursor.execute(f"EXPLAIN FORMAT=TRADITIONAL {query}")
                return list(cursor.fetchall())

        return self._call(query, run)

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    def cancel(self) -> None:
        """From another thread: end the statement that runs now, and with it the connection."""
        connection = self._connection
        if connection is None:
            return
        number = connection.thread_id()
        with self._connected() as other, other.cursor() as cursor:
            cursor.execute(f"KILL {int(number)}")

    def close(self) -> None:
        """Drop the connection; an open transaction is rolled back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            _close(connection)

    def _live(self) -> Any:
        if self._connection is None:
            with ExitStack() as failed:
                connection = self._connected()
                failed.callback(_close, connection)
                _run(connection, f"SET SESSION sql_select_limit = {_NO_LIMIT}")  # also a limit of SHOW VARIABLES
                given = {**_VARIABLES, **self._variables}
                names = ", ".join(f"'{name}'" for name in given)
                known = {row[0] for row in _run(connection, f"SHOW VARIABLES WHERE Variable_name IN ({names})")}
                chosen = ", ".join(f"SESSION {name} = {value}" for name, value in given.items() if name in known)
                _run(connection, f"SET {chosen}")
                failed.pop_all()
            self._connection = connection
        return self._connection

    def _connected(self) -> Any:
        """A new connection, which is encrypted and verified before a login is sent on it."""
        require("MySQL", "mysql", "pymysql")
        import pymysql

        context = self._tls.context()
        tls = {"ssl_disabled": self._tls.mode is Mode.DISABLED} if context is None else {"ssl": context}
        return pymysql.connect(**self._arguments, **tls)

    def _call(self, sql: str, function: Callable[[Any], _Result]) -> _Result:
        require("MySQL", "mysql", "pymysql")
        import pymysql

        what = "a connection"
        try:
            connection = self._live()
            what = named(sql)
            return function(connection)
        except (pymysql.Error, OSError) as error:
            raise mysql_error(error, self.place, what) from error


def named(sql: str) -> str:
    """The verb of a statement and its first table, for messages."""
    verb, table = sql.split(maxsplit=1)[0], _TABLE.search(sql)
    return verb if table is None else f"{verb} on {table[1]}"


def _close(connection: Any) -> None:
    if connection.open:
        with suppress(Exception):  # the server is gone
            connection.close()


def _run(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _reader(connection: Any, sql: str) -> tuple[RowReader, list[bool]]:
    """Start a query; returns what reads its rows, and which of its columns are text."""
    from pymysql.connections import TEXT_TYPES
    from pymysql.constants import CR
    from pymysql.err import OperationalError, raise_mysql_exception

    connection.query(sql, unbuffered=True)
    result = connection._result
    result.unbuffered_active = False  # so PyMySQL does not read the rows

    def receive(most: int) -> bytes:
        received: bytes = connection._rfile.read1(most)
        if not received:
            raise OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server during query")
        return received

    texts = [column.type_code not in TEXT_TYPES or column.charsetnr != _BINARY for column in result.fields]
    return RowReader(receive, raise_mysql_exception, len(texts)), texts


def place_of(settings: DatabaseSettings) -> tuple[str, str, dict[str, Any], Tls]:
    """(place without secrets, database, arguments of PyMySQL, TLS).

    Raises:
        ConfigError: the URL names no single host, or has parameters that cannot be used.
    """
    is_mariadb = settings.uri.strip().removeprefix("jdbc:").startswith("mariadb:")
    url = re.sub(r"^(jdbc:)?\w+:", "mysql:", settings.uri.strip())
    parts = urlsplit(url)
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(parameters)
    try:
        host, port = parts.hostname or "127.0.0.1", parts.port or 3306
    except ValueError:
        host, port = "", 0
    if not port or not url.startswith("mysql://") or re.search(r"[,()=]", host):
        raise ConfigError(
            ["Invalid value for configuration connection.url: write it as mysql://host:port/database, with one host"]
        )
    database = unquote(parts.path.lstrip("/"))
    socket = options.get("unix_socket") or options.get("localSocket")
    arguments: dict[str, Any] = {
        "user": settings.user or unquote(parts.username or "") or options.get("user"),
        "password": settings.password or unquote(parts.password or "") or options.get("password") or "",
        "database": database or None,
        "charset": _CHARSET,
        "autocommit": True,
        "connect_timeout": _CONNECT_S,
        "program_name": settings.name,
        **({"unix_socket": socket} if socket else {"host": host, "port": port}),
    }
    tls = Tls.of(parameters, is_mariadb=is_mariadb, is_local=bool(socket))
    return f"{socket or f'{host}:{port}'}/{database}", database, arguments, tls


def mysql_error(error: Exception, place: str, what: str) -> ConnectxError:
    """What an error of PyMySQL or of the server means, which came for `what`."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1] if len(error.args) > 1 else error).rstrip(".")
    cause = getattr(error, "original_exception", error)
    if code == _NO_TLS or (isinstance(cause, ssl.SSLError) and not isinstance(cause, _CUT)):
        return DatabasePermissionError(
            f"MySQL at {place} cannot be trusted: {getattr(cause, 'verify_message', '') or text}.",
            next_step="Correct sslMode and the certificates that connection.url names, or the server's, "
            "and restart the task.",
        )
    if code in _ROW:
        return RowRefusedError(f"{text}.")
    if code == MYSQL_LOCK_TIMEOUT:
        return LockTimeoutError(
            f"MySQL at {place} has a row of {what} locked: {text}.", next_step="The task tries again."
        )
    is_closed = not code and (not text or "closed" in text.lower())  # a call after the connection has ended has no text
    if code in TRANSIENT_MYSQL_ERRORS or isinstance(error, OSError) or is_closed:
        return DatabaseUnavailableError(
            f"MySQL at {place} is not available for {what}: {text}.", next_step="The task tries again."
        )
    if code in _PERMISSION:
        return DatabasePermissionError(
            f"MySQL at {place} does not allow {what}: {text}.",
            next_step="Grant the privilege, or correct connection.user or connection.password, and restart the task.",
        )
    if code in _MISSING:
        return TableMissingError(f"MySQL at {place}: {text}.", next_step="Create it, and restart the task.")
    if code in _MISMATCH:
        return TableMismatchError(f"MySQL at {place}: {text}.", next_step="Correct the table, and restart the task.")
    return DatabaseError(
        f"MySQL at {place} refuses {what}: {text} (error {code}).", next_step="Correct the cause, and restart the task."
    )


def identifier(name: str) -> str:
    """A quoted identifier in SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text in SQL, where a backslash escapes."""
    return sql.literal(text.replace("\\", "\\\\"))
