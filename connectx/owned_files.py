"""Files that only their owner can read: recordings, histories, exports and reports quote data of others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def owned_file(path: str | Path) -> Iterator[IO[str]]:
    """Write a file of UTF-8 text whole or not at all. An older one is replaced, whatever its mode.

    What is no regular file, such as a pipe, is written to as it is.

    Raises:
        OSError: it cannot be written.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8") as file:
            yield file
        return
    target = target.resolve()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
