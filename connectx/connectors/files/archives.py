"""Files in archives (zip, and tar with any compression that Python reads), in the order of the archive."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Final

_TAR: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
ARCHIVE_ERRORS: Final = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, RuntimeError)
"""What a damaged or encrypted archive raises, beside OSError and EOFError."""


def is_archive(path: str) -> bool:
    """Whether the name of a file is that of an archive."""
    return path.lower().endswith((".zip", *_TAR))


def members_of(path: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each file; names with a part that begins with a dot or an underscore are left out.

    Raises:
        OSError, EOFError, ARCHIVE_ERRORS: the archive is damaged or encrypted.
    """
    if path.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir() and _is_visible(entry.filename):
                    with archive.open(entry) as file:
                        yield entry.filename, file
        return
    with tarfile.open(path, "r:*") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() and _is_visible(member.name) else None
            if content is not None:
                with content:
                    yield member.name, content


def _is_visible(name: str) -> bool:
    parts = (part for part in name.split("/") if part not in ("", "."))
    return not any(part.startswith((".", "_")) for part in parts)
