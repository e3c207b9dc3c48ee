"""Chooses the database for a connection.url."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from connectx.connectors.jdbc.database import Database, DatabaseSettings
from connectx.errors.base import MissingExtraError
from connectx.errors.plugins import ConfigError
from connectx.extras import require
from connectx.model.configdef import Validator

if TYPE_CHECKING:
    from connectx.connectors.jdbc.target import Target, TargetSettings

_URL: Final = re.compile(r"(?:jdbc:)?(sqlite|postgres(?:ql)?|duckdb|mysql|mariadb):")


def dialect_of(url: str) -> str:
    """`sqlite`, `postgresql`, `duckdb` or `mysql`.

    Raises:
        ConfigError: another URL.
    """
    found = _URL.match(url.strip())
    if found is None:
        shown = ":".join(url.strip().split(":")[:2]).partition("/")[0] or "an empty text"
        raise ConfigError(
            [
                f"Invalid value {shown} for configuration connection.url: it begins with none of sqlite:, "
                "postgresql:, duckdb:, mysql: and mariadb:, with or without jdbc: before it. For any other database "
                "with a JDBC driver use SparkSource or SparkSink with format=jdbc"
            ]
        )
    return {"postgres": "postgresql", "mariadb": "mysql"}.get(found[1], found[1])


def require_driver(url: str, feature: str) -> None:
    """Raise MissingExtraError unless the driver for a URL is installed, and ConfigError for an unknown URL."""
    dialect = dialect_of(url)
    if dialect == "postgresql":
        require(f"{feature} for PostgreSQL", "postgres", "adbc_driver_postgresql")
    if dialect == "duckdb":
        require(f"{feature} for DuckDB", "duckdb", "duckdb")
    if dialect == "mysql":
        require(f"{feature} for MySQL", "mysql", "pymysql")


def known_url(feature: str) -> Validator:
    """A check of connection.url: a database that has a dialect, and whose driver is installed."""

    def check(url: Any) -> str | None:
        try:
            require_driver(url or "", feature)
        except ConfigError as error:
            return error.problems[0]
        except MissingExtraError as error:
            return str(error)
        return None

    return Validator(check, "sqlite:..., postgresql:..., duckdb:..., mysql:... or mariadb:...", whole_message=True)


def open_database(settings: DatabaseSettings) -> Database:
    """The dialect that connection.url names, for reading; connects when first used.

    Raises:
        ConfigError: an unknown URL.
        MissingExtraError: its driver is not installed.
    """
    require_driver(settings.uri, "A database")
    match dialect_of(settings.uri):
        case "sqlite":
            from connectx.connectors.jdbc.sqlite.database import SqliteDatabase

            return SqliteDatabase(settings)
        case "duckdb":
            from connectx.connectors.jdbc.duckdb.database import DuckDatabase

            return DuckDatabase(settings)
        case "mysql":
            from connectx.connectors.jdbc.mysql.database import MySqlDatabase

            return MySqlDatabase(settings)
        case _:  # postgres
            from connectx.connectors.jdbc.postgres.database import PostgresDatabase

            return PostgresDatabase(settings)


def open_target(settings: TargetSettings) -> Target:
    """The dialect that connection.url names, for writing; connects when first used.

    Raises:
        ConfigError: an unknown URL.
        MissingExtraError: its driver is not installed.
    """
    uri = settings.database.uri
    require_driver(uri, "A database")
    match dialect_of(uri):
        case "sqlite":
            from connectx.connectors.jdbc.sqlite.target import SqliteTarget

            return SqliteTarget(settings)
        case "duckdb":
            from connectx.connectors.jdbc.duckdb.target import DuckTarget

            return DuckTarget(settings)
        case "mysql":
            from connectx.connectors.jdbc.mysql.target import MySqlTarget

            return MySqlTarget(settings)
        case _:  # postgres
            from connectx.connectors.jdbc.postgres.target import PostgresTarget

            return PostgresTarget(settings)
