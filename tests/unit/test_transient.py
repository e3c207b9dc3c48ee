"""Errors of libraries pass by themselves only where the network or the system's resources are the cause."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from pathlib import Path

import duckdb
import psycopg
import pymysql
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from connectx.connectors.shared.errors import LakeError, LakeUnavailableError
from connectx.errors.transient import is_transient


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (LakeUnavailableError("It is away."), True),
        (LakeError("It is wrong."), False),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (OSError("of a library, without a number"), True),
        (PermissionError(errno.EACCES, "no"), False),
        (OSError(errno.ENAMETOOLONG, "no"), False),
        (sqlite3.IntegrityError("UNIQUE constraint failed"), False),
        (ValueError("no such column"), False),
        (Exception("Schema error: Duplicate field name"), False),
    ],
)
def test_only_errors_of_network_and_resources_pass(error: Exception, passes: bool) -> None:
    assert is_transient(error) is passes


def of_sqlite(statement: str, folder: Path) -> Exception:
    """What SQLite raises while another connection writes."""
    path = folder / "a.db"
    path.write_bytes(b"no database" * 1000 if "broken" in statement else b"")
    with sqlite3.connect(path, isolation_level=None) as other, sqlite3.connect(path, timeout=0) as connection:
        if "broken" not in statement:
            other.execute("CREATE TABLE t (id)")
            other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.Error) as raised:
            connection.execute(statement)
    return raised.value


def of_sqlalchemy(statement: str, folder: Path) -> Exception:
    """What SQLAlchemy makes of that."""
    with sqlite3.connect(folder / "b.db", isolation_level=None) as other:
        other.execute("CREATE TABLE t (id)")
        other.execute("BEGIN IMMEDIATE")
        engine = create_engine(f"sqlite:///{folder}/b.db", connect_args={"timeout": 0})
        with engine.connect() as connection, pytest.raises(SQLAlchemyError) as raised:
            connection.execute(text(statement))
    return raised.value


def of_duckdb(statement: str, folder: Path) -> Exception:
    """What DuckDB raises while another transaction has changed a row."""
    with duckdb.connect(folder / "c.duckdb") as other, other.cursor() as connection:
        other.execute("CREATE TABLE t (id INT)")
        other.execute("INSERT INTO t VALUES (1)")
        other.execute("BEGIN")
        connection.execute("BEGIN")
        other.execute("UPDATE t SET id = 2")
        with pytest.raises(duckdb.Error) as raised:
            connection.execute(statement)
    return raised.value


@pytest.mark.parametrize(
    ("raised_by", "statement", "passes"),
    [
        (of_sqlite, "INSERT INTO t VALUES (1)", True),
        (of_sqlite, "INSERT INTO missing VALUES (1)", False),
        (of_sqlite, "SELECT missing FROM t", False),
        (of_sqlite, "SELECT * FROM broken", False),
        (of_sqlalchemy, "INSERT INTO t VALUES (1)", True),
        (of_sqlalchemy, "INSERT INTO missing VALUES (1)", False),
        (of_duckdb, "UPDATE t SET id = 3", True),
        (of_duckdb, "BEGIN", False),
        (of_duckdb, "ATTACH '/no/such/folder/d.duckdb'", False),
    ],
)
def test_errors_of_databases_in_files_pass_where_others_hold_them(
    raised_by: Callable[[str, Path], Exception], statement: str, passes: bool, tmp_path: Path
) -> None:
    assert is_transient(raised_by(statement, tmp_path)) is passes


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (psycopg.errors.DeadlockDetected("deadlock detected"), True),
        (psycopg.errors.SerializationFailure("could not serialize access"), True),
        (psycopg.errors.AdminShutdown("terminating connection"), True),
        (psycopg.errors.TooManyConnections("sorry, too many clients already"), True),
        (psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"), True),
        (psycopg.errors.UndefinedTable("no such table"), False),
        (psycopg.errors.InvalidPassword("no"), False),
        (psycopg.errors.IndexCorrupted("it is corrupt"), False),
        (psycopg.OperationalError("connection failed: Connection refused"), True),
        (psycopg.OperationalError("server closed the connection unexpectedly"), True),
        (psycopg.OperationalError("consuming input failed: SSL connection has been closed unexpectedly"), True),
        (psycopg.OperationalError("SSL SYSCALL error: EOF detected"), True),
        (psycopg.OperationalError("connection failed: SSL error: certificate verify failed"), False),
        (psycopg.OperationalError("connection failed: FATAL:  the database system is starting up"), True),
        (psycopg.OperationalError('connection failed: FATAL:  database "x" does not exist'), False),
        (psycopg.OperationalError('connection failed: FATAL:  password authentication failed for "x"'), False),
        (pymysql.err.OperationalError(1213, "Deadlock found"), True),
        (pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"), True),
        (pymysql.err.OperationalError(1040, "Too many connections"), True),
        (pymysql.err.OperationalError(2013, "Lost connection"), True),
        (pymysql.err.InterfaceError(0, ""), True),
        (pymysql.err.OperationalError(1045, "Access denied"), False),
        (pymysql.err.OperationalError(1054, "Unknown column"), False),
        (pymysql.err.OperationalError(1142, "SELECT command denied"), False),
    ],
)
def test_the_code_of_a_servers_error_decides(error: Exception, passes: bool) -> None:
    assert is_transient(error) is passes


def test_a_server_that_does_not_answer_passes() -> None:
    with pytest.raises(psycopg.Error) as psycopgs:
        psycopg.connect("postgresql://127.0.0.1:1/x")
    with pytest.raises(pymysql.Error) as pymysqls:
        pymysql.connect(host="127.0.0.1", port=1)
    assert is_transient(psycopgs.value)
    assert is_transient(pymysqls.value)
