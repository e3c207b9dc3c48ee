"""Reads complete lines of a growing file between exact byte positions, and waits for more.

It decides where a block of lines ends; it never decides what a line means. A line ends with a line feed, a carriage
return, or both (Kafka Connect: FileStreamSourceTask.extractLine); what follows the last line end stays for later.
Positions are bytes. Kafka Connect counts characters instead, which is the same for ASCII.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from connectx.connectors.files.errors import SourceFileShrunkError, SourceFileUnreadableError
from connectx.errors.files import SourceFileMissingError

_FIRST_WAIT_MS = 10
_LONGEST_WAIT_MS = 50
_IDLE_CALL_MS = 2_000
_TAIL_BYTES = 64 * 1024


Ends = Callable[[bytes], int]
"""Where the last complete line of a block ends, 0 if there is none."""


def last_line_end(block: bytes) -> int:
    """Where the last complete line ends; a carriage return at the very end may be half of a pair."""
    return max(block.rfind(b"\n"), block.rfind(b"\r", 0, len(block) - 1)) + 1


def opened(path: str) -> io.FileIO:
    """A file, opened for reading.

    Raises:
        SourceFileMissingError, SourceFileUnreadableError: see their docstrings.
    """
    try:
        return open(path, "rb", buffering=0)
    except FileNotFoundError:
        raise SourceFileMissingError(path) from None
    except OSError as error:
        cause = "it is a directory" if isinstance(error, IsADirectoryError) else error.strerror or str(error)
        raise SourceFileUnreadableError(path, cause) from error


def complete_lines(file: IO[bytes], position: int, size: int, max_bytes: int, ends: Ends) -> bytes:
    """Complete lines from `position` on, before `size`: about `max_bytes`, more for a longer line.

    Raises:
        SourceFileUnreadableError: the file system fails.
    """
    try:
        file.seek(position)
        block = file.read(max(0, min(max_bytes, size - position))) or b""
        end = ends(block)
        while end == 0 and block and position + len(block) < size:
            more = file.read(min(len(block), size - position - len(block)))
            if not more:
                break  # truncated meanwhile
            block += more
            end = ends(block)
    except OSError as error:
        raise SourceFileUnreadableError(str(file.name), error.strerror or str(error)) from error
    return block[:end]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that were read: their bytes, the file and position where they begin, and the source offset after them.

    Without bytes reading went on to the next file.
    """

    data: bytes
    path: str
    start: int
    offset: Mapping[str, Any]


@dataclass(slots=True)
class SourceFile:
    """One input file. `seen_bytes` is the size at the last look, `wait_ms` how long to wait before the next.

    `ends` returns where the last complete line of a block ends, `cut` how much of a block one poll takes.
    """

    path: str
    seen_bytes: int = -1
    wait_ms: int = _FIRST_WAIT_MS
    ends: Ends = field(default=last_line_end)
    cut: Callable[[bytes], bytes] = field(default=bytes)
    waits: str = ""

    def size_bytes(self, position: int) -> int:
        """Size now.

        Raises:
            SourceFileMissingError, SourceFileUnreadableError: see their docstrings.
            SourceFileShrunkError: the file ends before `position`.
        """
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            self.seen_bytes = -1
            raise SourceFileMissingError(self.path) from None
        except OSError as error:
            raise SourceFileUnreadableError(self.path, error.strerror or str(error)) from error
        if stat.S_ISDIR(status.st_mode):
            raise SourceFileUnreadableError(self.path, "it is a directory")
        self.seen_bytes = status.st_size
        if status.st_size < position:
            raise SourceFileShrunkError(self.path, position=position, size=status.st_size)
        return status.st_size

    def read_lines(self, position: int, max_bytes: int) -> bytes:
        """Complete lines from `position` on: about `max_bytes`, more for a longer line, empty when there are none.

        Raises what `size_bytes` does.
        """
        size = self.size_bytes(position)
        if size == position:
            return b""
        self.wait_ms = _FIRST_WAIT_MS
        with opened(self.path) as file:
            return complete_lines(file, position, size, max_bytes, self.ends)

    def next_lines(self, offset: Mapping[str, Any] | None, max_bytes: int) -> Lines | None:
        """The next complete lines after a source offset, or None. A file that is missing is waited for.

        Raises what `size_bytes` does, but SourceFileMissingError.
        """
        position, self.waits = int(offset["position"]) if offset else 0, ""
        try:
            data = self.cut(self.read_lines(position, max_bytes))
        except SourceFileMissingError as error:
            self.waits = error.message
            return None
        return Lines(data, self.path, position, {"position": position + len(data)}) if data else None

    def lines_between(
        self, start: Mapping[str, Any] | None, end: Mapping[str, Any] | None, max_bytes: int
    ) -> Iterator[Lines]:
        """Complete lines between two source offsets (None: the file's ends)."""
        for first, reached, data in self.blocks(start, end, max_bytes):
            yield Lines(data, self.path, first, {"position": reached})

    def close(self) -> None:
        """Nothing is kept open."""

    def end_of_lines(self, position: int, max_bytes: int) -> int:
        """Byte after the last complete line that ends within `max_bytes` of `position`, as `read_lines` would find it.

        Reads only what is near. A line that is longer makes it later; `position` itself: there is no complete line.
        Raises what `size_bytes` does.
        """
        size = self.size_bytes(position)
        end = min(size, position + max_bytes)
        first = max(position, end - _TAIL_BYTES)
        try:
            with open(self.path, "rb", buffering=0) as file:
                while first > position and not last_line_end(_read(file, first, end)):
                    first = max(position, first - _TAIL_BYTES)
                if found := last_line_end(_read(file, first, end)):
                    return first + found
        except OSError as error:
            raise SourceFileUnreadableError(self.path, error.strerror or str(error)) from error
        return position + len(self.read_lines(position, max_bytes))

    def blocks(
        self, start: Mapping[str, Any] | None, end: Mapping[str, Any] | None, max_bytes: int
    ) -> Iterator[tuple[int, int, bytes]]:
        """Complete lines between two source offsets (None: the file's ends), with their positions."""
        position = int(start["position"]) if start else 0
        last = self.size_bytes(position) if end is None else int(end["position"])
        while position < last and (block := self.read_lines(position, min(max_bytes, last - position))):
            yield position, position + len(block), block
            position += len(block)

    def line_number(self, position: int) -> int:
        """Number of the line that starts at a byte position, from 1. Reads the whole file before it."""
        number, left = 1, position
        with open(self.path, "rb") as file:
            while left and (block := file.read(min(left, 1 << 20))):
                number += block.count(b"\n")
                left -= len(block)
        return number

    def wait(self, sleep: Callable[[int], bool]) -> None:
        """Return when the file changed its size since the last poll, or `sleep(ms)` returned True, or after a while.

        The first look is after 10 ms and later ones come slower, up to 50 ms apart, while nothing happens.
        """
        waited_ms = 0
        while waited_ms < _IDLE_CALL_MS and not sleep(self.wait_ms):
            waited_ms += self.wait_ms
            self.wait_ms = min(_LONGEST_WAIT_MS, self.wait_ms + 1)
            try:
                size = os.stat(self.path).st_size
            except OSError:
                size = -1
            if size != self.seen_bytes:
                return


def _read(file: io.FileIO, first: int, end: int) -> bytes:
    file.seek(first)
    return file.read(end - first) or b""
