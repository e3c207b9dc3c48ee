"""Places outside Kafka that connectors read and write: files, tables, slots, web services."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from connectx.views import Shown

_LOGIN: Final = re.compile(r"//[^/@]*@")


@dataclass(frozen=True, slots=True, order=True, repr=False)
class Place(Shown):
    """One place; two with the same text are the same place.

    Attributes:
        text: as findings name it, without secrets: `table flights of db:5432/shop`.
        is_local: each machine has its own, as with files.
        is_exclusive: serves only one reader, as a replication slot.
    """

    text: str
    is_local: bool = False
    is_exclusive: bool = False


def files(path: str | None) -> Iterator[Place]:
    """The file or folder of a path; none without one, and none for a placeholder."""
    if path and "${" not in path:
        yield Place(f"file {posixpath.normpath(path)}", is_local=True)


def bare_url(url: str) -> str:
    """A URL without login and parameters."""
    return _LOGIN.sub("//", url).partition("?")[0]


def database_of(url: str | None) -> str:
    """`host:port/name` of a database's URL, without login and parameters; empty without one."""
    bare = bare_url((url or "").removeprefix("jdbc:"))
    return bare.partition("//")[2].rstrip("/") or bare


def tables(names: str | None, database: str) -> Iterator[Place]:
    """The tables of a list, separated by commas; none without a database."""
    for name in (names or "").split(","):
        if database and name.strip():
            yield Place(f"table {name.strip()} of {database}")


def query(sql: str | None, database: str) -> Iterator[Place]:
    """What a query reads; none without a database."""
    if database and sql:
        yield Place(f"query {' '.join(sql.split())} of {database}")
