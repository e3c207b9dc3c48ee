"""Errors of tables in files, and of their storage."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class LakeError(ConnectxError):
    """A table in files cannot be read or written until something is changed."""


class LakeStorageError(LakeError):
    """The storage of a table in files refuses access: no such directory, no permission, no space."""

    def __init__(self, place: str, cause: str, setting: str) -> None:
        super().__init__(
            f"{place} cannot be used: {cause}.",
            next_step=f"Correct `{setting}`, its permissions or its free space, and restart the task.",
        )


class LakeAccessError(LakeError):
    """An object store refuses the credentials of a table in files, or the request: they must change."""

    def __init__(self, place: str, cause: str, setting: str) -> None:
        super().__init__(
            f"{place} cannot be used: the storage refused the request ({cause}).",
            next_step=f"Correct the credentials, the region or the endpoint in `{setting}`, and restart the task.",
        )


class LakeNotExclusiveError(LakeError):
    """An object store does not create objects exclusively, so it cannot fence tasks."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The storage {path} does not create objects exclusively, so two tasks could write the same rows.",
            next_step="Use a storage with conditional writes (If-None-Match) in `path`, and restart the task.",
        )


class LakeUnavailableError(ConnectxError):
    """The storage or the catalog of a table in files cannot be reached now, or other writers commit all the time."""

    retriable = True
