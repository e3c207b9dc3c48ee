"""What is in a jar, or in a folder of classes, within limits: others made it.

Any error of a jar becomes WrongShape with a reason. Nothing is unpacked onto the disk.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from connectx.model.decoding import WrongShape, read_within, reason_of

MOST_ENTRIES: Final = 500_000
MOST_ENTRY_BYTES: Final = 16 << 20
"""Of one class file or manifest; the JVM's own limits allow less."""
MOST_JAR_BYTES: Final = 4 << 30
"""What is decompressed of one jar, at most."""


class Contents(Protocol):
    """Entries by their names, with slashes."""

    path: Path
    names: list[str]

    def read(self, name: str) -> bytes:
        """The bytes of an entry. Raises WrongShape if it cannot be read, or is too large."""


class JarContents:
    """Entries of a jar."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self._read_bytes = 0
        self.names = archive.namelist()
        if len(self.names) > MOST_ENTRIES:
            raise WrongShape(f"it has more than {MOST_ENTRIES:,} entries")

    def read(self, name: str) -> bytes:
        """The bytes of an entry."""
        with guarded(), self._archive.open(name) as stream:
            data = read_within(stream, MOST_ENTRY_BYTES)
        self._read_bytes += len(data)
        if len(data) > MOST_ENTRY_BYTES:
            raise WrongShape(f"it decompresses to more than {MOST_ENTRY_BYTES >> 20} MB")
        if self._read_bytes > MOST_JAR_BYTES:
            raise WrongShape(f"its jar decompresses to more than {MOST_JAR_BYTES >> 30} GB")
        return data


class FolderContents:
    """Files of a folder of classes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = [
            os.path.relpath(os.path.join(folder, name), path).replace(os.sep, "/")
            for folder, _, files in os.walk(path)
            for name in files
        ]

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        with guarded():
            require_file(self.path / name)
        with guarded(), (self.path / name).open("rb") as stream:
            data = read_within(stream, MOST_ENTRY_BYTES)
        if len(data) > MOST_ENTRY_BYTES:
            raise WrongShape(f"it is larger than {MOST_ENTRY_BYTES >> 20} MB")
        return data


@contextmanager
def opened(path: Path) -> Iterator[Contents]:
    """Open a jar or a folder.

    Raises:
        WrongShape: it cannot be read.
    """
    if path.is_dir():
        yield FolderContents(path)
        return
    with guarded():
        require_file(path)
        archive = zipfile.ZipFile(path)
    with archive:
        yield JarContents(path, archive)


def require_file(path: Path) -> None:
    """Raise WrongShape for a pipe or a device, which could block or never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise WrongShape("it is no regular file")


@contextmanager
def guarded() -> Iterator[None]:
    """Turn any error of damaged or hostile bytes into WrongShape."""
    try:
        yield
    except WrongShape:
        raise
    except OSError as error:
        raise WrongShape(f"it cannot be read ({error.strerror or error})") from error
    except zipfile.BadZipFile as error:
        raise WrongShape(f"it is no valid zip file ({error})") from error
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or a method of compression that Java lacks, too
        raise WrongShape(f"it is a zip file that Java cannot read ({error})") from error
    except Exception as error:  # zlib.error, struct.error, EOFError, ...: there is no common base
        raise WrongShape(reason_of(error)) from error
