"""Errors of export and import."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class BackupFileError(ConnectxError):
    """A file of exported connectors cannot be read, used or written."""


class ImportRefusedError(ConnectxError):
    """Connectors of a file were not imported, and nothing was changed."""


class ImportIncompleteError(ConnectxError):
    """Some connectors of a file could not be restored. `report` has what was done, connector by connector."""

    def __init__(self, message: str, report: object) -> None:
        super().__init__(
            message, next_step="Fix the cause and import the same file again: it continues where it stopped."
        )
        self.report = report
