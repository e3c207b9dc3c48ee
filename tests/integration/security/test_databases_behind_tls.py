"""MariaDB and PostgreSQL behind certificates: the right one, one of another authority, of another name, and none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pymysql
import pytest
import trustme

from connectx.connectors.cdc.replication import ReplicationStream
from connectx.connectors.jdbc.database import DatabaseSettings
from connectx.connectors.jdbc.mysql.session import MySqlSession
from connectx.connectors.shared.postgres import PostgresSession, libpq_uri
from connectx.errors.databases import DatabaseError, DatabasePermissionError, DatabaseUnavailableError
from connectx.kafka.broker.node import free_ports
from tests.support.databases import mariadb_server, postgres_server, restart_postgres
from tests.support.stores import java_trust_store
from tests.support.tls_servers import TlsServer, after_a_request, at_once, tls_server, without_tls

OURS, STRANGER = trustme.CA(), trustme.CA()
PASSWORD: Final = "only for the right server"
COM_QUIT: Final = b"\x01\x00\x00\x00\x01"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of both authorities, and a server's for `localhost` alone."""
    folder = tmp_path_factory.mktemp("tls")
    OURS.cert_pem.write_to_path(str(folder / "ours.pem"))
    STRANGER.cert_pem.write_to_path(str(folder / "stranger.pem"))
    OURS.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    java_trust_store(folder / "java.p12", OURS, "staple")
    return folder


@pytest.fixture(scope="module")
def tls_mariadb(files: Path) -> Iterator[tuple[int, str]]:
    """Port and Unix socket of a MariaDB that has a certificate for localhost."""
    (port,) = free_ports(1)
    network = {"port": port, "bind-address": "127.0.0.1"} | dict.fromkeys(("ssl-cert", "ssl-key"), files / "server.pem")
    with mariadb_server(*(f"--{name}={value}" for name, value in network.items())) as url:
        socket = parse_qs(urlsplit(url).query)["unix_socket"][0]
        with pymysql.connect(unix_socket=socket, user="root") as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE USER app@'%' IDENTIFIED BY '{PASSWORD}'")
        yield port, socket


def cipher(port: int, parameters: str, host: str = "localhost") -> str:
    """What encrypts a session that a URL asks for; empty for plain text."""
    session = MySqlSession(DatabaseSettings(f"jdbc:mariadb://{host}:{port}/?{parameters}", "app", PASSWORD), {})
    try:
        return str(session.query("SHOW STATUS LIKE 'Ssl_cipher'")[0][1])
    finally:
        session.close()


@pytest.mark.parametrize(
    ("parameters", "host", "is_encrypted"),
    [
        ("", "localhost", True),
        ("sslMode=disable", "localhost", False),
        ("sslMode=REQUIRED", "127.0.0.1", True),
        ("sslMode=VERIFY_CA&serverSslCert={}/ours.pem", "127.0.0.1", True),
        ("sslMode=verify-full&serverSslCert={}/ours.pem", "localhost", True),
        ("ssl_ca={}/ours.pem", "localhost", True),
        ("trustStore={}/java.p12&trustStorePassword=staple", "localhost", True),
        ("serverSslCert={}/server.pem", "localhost", True),
    ],
)
def test_mariadb_is_reached_as_the_url_says(
    tls_mariadb: tuple[int, str], files: Path, parameters: str, host: str, is_encrypted: bool
) -> None:
    assert bool(cipher(tls_mariadb[0], parameters.format(files), host)) is is_encrypted


@pytest.mark.parametrize(
    ("parameters", "host"),
    [
        ("sslMode=VERIFY_CA&serverSslCert={}/stranger.pem", "localhost"),
        ("sslMode=VERIFY_IDENTITY&ssl_ca={}/stranger.pem", "localhost"),
        ("ssl_ca={}/stranger.pem", "localhost"),
        ("sslMode=VERIFY_CA", "localhost"),
        ("useSsl=true", "localhost"),
        ("sslMode=VERIFY_IDENTITY&ssl_ca={}/ours.pem", "127.0.0.1"),
        ("serverSslCert={}/ours.pem", "127.0.0.1"),
    ],
)
def test_mariadb_with_a_certificate_that_proves_nothing_is_refused(
    tls_mariadb: tuple[int, str], files: Path, parameters: str, host: str
) -> None:
    with pytest.raises(DatabasePermissionError, match=r"cannot be trusted: .*(certificate|IP address)"):
        cipher(tls_mariadb[0], parameters.format(files), host)


@pytest.mark.parametrize("parameters", ["sslMode=REQUIRED", "sslMode=VERIFY_CA", "ssl_ca={}/ours.pem", "useSsl=true"])
def test_nothing_falls_back_to_plain_text(tls_mariadb: tuple[int, str], files: Path, parameters: str) -> None:
    with without_tls(tls_mariadb[1]) as man_in_the_middle:
        assert cipher(man_in_the_middle.port, "sslMode=PREFERRED") == ""
        man_in_the_middle.received.clear()
        with pytest.raises(DatabasePermissionError):
            cipher(man_in_the_middle.port, parameters.format(files))
        assert bytes(man_in_the_middle.received) in (b"", COM_QUIT), "no login"


@pytest.mark.parametrize("message", range(1, 7))
def test_a_session_of_mariadb_that_breaks_at_any_time_can_be_made_again(
    tls_mariadb: tuple[int, str], message: int
) -> None:
    with tls_server(None, at_once, tls_mariadb[1], cut_at(message)) as server:
        url = f"jdbc:mariadb://127.0.0.1:{server.port}/?sslMode=disable"
        session = MySqlSession(DatabaseSettings(url, "app", PASSWORD), {})
        with pytest.raises(DatabaseUnavailableError):
            session.query("SELECT @@time_zone")
        if message == 6:
            with pytest.raises(DatabaseUnavailableError):
                session.query("SELECT @@time_zone")
            session.close()  # as its users do after an error of a statement
        assert session.query("SELECT @@time_zone") == [("+00:00",)]
        session.close()


def cut_at(message: int) -> Callable[[bytes], None]:
    """Ends the connection that sends this message, counted over all connections."""
    numbers = itertools.count(1)

    def cut(_: bytes) -> None:
        if next(numbers) == message:
            raise ConnectionResetError

    return cut


@pytest.fixture(scope="module")
def postgres_servers(postgres: str) -> Iterator[dict[str, TlsServer]]:
    """A PostgreSQL behind each certificate."""
    folder = parse_qs(urlsplit(postgres).query)["host"][0]
    certificates = {
        "right": OURS.issue_cert("localhost"),
        "stranger": STRANGER.issue_cert("localhost"),
        "name": OURS.issue_cert("other.example"),
        "none": None,
    }
    with ExitStack() as running:
        yield {
            name: running.enter_context(tls_server(one, after_a_request, f"{folder}/.s.PGSQL.5432"))
            for name, one in certificates.items()
        }


def by_adbc(uri: str) -> None:
    session = PostgresSession(uri, {})
    try:
        assert session.query("SELECT 1") == [(1,)]
    finally:
        session.close()


def by_psycopg(uri: str) -> None:
    stream = ReplicationStream(uri, {}, "keys", slot="slot", publication="all", most=1, interval_s=1)
    stream._connected().close()
    stream.close()


ALL: Final = {"right", "stranger", "name", "none"}


@pytest.mark.parametrize("reach", [by_adbc, by_psycopg])
@pytest.mark.parametrize(
    ("parameters", "reached"),
    [
        ("sslmode=disable", ALL),
        ("sslmode=allow", ALL),
        ("sslmode=prefer", ALL),
        ("application_name=test", ALL),
        ("sslmode=require", {"right", "stranger", "name"}),
        ("sslmode=verify-ca&sslrootcert={}/ours.pem", {"right", "name"}),
        ("sslmode=verify-full&sslrootcert={}/ours.pem", {"right"}),
        ("ssl=true&sslrootcert={}/ours.pem", {"right"}),
    ],
)
def test_postgresql_is_reached_as_sslmode_says(
    postgres_servers: dict[str, TlsServer],
    files: Path,
    parameters: str,
    reached: set[str],
    reach: Callable[[str], None],
) -> None:
    for name, server in postgres_servers.items():
        url = f"jdbc:postgresql://localhost:{server.port}/postgres?{parameters.format(files)}"
        server.received.clear()
        uri = libpq_uri(url, "postgres", PASSWORD)
        if name in reached:
            reach(uri)
        else:
            with pytest.raises(DatabasePermissionError):
                reach(uri)
            assert b"postgres" not in server.received


# ADBC logs in to read the server's types (1 to 6), and again (8) for the session: its settings, BEGIN, SELECT.
@pytest.mark.parametrize("message", [1, 2, 4, 6, 8, 9, 11, 12, 14, 15, 17])
@pytest.mark.parametrize("certificate", [None, OURS.issue_cert("localhost")], ids=["plain", "tls"])
def test_a_session_of_postgresql_that_breaks_at_any_time_can_be_made_again(
    postgres: str, certificate: trustme.LeafCert | None, message: int
) -> None:
    folder = parse_qs(urlsplit(postgres).query)["host"][0]
    with tls_server(certificate, after_a_request, f"{folder}/.s.PGSQL.5432", cut_at(message)) as server:
        mode = "disable" if certificate is None else "require"
        uri = libpq_uri(f"postgresql://localhost:{server.port}/postgres?sslmode={mode}", "postgres", PASSWORD)
        session = PostgresSession(uri, {"work_mem": "5MB"})
        with pytest.raises(DatabaseUnavailableError) as broken:
            session.query("SELECT current_setting('work_mem')")
        assert PASSWORD not in str(broken.value)
        session.rollback()
        assert session.query("SELECT current_setting('work_mem')") == [("5MB",)]
        session.close()


def test_a_server_of_postgresql_that_restarts_after_a_login_is_reached_again() -> None:
    numbers = itertools.count(1)
    with postgres_server() as postgres:
        folder = parse_qs(urlsplit(postgres).query)["host"][0]

        def restart(_: bytes) -> None:
            if next(numbers) == 2:
                restart_postgres(folder)

        with tls_server(None, after_a_request, f"{folder}/.s.PGSQL.5432", restart) as server:
            uri = libpq_uri(f"postgresql://localhost:{server.port}/postgres?sslmode=disable", "postgres", None)
            with pytest.raises(DatabaseUnavailableError):
                by_adbc(uri)
            by_adbc(uri)


def test_a_login_whose_first_statement_takes_too_long_is_repeated(postgres: str) -> None:
    with pytest.raises(DatabaseUnavailableError, match="statement timeout"):
        by_adbc(f"{postgres}&options=-c%20statement_timeout%3D1ms")


@pytest.mark.parametrize(
    "parameters", ["sslMode=verify-full", "sslfactory=NonValidating", "sslmode=verify", "tls=true"]
)
def test_postgresql_ignores_no_parameter_about_trust(postgres_servers: dict[str, TlsServer], parameters: str) -> None:
    with pytest.raises(DatabaseError):
        by_adbc(libpq_uri(f"postgresql://localhost:{postgres_servers['right'].port}/postgres?{parameters}", None, None))
