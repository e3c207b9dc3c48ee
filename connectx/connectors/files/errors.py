"""Errors of files that are read or written."""

from __future__ import annotations

from connectx.errors.base import ConnectxError
from connectx.errors.files import SourceFileError


class SourceFileUnreadableError(SourceFileError):
    """The file of a source may not be read, or is not a file."""

    def __init__(self, path: str, cause: str, *, setting: str = "file") -> None:
        super().__init__(
            f"The file {path} of the setting `{setting}` cannot be read ({cause}).",
            next_step="Let the worker's user read it, then restart the task; its position is kept.",
        )


class SourceFileColumnError(SourceFileError):
    """A file has a column that the schema lacks."""

    def __init__(self, path: str, column: str) -> None:
        super().__init__(
            f"The file {path} has the column {column}, which `schema` lacks, and schema.evolution.mode is "
            "failOnNewColumns.",
            next_step="Add the column to `schema` or choose another schema.evolution.mode, and restart the task.",
        )


class SourceFileValueError(SourceFileError):
    """A row of a file has a value that does not fit its column."""

    def __init__(self, path: str, text: str) -> None:
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        super().__init__(
            f"A row of {path} does not fit its columns: {shown}.",
            next_step="Correct the file or `schema`, or name a rescued.data.column, and restart the task.",
        )


class SourceFileShrunkError(SourceFileError):
    """The file is shorter than what was already read: it was truncated or replaced."""

    def __init__(self, path: str, *, position: int, size: int) -> None:
        super().__init__(
            f"The file {path} has {size} bytes, but {position} bytes of it were already read: it was truncated or "
            "replaced.",
            next_step="Restore it, or stop the connector and reset its offsets to read the new file from the start.",
        )


class SourceRotationError(SourceFileError):
    """After a rotation the file that was being read cannot be identified."""

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(
            f"The place to continue after a rotation of {path} cannot be decided: {cause}.",
            next_step="Let rotated.files name all rotated files, restore the missing one and restart the task, or stop "
            "the connector and reset its offsets.",
        )


class MalformedLineError(SourceFileError):
    """A line does not fit the format and schema of a file source."""

    def __init__(self, path: str, *, line_number: int, text: str, cause: str) -> None:
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        super().__init__(
            f"Line {line_number} of {path} {cause}: {shown!r}.",
            next_step="Correct the line or the setting `schema` and restart the task, or set on.malformed=skip.",
        )
        self.line_number = line_number


class SinkFileError(ConnectxError):
    """The file of a file sink cannot be written."""
