"""The directory of DirectorySource: which files are in it, which of them a task reads, and where finished ones go.

Each file belongs to one task, by a checksum of its path. So a rebalance moves no file to another task. After a change
of `tasks.max` a file may belong to another task, which continues at its committed source offset.
"""

from __future__ import annotations

import glob
import logging
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import count, takewhile
from typing import Any, Final

from connectx.connectors.files.errors import SourceFileUnreadableError
from connectx.connectors.files.readers import COMPRESSIONS
from connectx.errors.files import SourceDirectoryMissingError
from connectx.model.source_offsets import SourceOffset

log = logging.getLogger(__name__)

MARK: Final = ".finished"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was when the directory was listed."""

    path: str
    size: int
    modified_ns: int

    def is_that_of(self, offset: SourceOffset) -> bool:
        """Whether it has the size and time of change of a source offset. Older offsets have no time."""
        size, modified_ns = offset.get("size", self.size), offset.get("modified_ns", self.modified_ns)
        return bool((size, modified_ns) == (self.size, self.modified_ns))


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory or glob.

    Attributes:
        path, name_filter, is_recursive: as configured.
        cleanup, cleanup_dir, error_dir: as configured.
        task, tasks: which share of the files is read.
        shown: name of the task, for log lines.
    """

    path: str
    name_filter: str
    is_recursive: bool
    cleanup: str
    cleanup_dir: str | None
    error_dir: str | None
    task: int
    tasks: int
    shown: str

    @classmethod
    def of(cls, values: Mapping[str, Any], task: int, tasks: int, shown: str) -> Folder:
        """The directory of a configuration, and the share of one of its tasks."""
        return cls(
            os.path.abspath(values["path"]),
            values["path.glob.filter"],
            values["recursive.file.lookup"],
            values["cleanup"],
            values["cleanup.dir"],
            values["error.dir"],
            task,
            tasks,
            shown,
        )

    def files(self) -> list[FoundFile]:
        """The task's files as they are in the directory now, the oldest first.

        Raises:
            SourceDirectoryMissingError: there is no such directory.
        """
        found = []
        for path in self._listed():
            try:
                status = os.stat(path)
            except OSError:
                continue  # removed since it was listed
            found.append(FoundFile(path, status.st_size, status.st_mtime_ns))
        return sorted(found, key=lambda file: (file.modified_ns, file.path))

    def originals(self) -> list[str]:
        """The task's files where they were before they were cleaned up."""
        found = set(self._listed())
        if self.cleanup == "mark":
            pattern = self.path if glob.has_magic(self.path) else os.path.join(self.path, "**", "*")
            found |= {name.removesuffix(MARK) for name in glob.glob(f"{pattern}{MARK}", recursive=True)}
        for folder in () if glob.has_magic(self.path) else self._folders():
            moved = glob.glob(os.path.join(folder, "**", "*"), recursive=True)
            found |= {os.path.join(self.path, os.path.relpath(name, folder)) for name in moved if os.path.isfile(name)}
        return sorted(filter(self._is_own, found))

    def place_of(self, path: str, offset: SourceOffset) -> str | None:
        """Where the file of a source offset is by now; None if it is gone."""
        targets = [f"{path}{MARK}", *(self._target(path, folder) for folder in self._folders())]
        places = [path, *(place for target in targets for place in _taken(target))]
        return next((place for place in places if self._is_at(place, offset)), None)

    def exists(self, path: str) -> bool:
        """Whether a file is still where it was found."""
        return os.path.exists(path)

    def file(self, path: str) -> FoundFile:
        """A file as it is now.

        Raises:
            SourceFileUnreadableError: it cannot be read.
        """
        try:
            status = os.stat(path)
        except OSError as error:
            raise SourceFileUnreadableError(path, error.strerror or str(error), setting="path") from error
        return FoundFile(path, status.st_size, status.st_mtime_ns)

    def finish(self, path: str, offset: SourceOffset) -> None:
        """Clean up a file whose rows are all committed, unless another one has taken its name."""
        if self.cleanup == "none" or not self._is_at(path, offset):
            return
        if self.cleanup == "move":
            self._move(path, self._target(path, str(self.cleanup_dir)))
        elif self.cleanup == "mark":
            self._move(path, f"{path}{MARK}")
        else:
            try:
                os.remove(path)
            except OSError as error:
                log.warning("%s cannot delete the finished file %s: %s", self.shown, path, error)

    def reject(self, path: str, offset: SourceOffset) -> None:
        """Move a file away that cannot be parsed, unless another one has taken its name."""
        if self._is_at(path, offset):
            self._move(path, self._target(path, str(self.error_dir)))

    def _is_at(self, path: str, offset: SourceOffset) -> bool:
        return os.path.exists(path) and self.file(path).is_that_of(offset)

    def _listed(self) -> list[str]:
        path = self.path
        if glob.has_magic(path):
            found = glob.glob(path, recursive=True)
        elif not os.path.isdir(path):
            raise SourceDirectoryMissingError(path)
        elif self.is_recursive:
            found = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        else:
            found = [entry.path for entry in os.scandir(path)]
        return [
            one for one in found if self._is_wanted(os.path.basename(one)) and self._is_own(one) and os.path.isfile(one)
        ]

    def _is_wanted(self, name: str) -> bool:
        return fnmatch(name, self.name_filter) and not name.startswith((".", "_")) and not name.endswith(MARK)

    def _is_own(self, path: str) -> bool:
        return zlib.crc32(os.fsencode(path)) % self.tasks == self.task

    def _folders(self) -> list[str]:
        """Directories that files are moved to."""
        cleanup = self.cleanup_dir if self.cleanup == "move" else None
        return [os.path.abspath(folder) for folder in (cleanup, self.error_dir) if folder]

    def _target(self, path: str, folder: str) -> str:
        """Where a file is moved to: below a folder as it was below the directory."""
        name = os.path.basename(path) if glob.has_magic(self.path) else os.path.relpath(path, self.path)
        return os.path.join(os.path.abspath(folder), name)

    def _move(self, path: str, target: str) -> None:
        """Move a file, and never overwrite one: if the name is taken, it gets a number."""
        reserved = None
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            reserved = _reserve(target)
            shutil.move(path, reserved)
        except OSError as error:
            if reserved is not None and os.path.exists(path):
                with suppress(OSError):
                    os.remove(reserved)
            log.warning("%s cannot move the file %s to %s: %s", self.shown, path, target, error)
            return
        if reserved != target:
            log.info("%s has moved the file %s to %s, because %s exists", self.shown, path, reserved, target)


def _names(target: str) -> Iterator[str]:
    """A name, and then the same with a number before the suffix."""
    yield target
    stem, suffix = os.path.splitext(target)
    if suffix in COMPRESSIONS:
        stem, inner = os.path.splitext(stem)
        suffix = f"{inner}{suffix}"
    yield from (f"{stem}.{number}{suffix}" for number in count(1))


def _reserve(target: str) -> str:
    """Create an empty file with the first free name, so that no other task or connector chooses it, too."""
    names = _names(target)
    while True:
        name = next(names)
        with suppress(FileExistsError):
            os.close(os.open(name, os.O_CREAT | os.O_EXCL))
            return name


def _taken(target: str) -> Iterator[str]:
    """The files that were moved to a name or to numbers of it."""
    return takewhile(os.path.exists, _names(target))
