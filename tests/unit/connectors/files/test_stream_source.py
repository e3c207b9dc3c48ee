"""FileStreamSource takes at most `batch.size` lines a poll, and reads about as much as these have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.files.stream_source import FileStreamSource, first_lines


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_the_first_lines_keep_their_ends(end: bytes, count: int) -> None:
    lines = [b"a" + end, end, b"ccc" + end]
    assert first_lines(b"".join(lines), count) == b"".join(lines[:count])


@pytest.mark.parametrize("sizes", [[10] * 500, [200_000, 5, 5] * 4, [3] * 200 + [90_000] * 5 + [3] * 200])
def test_polls_give_every_line_once_however_long_lines_are(tmp_path: Path, sizes: list[int]) -> None:
    file = tmp_path / "in.txt"
    lines = [str(number).ljust(size, "x") for number, size in enumerate(sizes)]
    file.write_text("".join(line + "\n" for line in lines))
    task = FileStreamSource.Task()
    context: Any = None
    task.start({"file": str(file), "topic": "t", "batch.size": "7"}, context)
    seen: list[str] = []
    offset = None
    while (found := task.poll(None, offset)) is not None:  # type: ignore[arg-type]
        assert isinstance(found.rows, pa.Table)
        polled = found.rows["value"].to_pylist()
        assert len(polled) <= 7
        seen += polled
        offset = found.offset
    assert seen == lines
