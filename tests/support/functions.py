"""Functions for FunctionSink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from connectx.model.ids import TopicPartition

FOLDER: list[Path] = []
CALLS: list[tuple[dict[TopicPartition, tuple[int, int]], str]] = []


def save(frame: Any, ranges: dict[TopicPartition, tuple[int, int]], token: str) -> None:
    """Write files of JSON into the folder that a test has named."""
    CALLS.append((ranges, token))
    frame.write.mode("append").json(str(FOLDER[-1]))


def refuse(frame: Any, ranges: dict[TopicPartition, tuple[int, int]], token: str) -> None:
    """Fail with a message of two lines."""
    raise ValueError("no space\nat line 7")


NUMBER = 7
