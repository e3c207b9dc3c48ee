"""Errors of lakehouse tables."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class LakeError(ConnectxError):
    """A table in files cannot be read or written until something is changed."""

    code = "lake"


class LakeStorageError(LakeError):
    """The storage of a table in files refuses access: no such directory, no permission, no space."""

    code = "lake_storage"

    def __init__(self, place: str, cause: str, setting: str) -> None:
        super().__init__(
            f"{place} cannot be used: {cause}.",
            next_step=f"Correct `{setting}`, its permissions or its free space, and restart the task.",
        )


class LakeAccessError(LakeError):
    """An object store refuses the credentials of a table in files, or the request: they must change."""

    code = "lake_access"

    def __init__(self, place: str, cause: str, setting: str) -> None:
        super().__init__(
            f"{place} cannot be used: the storage refused the request ({cause}).",
            next_step=f"Correct the credentials, the region or the endpoint in `{setting}`, and restart the task.",
        )


class LakeNotExclusiveError(LakeError):
    """An object store does not create objects exclusively, so it cannot fence tasks."""

    code = "lake_not_exclusive"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The storage {path} does not create objects exclusively, so two tasks could write the same rows.",
            next_step="Use a storage with conditional writes (If-None-Match) in `path`, and restart the task.",
        )


class LakeUnavailableError(ConnectxError):
    """The storage or the catalog of a table in files cannot be reached now, or other writers commit all the time."""

    code = "lake_unavailable"
    retriable = True


class TableRewrittenError(LakeError):
    """A table in files has lost the version, snapshot or files that a source would read next."""

    code = "table_rewritten"

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(
            f"{name} cannot be read further: {cause}.",
            next_step="Stop the connector and reset its offsets to read the table as it is now. Keep versions longer.",
        )


class TableChangedError(LakeError):
    """A table in files has a commit that deletes or updates rows, which a source of added rows cannot read."""

    code = "table_changed"

    def __init__(self, name: str, where: str, operation: str) -> None:
        super().__init__(
            f"{name} has rows deleted or updated in {where} ({operation}), and this source reads only added rows.",
            next_step="Set skip.change.commits=true to leave out all rows of such commits, and restart the task.",
        )


class CompactionError(ConnectxError):
    """A connector has no files that can be merged."""

    code = "compaction"
