"""What the PostgreSQL sink makes of URLs, messages, names and types."""

from __future__ import annotations

import importlib

import pyarrow as pa
import pytest
from adbc_driver_manager import AdbcStatusCode, ProgrammingError

from connectx.connectors.jdbc.database import DatabaseSettings
from connectx.connectors.jdbc.postgres.target import PostgresTarget
from connectx.connectors.jdbc.postgres.types import array_texts, arrow_type
from connectx.connectors.jdbc.target import TargetSettings, split_name
from connectx.connectors.shared.postgres import (
    connect_error,
    identifier,
    libpq_uri,
    literal,
    shown_place,
    typed_error,
)
from connectx.errors.databases import (
    DatabaseError,
    DatabasePermissionError,
    DatabaseUnavailableError,
    TableMismatchError,
)

URI = "postgresql://u:secret@db.example:5432/flights"
SERVER = 'IO: [libpq] Failed to connect: connection to server at "db.example" (10.0.0.1), port 5432 failed: '


@pytest.mark.parametrize(
    ("url", "user", "password", "uri"),
    [
        ("postgresql://h/d", None, None, "postgresql://h/d?connect_timeout=10"),
        (
            "jdbc:postgresql://h/d?ssl=1",
            "me",
            "p w&?",
            "postgresql://h/d?ssl=1&user=me&password=p%20w%26%3F&connect_timeout=10",
        ),
        ("postgresql://h/d?connect_timeout=1", "me", None, "postgresql://h/d?connect_timeout=1&user=me"),
    ],
)
def test_a_url_becomes_a_libpq_uri(url: str, user: str | None, password: str | None, uri: str) -> None:
    assert libpq_uri(url, user, password) == uri


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        (URI, "db.example:5432/flights"),
        ("postgresql://u@/flights?host=/run/pg&password=secret", "/run/pg/flights"),
        ("postgresql:///flights", "the local socket/flights"),
    ],
)
def test_a_place_is_shown_without_secrets(uri: str, place: str) -> None:
    assert shown_place(uri) == place


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (SERVER + "Connection refused", DatabaseUnavailableError),
        (SERVER + "FATAL:  the database system is starting up", DatabaseUnavailableError),
        (SERVER + "FATAL:  the database system is shutting down", DatabaseUnavailableError),
        (SERVER + "FATAL:  sorry, too many clients already", DatabaseUnavailableError),
        (SERVER + "FATAL:  terminating connection due to administrator command", DatabaseUnavailableError),
        (
            SERVER + "FATAL:  server login has been failing, try again later (server_login_retry)",
            DatabaseUnavailableError,
        ),
        (SERVER + "SSL SYSCALL error: Connection reset by peer", DatabaseUnavailableError),
        (SERVER + "SSL connection has been closed unexpectedly", DatabaseUnavailableError),
        (SERVER + "SSL error: unexpected eof while reading", DatabaseUnavailableError),
        (SERVER + "server closed the connection unexpectedly", DatabaseUnavailableError),
        (SERVER.replace("db.example", "ssl-password.example") + "Connection refused", DatabaseUnavailableError),
        ("IO: [libpq] Failed to execute query 'SELECT 1': SSL error: bad record", DatabaseUnavailableError),
        ("IO: [libpq] Failed to build type mapping table: server closed", DatabaseUnavailableError),
        ('could not translate host name "nowhere" to address', DatabaseUnavailableError),
        ("failed to resolve host 'password.example': [Errno -3] Temporary failure", DatabaseUnavailableError),
        ("connection timeout expired", DatabaseUnavailableError),
        (SERVER + 'FATAL:  database "flights" does not exist', DatabaseError),
        (SERVER + 'FATAL:  password authentication failed for user "u"', DatabasePermissionError),
        (SERVER + "fe_sendauth: no password supplied", DatabasePermissionError),
        (SERVER + "SSL error: certificate verify failed", DatabasePermissionError),
        (SERVER + "server does not support SSL, but SSL was required", DatabasePermissionError),
        (SERVER + 'invalid integer value "q" for connection option "keepalives"', DatabaseError),
        ("failed to resolve host 'h': [Errno -8] Servname not supported for ai_socktype", DatabaseError),
        ('missing "=" after "u:secret@h" in connection info string', DatabaseError),
        ('invalid port number: "secret"', DatabaseError),
    ],
)
def test_a_failed_connection_is_final_or_passes_and_hides_secrets(message: str, kind: type[Exception]) -> None:
    error = connect_error(message, URI)
    assert type(error) is kind
    assert error.retriable is (kind is DatabaseUnavailableError)
    assert "secret" not in str(error)
    assert error.next_step


@pytest.mark.parametrize("driver", ["adbc_driver_postgresql.dbapi", "psycopg"])
@pytest.mark.parametrize(
    "uri",
    [
        "secret",
        "mysql://u:secret@h/d",
        "postgresql://u:p@ssw@h:secret/d",
        "postgresql://u:sec%re@h/secret%zz",
        "postgresql://[::1/secret",
        "postgresql://h/d?secret",
        "postgresql://h/d?password=a=secret",
        "postgresql://h/d?sslPassword=secret",
        "postgresql://a secret/d",
        "postgresql://127.0.0.1/d?sslmode=secret",
        "postgresql://127.0.0.1/d?ssl_min_protocol_version=secret",
        "postgresql://127.0.0.1/d?hostaddr=secret",
        "postgresql://127.0.0.1/d?service=secret",
        "postgresql://127.0.0.1/d?sslrootcert=system&sslmode=require",
        "postgresql://127.0.0.1:1/d?keepalives=secret",
        "postgresql:///d?host=secret,b&port=1,2,3",
        "host='secret",
        f"postgresql:///d?host=/{'secret' * 20}",
    ],
)
def test_what_libpq_does_not_understand_is_final_and_hides_secrets(driver: str, uri: str) -> None:
    with pytest.raises(importlib.import_module(driver).Error) as failed:
        importlib.import_module(driver).connect(uri)
    error = connect_error(str(failed.value), uri)
    assert type(error) is DatabaseError
    assert "secret" not in str(error)
    assert not error.retriable


@pytest.mark.parametrize(
    ("state", "recorded"),
    [
        ("40001", "PostgreSQL at h:5432/shop could not run INSERT: no. "),
        ("42501", "PostgreSQL at h:5432/shop does not allow INSERT: no. "),
        ("42P01", "PostgreSQL at h:5432/shop does not find what INSERT names: no. "),
        ("42703", "The table in PostgreSQL at h:5432/shop does not fit: no. "),
        ("XX000", "PostgreSQL at h:5432/shop refuses INSERT: no. (SQLSTATE XX000). "),
    ],
)
def test_a_failed_statement_is_named_with_its_server(state: str, recorded: str) -> None:
    details = [("PG_DIAG_MESSAGE_PRIMARY", b"no")]
    failed = ProgrammingError("failed", status_code=AdbcStatusCode.UNKNOWN, sqlstate=state, details=details)
    error = typed_error(failed, "INSERT INTO t VALUES (1)", "h:5432/shop")
    assert str(error) == recorded + error.next_step
    assert error.next_step


def test_names_and_texts_are_quoted() -> None:
    assert identifier('a"b') == '"a""b"'
    assert literal("it's") == "'it''s'"
    assert literal(7) == "7"
    assert literal(None) == "NULL"


def test_a_table_is_named_by_its_topic_whose_dots_stay() -> None:
    assert split_name("${topic}", "a.b", "public") == ("public", "a.b")
    assert split_name("s_${topic}.t", "x", "public") == ("s_x", "t")


def test_types_that_copy_takes() -> None:
    assert arrow_type("numeric(12,3)") == pa.decimal128(12, 3)
    assert arrow_type("character varying(5)") == pa.string()
    assert arrow_type("timestamp with time zone") == pa.timestamp("us", "UTC")
    assert [arrow_type(kind) for kind in ("numeric", "numeric(50,2)", "uuid", "jsonb", "integer[]", "inet")] == [
        None
    ] * 6


def test_a_table_is_made_for_the_columns_of_the_records() -> None:
    rows = pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([1], pa.timestamp("us", "UTC")), "x": ["y"]})
    target = PostgresTarget(TargetSettings(DatabaseSettings("postgresql://h/d")))
    assert target.create("public", "t", rows, ["id"]) == (
        'CREATE TABLE IF NOT EXISTS "public"."t" ("id" integer NOT NULL, "at" timestamp with time zone, "x" text, '
        'PRIMARY KEY ("id"))'
    )
    with pytest.raises(TableMismatchError, match="no column type for field x"):
        target.create("public", "t", pa.table({"x": [[{"y": 1}]]}), [])


def test_lists_are_sent_as_texts_of_arrays() -> None:
    assert array_texts(pa.chunked_array([[["a", None, 'q"\\,{}', "NULL", ""], None, []]])).to_pylist() == [
        r'{"a",NULL,"q\"\\,{}","NULL",""}',
        None,
        "{}",
    ]
    assert array_texts(pa.chunked_array([[[[1, 2], [3, None]]]])).to_pylist() == ['{{"1","2"},{"3",NULL}}']
    assert array_texts(pa.chunked_array([[[b"\x00\xff"]]])).to_pylist() == [r'{"\\x00ff"}']
