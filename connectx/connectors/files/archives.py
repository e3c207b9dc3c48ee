"""Files in archives (zip, and tar with any compression that Python reads), in the order of the archive.

Contents are streams. Where Python would hold more at a time than a small file should cost, reads are divided.
"""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final, cast

from typing_extensions import override

from connectx.connectors.files.limits import BoundedReads

_TAR: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_WHOLE: Final = (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
"""Compressions of which zipfile unpacks all that it reads of a file at a time, a megabyte for each 50 bytes."""
_SMALL_BYTES: Final = 4096
ARCHIVE_ERRORS: Final = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, RuntimeError)
"""What a damaged or encrypted archive raises, beside OSError, EOFError and ValueError."""


def is_archive(path: str) -> bool:
    """Whether the name of a file is that of an archive."""
    return path.lower().endswith((".zip", *_TAR))


def members_of(path: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each file; names with a part that begins with a dot or an underscore are left out.

    Raises:
        OSError, EOFError, ValueError, ARCHIVE_ERRORS: the archive is damaged or encrypted, or has a header that is too
            large.
    """
    if path.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir() and _is_visible(entry.filename):
                    with archive.open(entry) as file:
                        is_whole = entry.compress_type in _WHOLE
                        yield entry.filename, io.BufferedReader(_SmallReads(file)) if is_whole else file
        return
    with _Tar.open(path, "r:*") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() and _is_visible(member.name) else None
            if content is not None:
                with content:
                    yield member.name, content


class _Tar(tarfile.TarFile):
    """Refuse headers that name a length which only a compressed archive holds at no cost."""

    @classmethod
    @override
    def taropen(cls, name: Any, mode: Any = "r", fileobj: Any = None, **settings: Any) -> Any:
        return super().taropen(name, mode, None if fileobj is None else cast(Any, BoundedReads(fileobj)), **settings)


class _SmallReads(io.RawIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        self._file = cast(io.BufferedIOBase, file)

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        found = self._file.read1(min(len(buffer), _SMALL_BYTES))
        buffer[: len(found)] = found
        return len(found)


def _is_visible(name: str) -> bool:
    parts = (part for part in name.split("/") if part not in ("", "."))
    return not any(part.startswith((".", "_")) for part in parts)
