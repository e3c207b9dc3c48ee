"""Errors of databases: of their sessions, tables, rows and replication slots."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class DatabaseError(ConnectxError):
    """A database refuses a sink's request, and would refuse it again."""

    code = "database"


class DatabaseUnavailableError(ConnectxError):
    """A database cannot be reached now, restarts, or cannot serve the request at the moment."""

    code = "database_unavailable"
    retriable = True


class RowRefusedError(DatabaseError):
    """A database refuses at least one row of a batch. Never leaves a connector."""

    code = "row_refused"


class LockTimeoutError(DatabaseUnavailableError):
    """A row is locked by another session for longer than lock.timeout.ms."""

    code = "lock_timeout"


class TableMissingError(DatabaseError):
    """A table that a sink writes to does not exist."""

    code = "table_missing"


class TableMismatchError(DatabaseError):
    """A table's columns do not match the records."""

    code = "table_mismatch"


class DatabasePermissionError(DatabaseError):
    """The database refuses the login, or lacks a privilege for it."""

    code = "database_permission"


class ReplicationMessageError(DatabaseError):
    """A message of PostgreSQL's logical replication, or a value in it, cannot be read."""

    code = "replication_message"
