"""Where tables in files are: a local directory or a URL, and what an error of the storage means."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from connectx.errors import ConnectxError, LakeError, LakeStorageError, LakeUnavailableError
from connectx.views import masked_text

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_FINAL: Final = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.ENOTDIR,
    errno.EISDIR,
)
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)|\[Errno (\d+)\]")


Errors = tuple[type[Exception], ...]


def url_of(path: str) -> str:
    """A local path as URL; a URL as it is."""
    return path if "://" in path else Path(path).absolute().as_uri()


def check_directory(url: str, setting: str) -> None:
    """Raise LakeStorageError unless a local directory exists and can be written; other storage is not asked."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return
    path = unquote(parts.path)
    if not os.path.isdir(path):
        raise LakeStorageError(f"The directory {path}", "it does not exist, or is not a directory", setting)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise LakeStorageError(f"The directory {path}", "it cannot be written", setting)


def options(config: Mapping[str, str | None], prefix: str) -> dict[str, str]:
    """Settings with this prefix, without it: they go to the library as they are."""
    return {name.removeprefix(prefix): text for name, text in config.items() if name.startswith(prefix) and text}


def store_of(path: str, given: Mapping[str, str]) -> ObjectStore:
    """The files below a path.

    Raises:
        LakeError: no such kind of storage, or a wrong setting of it.
    """
    from obstore.store import LocalStore, from_url

    with storage_errors(f"The storage {path}", "path", final=(Exception,)):
        url = url_of(path)
        if url.startswith("file:"):
            return LocalStore.from_url(url, automatic_cleanup=True, mkdir=True)
        return from_url(url, config=dict(given))  # type: ignore[call-overload,no-any-return]


@contextmanager
def storage_errors(place: str, setting: str, *, later: Errors = (), final: Errors = (ValueError,)) -> Iterator[None]:
    """Turn errors of a library into those of connectx.

    Args:
        place: begins the sentence, for example "The table flights".
        setting: what the reader can correct.
        later: classes of errors besides OSError after which the same call may succeed later.
        final: classes of errors after which it will not.
    """
    try:
        yield
    except ConnectxError:
        raise
    except Exception as error:
        if not isinstance(error, (OSError, *later, *final)):
            raise
        text = masked_text(" ".join(str(error).split())[:500].rstrip("."))
        code = _code(error)
        if code in _FINAL:
            raise LakeStorageError(place, os.strerror(code).lower(), setting) from error
        if isinstance(error, final):
            step = f"Correct `{setting}` or the table, and restart the task."
            raise LakeError(f"{place} cannot be used: {text}.", next_step=step) from error
        raise LakeUnavailableError(f"{place} cannot be reached: {text}.") from error


def _code(error: BaseException) -> int:
    """The system's error number, also of libraries that only name it in their text; 0: none."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    found = _OS_ERROR.search(str(error))
    return int(found[1] or found[2]) if found else 0
