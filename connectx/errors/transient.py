"""Which errors pass by themselves, so that the same call may succeed later.

An error of connectx names it (`retriable`). Of errors of libraries those of the network and of the system's resources
pass. Any other error of a library is about the data, the settings or a defect, and would come again each time.
"""

from __future__ import annotations

import errno
from typing import Final

from connectx.errors.base import ConnectxError

LASTING: Final = frozenset(
    (
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
    )
)
"""Errors of the system that stay until someone changes a setting or a disk."""


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later."""
    if isinstance(error, ConnectxError):
        return error.retriable
    return isinstance(error, OSError) and error.errno not in LASTING
