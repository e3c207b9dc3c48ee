"""Where a bulk slice of a file ends: where the worker's own reading would end it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectx.connectors.files import following
from connectx.connectors.files.errors import SourceFileShrunkError
from connectx.connectors.files.following import SourceFile

ENDS = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"bc", b"x" * 40]), max_size=30).map(b"".join)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines") / "in.txt"


@settings(max_examples=300)
@given(content=ENDS, at=st.integers(0, 20), max_bytes=st.integers(1, 120), near=st.integers(1, 50))
def test_the_end_is_found_from_behind_as_from_the_front(
    path: Path, content: bytes, at: int, max_bytes: int, near: int
) -> None:
    path.write_bytes(content)
    position = min(at, len(content))
    file = SourceFile(str(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "_TAIL_BYTES", near)
        found = file.end_of_lines(position, max_bytes)
    assert found == position + len(file.read_lines(position, max_bytes))


def test_a_file_that_shrank_is_refused(path: Path) -> None:
    path.write_bytes(b"a\n")
    with pytest.raises(SourceFileShrunkError):
        SourceFile(str(path)).end_of_lines(9, 100)
