"""Databases of JdbcSource on real servers: PostgreSQL and MariaDB."""

from __future__ import annotations

import itertools
from typing import Any

from tests.support.jdbc import Source, source_config

_numbers = itertools.count(1)


class Shop:
    """A separate schema in the server."""

    def __init__(self, uri: str) -> None:
        from adbc_driver_postgresql import dbapi

        self.uri, self.schema = uri, f"shop{next(_numbers)}"
        self._connection = dbapi.connect(uri, autocommit=True)
        self.sql(f"CREATE SCHEMA {self.schema}")
        self.sql(f"SET search_path = {self.schema}")

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def source(self, mode: str, **more: Any) -> Source:
        return Source(source_config(self.uri, mode, schema_pattern=self.schema, connection_backoff_ms=1, **more))

    def close(self) -> None:
        self._connection.close()


class MariaShop(Shop):
    """A separate database in MariaDB."""

    def __init__(self, url: str) -> None:
        import pymysql

        self.schema = f"shop{next(_numbers)}"
        self.uri = url.replace("/shop?", f"/{self.schema}?")
        socket = url.partition("unix_socket=")[2]
        self._connection = pymysql.connect(unix_socket=socket, user="root", autocommit=True)
        self.sql(f"CREATE DATABASE {self.schema} CHARACTER SET utf8mb4")
        self.sql(f"USE {self.schema}")
        self.sql("SET time_zone = '+00:00'")

    def source(self, mode: str, **more: Any) -> Source:
        return Source(source_config(self.uri, mode, connection_backoff_ms=1, **more))
