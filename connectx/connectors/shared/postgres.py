"""One connection to PostgreSQL (ADBC), and what its errors mean.

It decides whether an error is final, passes, or is about a row. It never decides what is written or committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from connectx.connectors.shared.sql import identifier, literal
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
from connectx.errors.transient import LOST_CONNECTION, TRANSIENT_SQLSTATES, is_refused_login
from connectx.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "INFINITE_US",
    "SESSION",
    "URL_KEYS",
    "PostgresSession",
    "connect_error",
    "identifier",
    "libpq_uri",
    "literal",
    "shown_place",
    "typed_error",
]

_LOCK_NOT_AVAILABLE = "55P03"
_ROW = ("22", "23", "44", "P0001")  # data exceptions, constraints, check options, what triggers raise
_CANCELED = "57014"
_FAILED: Final = "IO: [libpq] Failed to connect: "
"""ADBC puts it before libpq's text. Other texts of an attempt to connect are of statements after the login."""
_PERMISSION = ("28", "42501")
_MISSING = ("42P01", "3F000")
_MISMATCH = ("42703", "42804", "42P10")
_AGAIN = "Check that the server runs; the task tries again."
SESSION: Final[Mapping[str, str]] = {
    "client_encoding": "UTF8",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
}
"""Parameters that decide how values are written as text and how literals are read, whatever database and user set."""

INFINITE_US: Final = {"infinity": 9_223_372_036_825_200_000, "-infinity": -9_223_372_036_832_400_000}
"""Microseconds since 1970 that stand for infinite timestamps: pgjdbc's milliseconds, as Debezium writes them."""

URL_KEYS = "connection.url, connection.user or connection.password"

_BAD_URI: Final = re.compile(
    r"(missing|invalid|unterminated quoted|end of string reached|IPv6 host address may|unexpected (spaces|character)"
    r"|extra key|forbidden value|weak sslmode|could not match|could not parse network address|definition of service"
    r"|service file|syntax error in service file|line \d+ too long|nested service|Unix-domain socket path"
    r"|(negative )?require_auth method|bad value for|\w+ value \S+ invalid when|.*Servname not supported)\b"
)
"""How texts of libpq and psycopg begin that are about a URI, a parameter in it, or its value."""


class PostgresSession:
    """A connection that is made when first used. A statement outside a transaction begins one.

    After any error call `rollback`: it drops a connection that is broken, and the next statement makes another.

    Args:
        uri: libpq URI.
        settings: run-time parameters beside SESSION, set after connecting (connection poolers do not pass them on at
            start).
        keys: the configuration keys that the URI comes from, for messages.
    """

    def __init__(self, uri: str, settings: dict[str, str], keys: str = URL_KEYS) -> None:
        self._uri = uri
        self._settings = {**SESSION, **settings}
        self._keys = keys
        self._connection: Any = None
        self._in_transaction = False

    def execute(self, sql: str) -> None:
        with self._cursor() as cursor:
            self._call(sql, cursor.execute, sql)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self._cursor() as cursor:
            self._call(sql, cursor.execute, sql)
            rows: list[tuple[Any, ...]] = self._call(sql, cursor.fetchall)
            return rows

    def explain(self, sql: str) -> list[tuple[Any, ...]]:
        """The plan of a query as JSON, within the transaction."""
        with self._cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": False})  # COPY takes no EXPLAIN
            self._call(sql, cursor.execute, f"EXPLAIN (FORMAT JSON) {sql}")
            rows: list[tuple[Any, ...]] = self._call(sql, cursor.fetchall)
            return rows

    def read(self, sql: str) -> Iterator[pa.Table]:
        """Rows of a query as tables, as they come."""
        import pyarrow as pa

        with self._cursor() as cursor:
            self._call(sql, cursor.execute, sql)
            reader = self._call(sql, cursor.fetch_record_batch)
            while (batch := self._call(sql, lambda: next(reader, None))) is not None:
                yield pa.Table.from_batches([batch])

    def schema(self, sql: str) -> pa.Schema:
        """What a query would give, without running it."""
        with self._cursor() as cursor:
            return self._call(sql, cursor.adbc_execute_schema, sql)

    def ingest(self, schema: str | None, table: str, rows: pa.Table) -> None:
        """Append rows by COPY; without `schema` to a temporary table."""
        where = {"temporary": True} if schema is None else {"db_schema_name": schema}
        with self._cursor() as cursor:
            self._call(f"COPY {table}", lambda: cursor.adbc_ingest(table, rows, mode="append", **where))

    def commit(self) -> None:
        """Commit the transaction. When this fails it may have been committed all the same."""
        self.execute("COMMIT")
        self._in_transaction = False

    def rollback(self) -> None:
        """End the transaction; a connection that cannot do that is dropped."""
        if self._connection is None or not self._in_transaction:
            return
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
            self._in_transaction = False
        except Exception:
            self.close()

    def cancel(self) -> None:
        """From another thread: end the statement that runs now."""
        connection = self._connection
        if connection is not None:
            connection.adbc_cancel()

    def close(self) -> None:
        """Drop the connection; an open transaction is rolled back."""
        connection, self._connection = self._connection, None
        self._in_transaction = False
        if connection is not None:
            connection.close()

    def _live(self) -> Any:
        if self._connection is None:
            require("PostgreSQL", "postgres", "adbc_driver_manager", "adbc_driver_postgresql")
            from adbc_driver_postgresql import dbapi

            try:
                connection = dbapi.connect(self._uri, autocommit=True)  # reads the server's types, too
            except dbapi.Error as error:
                if error.sqlstate and error.sqlstate != _CANCELED:
                    raise typed_error(error, "CONNECT", shown_place(self._uri)) from error
                raise connect_error(str(error), self._uri, self._keys) from None  # libpq's text may repeat the password
            with ExitStack() as failed:
                failed.callback(connection.close)
                set_all = ", ".join(
                    f"set_config('{name}', {literal(value)}, false)" for name, value in self._settings.items()
                )
                with connection.cursor() as cursor:
                    self._call("SET", cursor.execute, f"SELECT {set_all}")
                failed.pop_all()
            self._connection = connection
        return self._connection

    def _cursor(self) -> Any:
        connection = self._live()
        if not self._in_transaction:
            self._in_transaction = True
            with connection.cursor() as cursor:
                self._call("BEGIN", cursor.execute, "BEGIN")
        return connection.cursor()

    def _call(self, what: str, function: Any, *arguments: Any) -> Any:
        import pyarrow as pa
        from adbc_driver_postgresql import dbapi

        try:
            return function(*arguments)
        except (dbapi.Error, OSError, pa.ArrowInvalid) as error:  # the last two: a reader of rows, with libpq's text
            raise typed_error(error, what, shown_place(self._uri)) from error


def libpq_uri(url: str, user: str | None, password: str | None) -> str:
    """A libpq URI out of connection.url (also a JDBC one), connection.user and connection.password.

    `ssl=true` verifies the certificate and the name in a JDBC URL, as PostgreSQL's JDBC driver does; for libpq it means
    only `sslmode=require`.
    """
    uri = url.removeprefix("jdbc:")
    if uri != url and "sslmode=" not in uri:
        uri = re.sub(r"([?&])ssl(=true)?(?=&|$)", r"\1sslmode=verify-full", uri)
    given = {"user": user, "password": password}
    if "connect_timeout=" not in uri:
        given["connect_timeout"] = "10"
    added = "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items() if value)
    return f"{uri}{'&' if '?' in uri else '?'}{added}" if added else uri


def shown_place(uri: str) -> str:
    """Host, port and database of a URI, without anything secret."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # an IPv6 address without its end
        return "an unknown host"
    socket = re.search(r"(?:^|&)host=([^&]*)", parts.query)
    host = parts.netloc.rpartition("@")[2] or (socket[1] if socket else "the local socket")
    return f"{host}{parts.path}"


def connect_error(message: str, uri: str, keys: str = URL_KEYS) -> ConnectxError:
    """The typed error of a failed attempt to connect; libpq and psycopg report the cause only as text.

    It is final if the URI is malformed or the login is refused. Any other cause passes, for example a connection that
    ends after the login, while ADBC reads the server's types. `keys` are the keys that the URI comes from.
    """
    place = shown_place(uri)
    hint = f"Check that the server runs and that {keys} fit it; the task tries again."
    fatal = message.partition("FATAL:")[2].strip().split("\n")[0]
    if "does not exist" in fatal and fatal.startswith("database"):
        return DatabaseError(
            f"PostgreSQL at {place} has no such database: {fatal}.",
            next_step=f"Create it, or correct {keys}, and restart the task.",
        )
    reason = _reason(message)
    if _BAD_URI.match(reason):
        return DatabaseError(
            f"libpq does not understand the URI made of {keys}: {_unquoted(reason)}.",
            next_step="Write connection.url as postgresql://host:port/database, and restart the task."
            if keys == URL_KEYS
            else f"Correct {keys}, and restart the task.",
        )
    is_logged_in = message.startswith("IO: [libpq]") and not message.startswith(_FAILED)
    if is_refused_login(message) and not is_logged_in:
        return DatabasePermissionError(
            f"PostgreSQL at {place} refuses the login: {fatal or reason}.",
            next_step=f"Correct {keys}, and restart the task.",
        )
    if fatal:
        return DatabaseUnavailableError(f"PostgreSQL at {place} takes no connection: {fatal}.", next_step=hint)
    shown = reason if "connection to server" in message else _unquoted(reason)
    return DatabaseUnavailableError(f"PostgreSQL at {place} cannot be reached: {shown}.", next_step=hint)


def _reason(message: str) -> str:
    """The text of libpq, without the words that ADBC, psycopg and libpq put before it."""
    text = message.removeprefix(_FAILED).removeprefix("connection is bad: ")
    text = re.sub(r".*Failed to execute query '.*': (?:ERROR: *)?", "", text, flags=re.DOTALL)
    return text.split("\n")[0].rpartition("failed: ")[2]


def _unquoted(reason: str) -> str:
    """The text without what it quotes, since libpq repeats parts of a URI that it does not understand, secrets too."""
    shown, count = re.subn(r'".*?"(?= for connection option "[a-z_]+"$)', '"..."', reason)
    return shown if count else re.sub(r"(['\"]).*\1", '"..."', reason)


def typed_error(error: Any, what: str, place: str) -> ConnectxError:
    """What an error of a statement means, on the server at `place`."""
    verb, server = what.split(maxsplit=1)[0], f"PostgreSQL at {place}"
    state = _state(error)
    details = {name: text.decode("utf-8", "replace") for name, text in getattr(error, "details", None) or ()}
    reason = details.get("PG_DIAG_MESSAGE_PRIMARY") or str(error).partition("ERROR:")[2].strip().split("\n")[0]
    reason = reason or str(error).split("\n")[0]
    more = details.get("PG_DIAG_MESSAGE_DETAIL", "")
    message = f"{reason}. {more}".rstrip()
    if state.startswith(_ROW):
        return RowRefusedError(message)
    if state.startswith(TRANSIENT_SQLSTATES) or (not state and LOST_CONNECTION.search(str(error))):
        passing = LockTimeoutError if state == _LOCK_NOT_AVAILABLE else DatabaseUnavailableError
        return passing(f"{server} could not run {verb}: {reason}.", next_step=_AGAIN)
    if state.startswith(_PERMISSION):
        return DatabasePermissionError(
            f"{server} does not allow {verb}: {reason}.", next_step="Grant the privilege, and restart the task."
        )
    if state.startswith(_MISSING) or "does not exist" in reason:
        return TableMissingError(
            f"{server} does not find what {verb} names: {reason}.",
            next_step="Create it, or correct the names of tables in the configuration, and restart the task.",
        )
    if state.startswith(_MISMATCH):
        return TableMismatchError(
            f"The table in {server} does not fit: {reason}.",
            next_step="Correct the table or pk.fields, and restart the task.",
        )
    return DatabaseError(
        f"{server} refuses {verb}: {message} (SQLSTATE {state or 'unknown'}).",
        next_step="Correct the cause, and restart the task.",
    )


def _state(error: Any) -> str:
    return getattr(error, "sqlstate", None) or ""
