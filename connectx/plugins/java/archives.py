"""Unpacks archives of plugins that others made: zip and tar.gz, regular files and folders alone, within limits.

A name that leads out of the folder, a link, a device, a second file of one name, or too much content refuses the whole
archive.
"""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO, Final

from connectx.model.decoding import WrongShape
from connectx.plugins.java.contents import guarded

MOST_FILES: Final = 20_000
MOST_BYTES: Final = 2 << 30
_PART_BYTES: Final = 1 << 20
_TARS: Final = (".tar.gz", ".tgz", ".tar")


def is_tar(path: Path) -> bool:
    """Whether a file is a tar archive, by its name."""
    return path.name.lower().endswith(_TARS)


def unpack(archive: Path, target: Path) -> None:
    """Unpack an archive into a folder.

    Raises:
        WrongShape: it is damaged, or refused; what was unpacked before is still there.
        OSError: a file cannot be written.
    """
    left = MOST_BYTES
    for count, (name, stream) in enumerate(_tar(archive) if is_tar(archive) else _zip(archive), 1):
        if count > MOST_FILES:
            raise WrongShape(f"it has more than {MOST_FILES:,} files")
        path = target / _inside(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                while True:
                    with guarded():
                        part = stream.read(_PART_BYTES)
                    if not part:
                        break
                    left -= len(part)
                    if left < 0:
                        raise WrongShape(f"it unpacks to more than {MOST_BYTES >> 30} GB")
                    file.write(part)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise WrongShape(f"it has two files of the name {name!r}") from error


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.parts:
        raise WrongShape(f"the name {name!r} leads out of its folder")
    return path


def _zip(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with ExitStack() as stack:
        with guarded():
            opened = stack.enter_context(zipfile.ZipFile(archive))
        for info in opened.infolist():
            kind = info.external_attr >> 28
            if info.is_dir():
                continue
            if kind not in (0, 0o10):  # 0o10: a regular file of Unix
                raise WrongShape(f"{info.filename!r} is a link or a device")
            with guarded():
                stream = opened.open(info)
            with stream:
                yield info.filename, stream


def _tar(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with ExitStack() as stack:
        with guarded():
            opened = stack.enter_context(tarfile.open(archive, "r:*"))
        while True:
            with guarded():
                member = opened.next()
            if member is None:
                return
            if member.isdir():
                continue
            if not member.isreg():
                raise WrongShape(f"{member.name!r} is a link or a device")
            with guarded():
                stream = opened.extractfile(member)
            assert stream is not None, "a regular file"
            with stream:
                yield os.fsdecode(os.fsencode(member.name)), stream
