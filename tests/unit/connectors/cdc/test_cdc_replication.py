"""What the texts of refused replication connections mean."""

from __future__ import annotations

import pytest

from connectx.connectors.cdc.config import CONNECTION_KEYS
from connectx.connectors.cdc.replication import refused_connection
from connectx.errors.base import ConnectxError
from connectx.errors.databases import DatabaseError, DatabasePermissionError, DatabaseUnavailableError

URI = "postgresql:///shop?host=db&port=5432&user=u&password=geheim"


@pytest.mark.parametrize(
    ("reason", "error", "message", "next_step"),
    [
        (
            "permission denied to start WAL sender\nDETAIL:  Only roles with the REPLICATION attribute may start one.",
            DatabasePermissionError,
            "refuses a replication connection: permission denied to start WAL sender",
            "the role of database.user the attribute REPLICATION, or set slot.read.mode=sql, and restart the task.",
        ),
        (
            "must be superuser or replication role to start walsender",
            DatabasePermissionError,
            "must be superuser or replication role",
            "the attribute REPLICATION",
        ),
        (
            'number of requested standby connections exceeds "max_wal_senders" (currently 10)',
            DatabaseUnavailableError,
            "has no walsender left",
            "Raise max_wal_senders, end other replication connections, or set slot.read.mode=sql; the task tries",
        ),
        (
            "unsupported startup parameter: replication",
            DatabaseError,
            "takes no replication connection: unsupported startup parameter",
            "name the server itself in database.hostname and database.port",
        ),
        (
            'no pg_hba.conf entry for replication connection from host "10.0.0.1", user "u"',
            DatabaseError,
            "takes no replication connection",
            "pg_hba.conf forbids it, allow it",
        ),
        ('password authentication failed for user "u"', DatabasePermissionError, "refuses the login", CONNECTION_KEYS),
        ("the database system is starting up", DatabaseUnavailableError, "takes no connection", "tries again"),
    ],
)
def test_a_refused_replication_connection_names_cause_and_setting(
    reason: str, error: type[ConnectxError], message: str, next_step: str
) -> None:
    text = f'connection failed: connection to server at "10.0.0.2", port 5432 failed: FATAL:  {reason}'
    found = refused_connection(text, URI, CONNECTION_KEYS)
    assert type(found) is error
    assert message in found.message
    assert next_step in found.next_step
    assert "geheim" not in str(found)
