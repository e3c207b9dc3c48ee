"""CSV records with line feeds within quotes (RFC 4180): where records of a block end."""

from __future__ import annotations

from typing import Any, Final

from connectx.connectors.files.errors import SourceFileUnreadableError

_RECORD_BYTES_MAX: Final = 64 * 1024 * 1024


def last_record_end(block: bytes, path: str) -> int:
    """Where the last complete record of a block ends, 0 if there is none. The block begins at a record.

    Raises:
        SourceFileUnreadableError: a record is too long, so a quote is probably not closed.
    """
    ends = _ends(block)
    if not len(ends) and len(block) > _RECORD_BYTES_MAX:
        cause = f"a record has more than {_RECORD_BYTES_MAX:,} bytes: a quote is not closed"
        raise SourceFileUnreadableError(path, cause)
    return int(ends[-1]) if len(ends) else 0


def records_of(block: bytes) -> list[bytes]:
    """The records of a block, without their ends."""
    ends = _ends(block).tolist()
    if not ends or ends[-1] < len(block):
        ends.append(len(block))
    starts = [0, *ends[:-1]]
    return [block[start:end].removesuffix(b"\n").removesuffix(b"\r") for start, end in zip(starts, ends, strict=True)]


def _ends(block: bytes) -> Any:
    """Positions after line feeds outside of quotes; a doubled quote within quotes closes and opens them."""
    import numpy as np

    characters = np.frombuffer(block, np.uint8)
    if b'"' not in block:
        return np.flatnonzero(characters == ord("\n")) + 1
    within = np.cumsum(characters == ord('"'), dtype=np.uint8) & 1
    return np.flatnonzero((characters == ord("\n")) & (within == 0)) + 1
