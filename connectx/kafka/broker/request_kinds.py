"""Recognises the kinds of requests in the bytes of a client's connection. Pure."""

from __future__ import annotations

import struct
from collections.abc import Collection

from kafka.protocol.api_key import ApiKey

_START = struct.Struct(">ih")
_KEY_BYTES = 2


def request_kinds(names: Collection[str] | None) -> frozenset[int]:
    """API keys of request kinds that are named as in Kafka's protocol (`EndTxn`, `Produce`); all for None.

    Raises:
        ValueError: an unknown kind, or none.
    """
    if names is None:
        return frozenset(ApiKey)
    unknown = sorted(set(names) - set(ApiKey.__members__))
    if unknown or not names or isinstance(names, str):
        given = names if isinstance(names, str) else ", ".join(unknown) or "none"
        raise ValueError(f"requests must be names of Kafka's requests, such as ['EndTxn', 'Produce'], not {given}")
    return frozenset(ApiKey[name] for name in names)


def kind_name(api_key: int) -> str:
    """Name of a request kind, the number of one that is not known."""
    return ApiKey(api_key).name if api_key in list(ApiKey) else str(api_key)


class RequestStarts:
    """Follows the requests on one connection: int32 size, int16 API key, and the rest (Kafka protocol)."""

    def __init__(self) -> None:
        self._start = bytearray()
        self._left_bytes = 0

    @property
    def between(self) -> bool:
        """Whether the last request is complete."""
        return not self._start and self._left_bytes == 0

    def read(self, data: memoryview) -> list[tuple[int, int]]:
        """Take in the next bytes; returns the position and API key of each request that begins in them.

        A request whose API key comes with later bytes is returned with those, at position 0.
        """
        found: list[tuple[int, int]] = []
        position = 0
        while position < len(data):
            if self._left_bytes:
                skipped = min(self._left_bytes, len(data) - position)
                self._left_bytes -= skipped
                position += skipped
                continue
            begin = position
            position = min(begin + _START.size - len(self._start), len(data))
            self._start += data[begin:position]
            if len(self._start) == _START.size:
                size_bytes, api_key = _START.unpack(self._start)
                self._start.clear()
                self._left_bytes = max(0, size_bytes - _KEY_BYTES)
                found.append((begin, api_key))
        return found
