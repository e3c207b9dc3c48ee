"""The cache of downloads and archives of each user, and temporary folders of a process.

The cache is `CONNECTX_CACHE_DIR` or the user's cache folder. An owned folder belongs to one process: it holds a
lock on a file inside, which the system releases when the process dies however it dies; folders whose owner is gone
are removed when the next one is made.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from connectx.errors.machine import DiskFullError, FolderNotOwnedError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def cache_dir() -> Path:
    """The per-user cache folder, made when missing."""
    path = Path(os.environ.get("CONNECTX_CACHE_DIR") or user_cache_path("connectx"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def require_free(path: Path, needed_bytes: int, setting: str) -> None:
    """Raise DiskFullError unless the disk of `path` has `needed_bytes` free; `setting` is what moves the folder."""
    free_bytes = shutil.disk_usage(path).free
    if free_bytes < needed_bytes:
        raise DiskFullError(path, setting, f"{free_bytes >> 20} MB free, {needed_bytes >> 20} MB needed")


def is_disk_full(error: OSError) -> bool:
    """Whether `error` means that no more can be written (disk, quota or file size limit)."""
    return error.errno in DISK_FULL


def reports_disk_full(text: str) -> bool:
    """Whether the output of another program means the same."""
    return any(os.strerror(number) in text for number in DISK_FULL)


class OwnedDir:
    """A temporary folder of this process: `path` exists until `remove()`, or until its owner is
    dead and the next one is made.

    Args:
        kind: what it is for, part of its name.
        parent: where to make it, `connectx-<user id>` in the system's temporary folder (`TMPDIR`) by default.

    Raises:
        FolderNotOwnedError: the parent belongs to another user.
    """

    def __init__(self, kind: str, parent: Path | None = None) -> None:
        base = parent or Path(tempfile.gettempdir()) / f"connectx-{os.getuid()}"
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Its name can be guessed: another user may have made it first, and could then put other files under ours.
        if base.is_symlink() or base.stat().st_uid != os.getuid():
            raise FolderNotOwnedError(base)
        # One lock around "remove what is dead" and "make and own", so that no process sees a folder not owned yet.
        with FileLock(base / ".lock"):
            _remove_dead(base)
            self.path = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=base))
            owner_fd = os.open(self.path / "owner", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(owner_fd, fcntl.LOCK_EX)
        self._removal = weakref.finalize(self, _remove_own, self.path, owner_fd, os.getpid())

    def remove(self) -> None:
        """Remove the folder and all in it; also happens when the interpreter ends. A second call does nothing."""
        self._removal()


def _remove_own(path: Path, owner_fd: int, owner_pid: int) -> None:
    if os.getpid() == owner_pid:  # not in a forked copy of the owner
        shutil.rmtree(path, ignore_errors=True)
        os.close(owner_fd)


def _remove_dead(base: Path) -> None:
    for owner in sorted(base.glob("*-*/owner")):
        try:
            fd = os.open(owner, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(owner.parent, ignore_errors=True)
        finally:
            os.close(fd)
