"""Errors of libraries pass by themselves only where the network or the system's resources are the cause."""

from __future__ import annotations

import errno
import sqlite3

import pytest

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
        (sqlite3.OperationalError("table iceberg_tables already exists"), True),
        (sqlite3.IntegrityError("UNIQUE constraint failed"), False),
        (ValueError("no such column"), False),
        (Exception("Schema error: Duplicate field name"), False),
    ],
)
def test_only_errors_of_network_and_resources_pass(error: Exception, passes: bool) -> None:
    assert is_transient(error) is passes
