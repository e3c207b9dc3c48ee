"""Errors of replication slots."""

from __future__ import annotations

from connectx.errors.databases import DatabaseError


class ReplicationSlotMissingError(DatabaseError):
    """The replication slot that a source has read from does not exist any more, or has lost its WAL."""


class ReplicationSlotMismatchError(DatabaseError):
    """A replication slot and the source offset do not match: changes between them cannot be read."""
