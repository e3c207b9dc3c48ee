"""Errors of databases: of their sessions, tables, rows and replication slots."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class DatabaseError(ConnectxError):
    """A database refuses a sink's request, and would refuse it again."""


class DatabaseUnavailableError(ConnectxError):
    """A database cannot be reached now, restarts, or cannot serve the request at the moment."""

    retriable = True


class RowRefusedError(DatabaseError):
    """A database refuses at least one row of a batch. Never leaves a connector."""


class LockTimeoutError(DatabaseUnavailableError):
    """A row is locked by another session for longer than lock.timeout.ms."""


class TableMissingError(DatabaseError):
    """A table that a sink writes to does not exist."""


class TableMismatchError(DatabaseError):
    """A table's columns do not match the records."""


class DatabasePermissionError(DatabaseError):
    """The database refuses the login, or lacks a privilege for it."""


class ReplicationMessageError(DatabaseError):
    """A message of PostgreSQL's logical replication, or a value in it, cannot be read."""
