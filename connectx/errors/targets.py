"""Errors of what sinks write to: web services, databases and lakehouse tables."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class RecordRejectedError(ConnectxError):
    """The target refuses one record for good, with errors.tolerance=none."""

    code = "record_rejected"

    def __init__(self, partition: str, offset: int, target: str, cause: str) -> None:
        super().__init__(
            f"{target} refuses the record at offset {offset} of {partition}: {cause}",
            next_step="Correct the target or the data and restart the task, or skip such records with "
            "errors.tolerance=all.",
        )


class HttpError(ConnectxError):
    """A web service does not accept the requests of a sink, and will not later."""

    code = "http"


class HttpLoginError(HttpError):
    """A token service gives a sink no token."""

    code = "http_login"

    def __init__(self, place: str, cause: str) -> None:
        super().__init__(
            f"The token service {place} {cause}.",
            next_step="Correct oauth2.token.url, oauth2.client.id, oauth2.client.secret, oauth2.client.scope or "
            "oauth2.client.auth.mode, and restart the task.",
        )


class HttpUnavailableError(ConnectxError):
    """A web service cannot be reached now, or asks for the request to be sent again after `retry_after_ms`."""

    code = "http_unavailable"
    retriable = True

    def __init__(self, message: str, *, retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class RequestRefusedError(HttpError):
    """A web service refuses at least one record of a request. Never leaves a connector."""

    code = "request_refused"


class DatabaseError(ConnectxError):
    """A database does not accept what a sink asks for, and will not later."""

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
    """A table's columns do not fit the records."""

    code = "table_mismatch"


class DatabasePermissionError(DatabaseError):
    """The database refuses the login, or lacks a privilege for it."""

    code = "database_permission"


class ReplicationMessageError(DatabaseError):
    """A message of PostgreSQL's logical replication, or a value in it, cannot be read."""

    code = "replication_message"


class ReplicationSlotMissingError(DatabaseError):
    """The replication slot that a source has read from does not exist any more, or has lost its WAL."""

    code = "replication_slot_missing"


class ReplicationSlotMismatchError(DatabaseError):
    """A replication slot and the source offset do not fit: changes between them cannot be read."""

    code = "replication_slot_mismatch"


class LakeError(ConnectxError):
    """A table in files cannot be read or written, and will not be later without a change."""

    code = "lake"


class LakeStorageError(LakeError):
    """The storage of a table in files refuses access: no such directory, no permission, no space."""

    code = "lake_storage"

    def __init__(self, place: str, cause: str, setting: str) -> None:
        super().__init__(
            f"{place} cannot be used: {cause}.",
            next_step=f"Correct `{setting}`, its permissions or its free space, and restart the task.",
        )


class LakeUnavailableError(ConnectxError):
    """The storage or the catalog of a table in files cannot be reached now, or others commit all the time."""

    code = "lake_unavailable"
    retriable = True


class TableRewrittenError(LakeError):
    """A table in files has lost the version, snapshot or files that a source would read next."""

    code = "table_rewritten"

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(
            f"{name} cannot be read on: {cause}.",
            next_step="Stop the connector and reset its offsets to read the table as it is now. Keep versions longer.",
        )


class TableChangedError(LakeError):
    """A table in files has a commit that deletes or updates rows, which a source of added rows cannot follow."""

    code = "table_changed"

    def __init__(self, name: str, where: str, operation: str) -> None:
        super().__init__(
            f"{name} has rows deleted or updated in {where} ({operation}), and this source reads added rows.",
            next_step="Set skip.change.commits=true to leave out all rows of such commits, and restart the task.",
        )


class CompactionError(ConnectxError):
    """A connector has no files that can be merged."""

    code = "compaction"
