"""Limits of what a file may take of memory and disk, however little of it is stored when it is compressed."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, TypeVar

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of one line, value, block or header; and of the rows of one table, but for the last of them."""

_FREE_BYTES: Final = 256 * 1024 * 1024
"""Room that unpacking leaves on the disk of temporary files."""
_COPIED_BYTES: Final = 1024 * 1024

_T = TypeVar("_T")


class Lines:
    """Lines of a text file with their line ends; `read` counts characters."""

    def __init__(self, file: io.TextIOWrapper) -> None:
        self._file = file
        self.read = 0

    def __iter__(self) -> Iterator[str]:
        """Read on. ValueError for a line that is too long."""
        while line := self._file.readline(MOST_BYTES + 1):
            if len(line) > MOST_BYTES:
                raise ValueError(f"a line has more than {MOST_BYTES} characters")
            self.read += len(line)
            yield line


class BoundedReads:
    """A file whose reader takes lengths from what it reads, such as a tar's: no single one may be too large."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_BYTES:
            raise ValueError(f"one of its parts has more than {MOST_BYTES} bytes")
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def chunks(rows: Iterator[_T], most: int, read: Callable[[], int]) -> Iterator[list[_T]]:
    """Divide rows into lists of at most `most`, each of which ends early once it has taken MOST_BYTES.

    Args:
        read: how much of the file has been read.
    """
    chunk: list[_T] = []
    begun = read()
    for row in rows:
        chunk.append(row)
        if len(chunk) >= most or read() - begun >= MOST_BYTES:
            yield chunk
            chunk, begun = [], read()
    if chunk:
        yield chunk


def unpacked(packed: Any) -> IO[bytes]:
    """What a stream holds, in a temporary file without a name.

    Raises:
        ValueError: it leaves less than 256 MiB on the disk of temporary files.
        OSError: the stream is damaged, or there is no space.
    """
    content = tempfile.TemporaryFile()  # noqa: SIM115, the caller closes it
    try:
        while block := packed.read(_COPIED_BYTES):
            if shutil.disk_usage(tempfile.gettempdir()).free < _FREE_BYTES + len(block):
                raise ValueError(f"it would leave less than {_FREE_BYTES} bytes free in {tempfile.gettempdir()}")
            content.write(block)
        content.seek(0)
    except BaseException:
        content.close()
        raise
    return content
