"""Chooses the database for a connection.url."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from connectx.connectors.jdbc.database import Database, DatabaseSettings
from connectx.errors.base import MissingExtraError
from connectx.errors.plugins import ConfigError
from connectx.extras import require
from connectx.model.configdef import ConfigDef, Validator

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


def check_url(url: str) -> None:
    """Raise ConfigError for parameters of a URL that cannot be used, without connecting.

    Those of PostgreSQL are libpq's, which refuses unknown ones itself.
    """
    if dialect_of(url) == "mysql":
        from connectx.connectors.jdbc.mysql.session import place_of

        place_of(DatabaseSettings(url))


def connection_config(feature: str, group: str) -> ConfigDef:
    """Keys of a connection. The URL must be that of a database that has a dialect, and whose driver is installed."""

    def check(url: Any) -> str | None:
        try:
            require_driver(url or "", feature)
            check_url(url or "")
        except ConfigError as error:
            return error.problems[0]
        except MissingExtraError as error:
            return str(error)
        return None

    urls = "sqlite:..., postgresql:..., duckdb:..., mysql:... or mariadb:..."
    return (
        ConfigDef()
        .group(group)
        .define(
            "connection.url",
            str,
            doc="The database: postgresql://host:port/database, mysql://host:port/database, mariadb:..., "
            "sqlite:/path/to/file or duckdb:/path/to/file. JDBC URLs of these, with jdbc: before, work as well.",
            importance="HIGH",
            validator=Validator(check, urls, whole_message=True),
        )
        .define("connection.user", str, None, doc="User, if not in the URL.", importance="HIGH")
        .define("connection.password", str, None, doc="Password, if not in the URL.", importance="HIGH", secret=True)
    )


def open_database(settings: DatabaseSettings) -> Database:
    """The dialect that connection.url names, for reading; connects when first used.

    Raises:
        ConfigError: an unknown URL.
        MissingExtraError: its driver is not installed.
    """
    require_driver(settings.uri, "A database")
    return _classes(settings.uri)[0](settings)


def open_target(settings: TargetSettings) -> Target:
    """The dialect that connection.url names, for writing; connects when first used. Raises as `open_database`."""
    require_driver(settings.database.uri, "A database")
    return target_class(settings.database.uri)(settings)


def target_class(url: str) -> type[Target]:
    """The dialect that writes to a URL. Raises ConfigError for an unknown one."""
    return _classes(url)[1]


def _classes(url: str) -> tuple[type[Database], type[Target]]:
    match dialect_of(url):
        case "sqlite":
            from connectx.connectors.jdbc.sqlite.database import SqliteDatabase
            from connectx.connectors.jdbc.sqlite.target import SqliteTarget

            return SqliteDatabase, SqliteTarget
        case "duckdb":
            from connectx.connectors.jdbc.duckdb.database import DuckDatabase
            from connectx.connectors.jdbc.duckdb.target import DuckTarget

            return DuckDatabase, DuckTarget
        case "mysql":
            from connectx.connectors.jdbc.mysql.database import MySqlDatabase
            from connectx.connectors.jdbc.mysql.target import MySqlTarget

            return MySqlDatabase, MySqlTarget
        case _:  # postgresql
            from connectx.connectors.jdbc.postgres.database import PostgresDatabase
            from connectx.connectors.jdbc.postgres.target import PostgresTarget

            return PostgresDatabase, PostgresTarget
