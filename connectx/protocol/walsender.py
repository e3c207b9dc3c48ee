"""Frames of a replication connection: what PostgreSQL's walsender sends, and the status that it is answered with.

Pure. Source: PostgreSQL documentation, "Streaming Replication Protocol".
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import numpy as np

from connectx.protocol.pgoutput import POSTGRES_EPOCH_US, Messages, readable

DATA, KEEPALIVE = b"wk"
"""What a frame begins with."""

HEADER_BYTES: Final = 25
"""Bytes of a DATA frame before its message: kind, LSN of the change, end of the WAL, time."""

_KEEPALIVE: Final = Struct(">BQqB")
_STATUS: Final = Struct(">cQQQqB")


@readable
def keepalive(frame: bytes) -> tuple[int, bool]:
    """LSN up to which the server has sent everything, and whether it asks for a status."""
    _, lsn, _, asks = _KEEPALIVE.unpack(frame)
    return lsn, bool(asks)


def status(lsn: int, now_us: int) -> bytes:
    """A status: everything up to `lsn` is durable. The server answers it with a keepalive.

    Args:
        lsn: what the slot moves to.
        now_us: time, us since 1970.
    """
    return _STATUS.pack(b"r", lsn, lsn, lsn, now_us - POSTGRES_EPOCH_US, 1)


@readable
def messages_of(frames: Sequence[bytes]) -> Messages:
    """The messages in DATA frames."""
    buffer = np.frombuffer(b"".join(frames), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, frames), np.int64, len(frames)))
    begins = np.append(0, ends[:-1])
    places = len(buffer) - HEADER_BYTES + 1
    lsns = np.ndarray((places,), ">i8", buffer, offset=1, strides=(1,))[begins].astype(np.int64)
    return Messages(buffer, begins + HEADER_BYTES, ends, lsns)
