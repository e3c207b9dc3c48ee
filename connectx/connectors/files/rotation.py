"""Reads complete lines of a file that is rotated while it is followed: by renaming, or by copying and truncating.

Rotated files have an order: that of their last modifications. A source offset names the newest one that was read to its
end, so the current file is the oldest one after it, or the file itself. Its inode and the first and last
bytes that were read are checked before each block. A file that does not fit is an error, never a guess.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import IO, Any, Final

import pyarrow as pa

from connectx.connectors.files.errors import SourceFileShrunkError, SourceFileUnreadableError, SourceRotationError
from connectx.connectors.files.following import Lines, SourceFile, complete_lines, opened
from connectx.connectors.files.limits import unpacked
from connectx.errors.files import SourceFileMissingError
from connectx.model.configdef import ConfigDef
from connectx.model.validators import between

_PRINT_BYTES: Final = 1024
ROTATION: Final = "Rotation"
_COMPARED_BYTES: Final = 64 * 1024
_COMPRESSED: Final = (".gz", ".bz2", ".zst", ".lz4")
_PAUSE_MS: Final = 50
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Place:
    """A position in one of the files; the form of a source offset.

    Attributes:
        position: bytes of the file that were read.
        inode: of the file; 0 is unknown.
        fingerprint: of the first and of the last bytes that were read.
        rotated_ns: modification of the newest rotated file that was read to its end; 0: none.
        left: inode, size and fingerprint of that file, until the first line of the next one is read.
    """

    position: int = 0
    inode: int = 0
    fingerprint: str = ""
    rotated_ns: int = 0
    left: str = ""

    @classmethod
    def of(cls, offset: Mapping[str, Any] | None) -> Place:
        """Parse a source offset. One without an inode is Kafka Connect's: a position in the file itself."""
        if offset is None:
            return cls()
        rotated_ns = int(offset.get("rotated_ns", 0 if "inode" in offset else _UNKNOWN))
        inode, texts = int(offset.get("inode", 0)), (str(offset.get(name, "")) for name in ("fingerprint", "left"))
        fingerprint, left = texts
        return cls(int(offset["position"]), inode, fingerprint, rotated_ns, left)

    def offset(self) -> dict[str, Any]:
        """The source offset."""
        left = {"left": self.left} if self.left else {}
        return {
            "position": self.position,
            "inode": self.inode,
            "fingerprint": self.fingerprint,
            "rotated_ns": self.rotated_ns,
            **left,
        }


@dataclass(slots=True)
class _File:
    """One file, opened when it is read; of a compressed one `content` is what it holds."""

    path: str
    inode: int
    modified_ns: int
    content: IO[bytes] | None = None

    @property
    def size(self) -> int:
        """Bytes, decompressed."""
        assert self.content is not None, "a file is opened before it is read"
        return self.content.seek(0, os.SEEK_END)

    def read(self, start: int, end: int) -> bytes:
        """Bytes between two positions."""
        assert self.content is not None, "a file is opened before it is read"
        self.content.seek(start)
        return self.content.read(max(0, end - start)) or b""

    def fingerprint(self, position: int) -> str:
        """Of the first and of the last bytes before a position."""
        head = self.read(0, min(position, _PRINT_BYTES))
        tail = self.read(max(0, position - _PRINT_BYTES), position)
        return "".join(blake2b(part, digest_size=8).hexdigest() for part in (head, tail)) if position else ""

    def holds(self, place: Place) -> bool:
        """Whether it has the bytes before the position, as far as the fingerprint shows."""
        return self.size >= place.position and place.fingerprint in ("", self.fingerprint(place.position))

    def begins_what_was_read(self, place: Place) -> bool:
        """Whether it is shorter than what was read, and begins like it."""
        size, half = self.size, len(place.fingerprint) // 2
        enough = min(place.position, _PRINT_BYTES) <= size < place.position
        return enough and self.fingerprint(size)[:half] == place.fingerprint[:half]

    def is_copy_of(self, other: _File) -> bool:
        """Whether it begins as another does."""
        end = min(self.size, _COMPARED_BYTES)
        return self.size <= other.size and self.read(0, end) == other.read(0, end)


class _RenamedError(Exception):
    """Files are being renamed: the next poll finds them."""


def with_rotation(config: ConfigDef) -> ConfigDef:
    """The keys of a connector that follows a file, with those of rotation."""
    return config.define(
        "rotated.files",
        str,
        "",
        group=ROTATION,
        doc="Glob of the files that `file` is rotated to, such as in.log.*; relative to the directory of `file`. They "
        "are read before `file`, the oldest first. Left out: a file that is truncated fails the task.",
    ).define(
        "rotated.wait.ms",
        int,
        5_000,
        group=ROTATION,
        importance="LOW",
        validator=between(0, 3_600_000),
        doc="How long the newest rotated file must be unchanged before reading continues in the next file. A writer "
        "must have opened the new file by then.",
    )


def followed(file: SourceFile, values: Mapping[str, Any]) -> SourceFile | RotatedFile:
    """The file of a task, with those that it was rotated to if the settings name them."""
    pattern = values["rotated.files"]
    return RotatedFile(file, pattern, values["rotated.wait.ms"]) if pattern else file


class RotatedFile:
    """One file and those that it was rotated to.

    Args:
        file: the file that is written.
        pattern: glob of rotated files; a relative one is within the directory of the file.
        wait_ms: how long the newest rotated file must be unchanged before it is left for the next file.
        clock_ms: a clock that only goes forward.
    """

    def __init__(
        self,
        file: SourceFile,
        pattern: str,
        wait_ms: int,
        clock_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
    ) -> None:
        self._file = file
        self._pattern = os.path.join(os.path.dirname(file.path), pattern)
        self._wait_ms = wait_ms
        self._clock_ms = clock_ms
        self._quiet: tuple[tuple[int, int], float] = ((0, 0), 0.0)  # inode and size, and since when
        self._unpacked: tuple[tuple[str, int], IO[bytes]] | None = None
        self._in_rotated = False
        self.waits = ""

    def next_lines(self, offset: Mapping[str, Any] | None, max_bytes: int) -> Lines | None:
        """The next complete lines after a source offset, a step to the next file, or None when there is nothing now.

        Raises:
            SourceRotationError: the current file cannot be identified.
            SourceFileShrunkError: an offset of Kafka Connect is after the end of the file.
            SourceFileUnreadableError: a file cannot be read.
        """
        return self._read(Place.of(offset), max_bytes, is_final=False)

    def lines_between(
        self, start: Mapping[str, Any] | None, end: Mapping[str, Any] | None, max_bytes: int
    ) -> Iterator[Lines]:
        """What is between two source offsets (None: the start of the oldest file, the end of the file)."""
        place, last = Place.of(start), None if end is None else Place.of(end)
        if place.rotated_ns == _UNKNOWN and last is not None:
            place = replace(place, rotated_ns=last.rotated_ns)
        while True:
            most = max_bytes
            if last is not None and place.rotated_ns >= last.rotated_ns:
                most = min(max_bytes, last.position - place.position)
                if most <= 0:
                    return
            lines = self._read(place, most, is_final=True)
            if lines is None:
                return
            yield lines
            place = Place.of(lines.offset)

    def wait(self, sleep: Callable[[int], bool]) -> None:
        """Return when there may be more lines, `sleep(ms)` returned True, or after a while."""
        if self._in_rotated:
            sleep(_PAUSE_MS)
        else:
            self._file.wait(sleep)

    def close(self) -> None:
        """Remove the content of a compressed file."""
        if self._unpacked is not None:
            self._unpacked[1].close()
            self._unpacked = None

    def _read(self, place: Place, max_bytes: int, *, is_final: bool) -> Lines | None:
        self.waits = ""
        with ExitStack() as stack:
            current = self._current(stack)  # first: a file that is renamed now is found twice, and not missed
            later = self._later(place)
            if later is None:
                return None
            if place.rotated_ns == _UNKNOWN:
                place = replace(place, rotated_ns=max((one.modified_ns for one in later), default=0))
                later = []
            try:
                file = self._located(place, current, later, stack)
            except _RenamedError:
                return None
            self._in_rotated = file is not None and file is not current
            if file is None:
                return None
            following = None if file is current else later[1] if len(later) > 1 else current
            if following is not None and file.size < place.position:  # a copy of less than what was read
                return self._open_next(file, following)
            data = complete_lines(_io(file), place.position, file.size, max_bytes, self._file.ends)
            if not file.holds(place):
                return None  # truncated while it was read
            if data := self._file.cut(data):
                return self._lines(file, place, data)
            if file is current:
                return None
            return self._at_end(file, place, current, following, is_final=is_final)

    def _lines(self, file: _File, place: Place, data: bytes) -> Lines:
        end = place.position + len(data)
        after = Place(end, file.inode, file.fingerprint(end), place.rotated_ns)
        return Lines(data, file.path, place.position, after.offset())

    def _at_end(
        self, file: _File, place: Place, current: _File | None, following: _File | None, *, is_final: bool
    ) -> Lines | None:
        """A rotated file has no more complete lines: continue to the next one when it is sure that none will come."""
        if following is None:
            self.waits = SourceFileMissingError(self._file.path).message
            return None
        if following is current:
            if not (is_final or self._is_quiet(file)):
                return None
            if place.position and following.holds(place):
                self.waits = f"{following.path} begins with all of {file.path}: it is not truncated yet."
                return None
        if rest := file.read(place.position, file.size):  # a line without an end
            return self._lines(file, place, rest)
        return self._open_next(file, following)

    def _open_next(self, file: _File, following: _File) -> Lines:
        size = file.size
        left = f"{file.inode}:{size}:{file.fingerprint(size)}"
        return Lines(b"", file.path, size, Place(0, following.inode, "", file.modified_ns, left).offset())

    def _is_quiet(self, file: _File) -> bool:
        state, now_ms = (file.inode, file.size), self._clock_ms()
        if self._quiet[0] != state:
            self._quiet = (state, now_ms)
        return now_ms - self._quiet[1] >= self._wait_ms

    def _located(self, place: Place, current: _File | None, later: list[_File], stack: ExitStack) -> _File | None:
        """The file that is being read; None: it does not exist yet."""
        if not place.inode and not place.position:
            return self._opened(later[0], stack) if later else current
        in_place = current is not None and current.inode == place.inode
        if current is not None and in_place and place.position and current.holds(place):
            stranger = next((one for one in later if not self._opened(one, stack).is_copy_of(current)), None)
            if stranger is not None:
                raise SourceRotationError(current.path, f"{stranger.path} changed after it had been read to its end")
            return current
        if later:
            oldest = self._opened(later[0], stack)
            if self._fits(oldest, place, in_place=in_place) or (in_place and oldest.begins_what_was_read(place)):
                return oldest
            raise SourceRotationError(
                self._file.path, f"{oldest.path} does not begin with the {place.position} bytes that were read"
            )
        if current is None:
            self.waits = SourceFileMissingError(self._file.path).message
            return None
        if not place.inode and not current.holds(place):
            raise SourceFileShrunkError(current.path, position=place.position, size=current.size)
        if (in_place and not place.position) or (place.position and current.holds(place)):  # or moved here by a copy
            return current
        raise SourceRotationError(
            current.path, f"no file of {self._pattern} begins with the {place.position} bytes that were read"
        )

    def _fits(self, oldest: _File, place: Place, *, in_place: bool) -> bool:
        """Whether the oldest rotated file can be the one that is being read."""
        if place.position:
            return oldest.holds(place)
        if in_place:
            inode, size, fingerprint = place.left.split(":") if place.left else ("", "0", "")
            is_left = size != "0" and oldest.holds(Place(int(size), 0, fingerprint))
            return str(oldest.inode) != inode and not is_left
        return oldest.inode == place.inode or oldest.path.endswith(_COMPRESSED)

    def _current(self, stack: ExitStack) -> _File | None:
        try:
            content = stack.enter_context(opened(self._file.path))
        except SourceFileMissingError:
            self._file.seen_bytes = -1
            return None
        status = os.fstat(content.fileno())
        self._file.seen_bytes = status.st_size
        return _File(self._file.path, status.st_ino, status.st_mtime_ns, content)

    def _later(self, place: Place) -> list[_File] | None:
        """Rotated files that were not read to their ends, the oldest first; None while files are being renamed."""
        listed = self._listed()
        if listed is None or listed != self._listed():
            return None
        later = [_File(path, inode, modified) for modified, path, inode in listed if modified > place.rotated_ns]
        for one, other in pairwise(later):
            if one.modified_ns == other.modified_ns:
                raise SourceRotationError(
                    self._file.path, f"{one.path} and {other.path} were modified at the same time"
                )
        return later

    def _listed(self) -> list[tuple[int, str, int]] | None:
        """Modification, path and inode of all rotated files, the oldest first."""
        found = set(glob.glob(self._pattern)) - {self._file.path}
        try:
            stats = {path: os.stat(path) for path in found}
        except FileNotFoundError:
            return None
        return sorted(
            (status.st_mtime_ns, path, status.st_ino)
            for path, status in stats.items()
            if not (path.endswith(_COMPRESSED) and os.path.splitext(path)[0] in found)  # is being compressed
        )

    def _opened(self, file: _File, stack: ExitStack) -> _File:
        """A rotated file, open. Raises _RenamedError if another one has its name by now."""
        try:
            content = stack.enter_context(opened(file.path))
        except SourceFileMissingError:
            raise _RenamedError from None
        if os.fstat(content.fileno()).st_ino != file.inode:
            raise _RenamedError
        file.content = self._decompressed(file) if file.path.endswith(_COMPRESSED) else content
        return file

    def _decompressed(self, file: _File) -> IO[bytes]:
        """The content of a compressed file, in a temporary one that has no name."""
        name = (file.path, file.inode)
        if self._unpacked is None or self._unpacked[0] != name:
            self.close()
            try:
                with pa.input_stream(file.path, compression="detect") as packed:
                    self._unpacked = (name, unpacked(packed))
            except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
                raise SourceFileUnreadableError(file.path, str(error), setting="rotated.files") from error
        return self._unpacked[1]


def _io(file: _File) -> IO[bytes]:
    assert file.content is not None, "a file is opened before it is read"
    return file.content
