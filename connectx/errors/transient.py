"""Which errors pass by themselves, so that the same call may succeed later.

An error of connectx names it (`retriable`). Of errors of libraries those of the network, of the system's resources and
of a database's connection or server pass. Any other error of a library is about the data, the settings or a defect, and
would come again each time.
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


DATABASE: Final = frozenset(("OperationalError", "InterfaceError"))
"""Names that Python's database API (PEP 249) gives errors of a connection or a server; SQLAlchemy's are named alike."""


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later."""
    if isinstance(error, ConnectxError):
        return error.retriable
    if isinstance(error, OSError):
        return error.errno not in LASTING
    return any(base.__name__ in DATABASE for base in type(error).__mro__)
