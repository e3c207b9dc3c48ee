"""Byte ranges of text files that executors read: where they begin and end, and the lines that begin in one.

A line ends with a line feed here. A range that begins or ends within a line leaves the rest of it to the range before.
"""

from __future__ import annotations

from typing import Final

PART_BYTES: Final = 8 * 1024 * 1024
"""What one Spark task reads of a file."""


def ranges_of(start: int, end: int, least: int = 1) -> list[tuple[int, int]]:
    """Divide the bytes between two positions into ranges of at most `PART_BYTES`, and into at least `least` ranges."""
    parts = max(least, -(-(end - start) // PART_BYTES))
    length = -(-(end - start) // parts)
    return [(start + part * length, min(start + (part + 1) * length, end)) for part in range(parts)]


def lines_between(path: str, first: int, stop: int, start: int, end: int) -> bytes:
    """Lines of a file that begin in [first, stop). At `start` and `end`, which enclose the range, lines begin or end.

    Raises:
        EOFError: the file ends before `end`.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        if file.seek(0, 2) < end:
            raise EOFError(f"{path} ends before byte {end}")
        if first > start:
            file.seek(first - 1)
            file.readline()
            first = file.tell()
        file.seek(first)
        block = file.read(max(0, stop - first))
        if block and not block.endswith(b"\n"):
            block += file.readline(end - first - len(block))
    return block
