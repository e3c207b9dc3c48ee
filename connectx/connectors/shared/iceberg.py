"""Catalogs of Apache Iceberg: their settings, their errors, and the mark of merged files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

from connectx.connectors.shared.storage import options, storage_errors

CATALOG: Final = "iceberg.catalog."
"""Prefix of settings that go to the catalog."""

MERGED: Final = "connectx.merged"
"""Property of a snapshot that only replaces files; the library has no operation for it."""


def catalog_problems(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """A catalog needs a type or an address, by setting."""
    if options(config, CATALOG):
        return {}
    return {
        "iceberg.catalog": [f"the settings of the catalog are missing, such as {CATALOG}type and {CATALOG}uri"],
    }


def catalog_errors(name: str) -> AbstractContextManager[None]:
    """Turn errors of the library, the catalog and the storage of a table into those of connectx; see storage_errors."""
    from pyiceberg import exceptions
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    return storage_errors(
        name,
        CATALOG + "*",
        access=CATALOG + "*",
        later=(exceptions.RESTError, exceptions.WaitingForLockException, SQLAlchemyError),
        final=(
            ValueError,
            ArgumentError,
            exceptions.NoSuchPropertyException,
            exceptions.NotInstalledError,
            exceptions.UnauthorizedError,
            exceptions.ForbiddenError,
            exceptions.BadRequestError,
            exceptions.OAuthError,
            exceptions.NoSuchNamespaceError,
            exceptions.ValidationError,
        ),
    )
