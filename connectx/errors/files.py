"""Errors of the files that sources read and sinks write."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class SourceFileError(ConnectxError):
    """A source file cannot be read further."""


class SourceFileMissingError(SourceFileError):
    """The file of a source does not exist."""

    def __init__(self, path: str, *, setting: str = "file") -> None:
        super().__init__(
            f"The file {path} of the setting `{setting}` does not exist.",
            next_step=f"Create it or correct `{setting}`, then restart the task; its position is kept.",
        )


class SourceDirectoryMissingError(SourceFileError):
    """The directory of a source does not exist."""

    def __init__(self, path: str, *, setting: str = "path") -> None:
        super().__init__(
            f"The directory {path} of the setting `{setting}` does not exist.",
            next_step=f"Create it or correct `{setting}`, then restart the task; its positions are kept.",
        )
