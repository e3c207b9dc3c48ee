"""The lock file of an installed plugin: where it came from, and the SHA-256 of each of its files."""

from __future__ import annotations

import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Final

from connectx.model.decoding import Unreadable, WrongShape, decoder
from connectx.values import Value

LOCK_FILE: Final = "connectx-plugin.json"
_FORMAT: Final = 1
_MOST_BYTES: Final = 16 << 20


class Lock(Value):
    """What a lock file holds: `files` are SHA-256 by relative path."""

    source: str
    files: dict[str, str]


def write_lock(folder: Path, source: str) -> Lock:
    """Write the lock file of a plugin's folder as its files are now."""
    lock = Lock(source, {name: _sha256(folder / name) for name in _names(folder)})
    content = {"format": _FORMAT, "source": source, "files": lock.files}
    (folder / LOCK_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return lock


def read_lock(folder: Path) -> Lock | Unreadable | None:
    """The lock file of a folder; None if it has none."""
    try:
        with (folder / LOCK_FILE).open("rb") as stream:
            data = stream.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return Unreadable(error.strerror or str(error))
    return decoded_lock(data)


def change_of(folder: Path) -> str | None:
    """How the files of a folder differ from its lock file, as a clause; None if they do not, or if it has none."""
    lock = read_lock(folder)
    if lock is None:
        return None
    if isinstance(lock, Unreadable):
        return f"its {LOCK_FILE} is unreadable: {lock.reason}"
    there = set(_names(folder))
    for name in sorted(lock.files.keys() | there):
        if name not in there:
            return f"{name} is missing since it was installed"
        if name not in lock.files:
            return f"{name} was added since it was installed"
        try:
            if _sha256(folder / name) != lock.files[name]:
                return f"{name} has changed since it was installed"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None


@decoder
def decoded_lock(data: bytes) -> Lock:
    """What the bytes of a lock file hold."""
    content = json.loads(data)
    if content["format"] != _FORMAT:
        raise WrongShape("it is of another version of connectx")
    return Lock(str(content["source"]), {str(name): str(digest) for name, digest in content["files"].items()})


def _names(folder: Path) -> list[str]:
    found = (
        os.path.relpath(os.path.join(parent, name), folder) for parent, _, names in os.walk(folder) for name in names
    )
    return sorted(name for name in found if name != LOCK_FILE)


def _sha256(path: Path) -> str:
    stat = path.stat()
    return _digest(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


@lru_cache(maxsize=4096)
def _digest(path: Path, *_: int) -> str:
    """Of a file, once for each of its sizes and times: every worker of a process asks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
