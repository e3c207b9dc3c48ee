"""How far the reading of a check is, and when that is shown."""

from __future__ import annotations

from itertools import chain, repeat

import pytest

from connectx.verify.check.check import reading_progress
from connectx.verify.check.rows import Row, Rows, take_prints


def test_a_place_reports_how_far_its_reading_is_and_its_end() -> None:
    calls: list[tuple[str, int, int]] = []
    rows = [Row(b"x")] * 4_001
    for size in (4_100, 3_000, 0):  # with transaction markers; an estimate that was too low; unknown
        take_prints(Rows("topic t", lambda: rows, size), lambda *call: calls.append(call))
    assert [call[1:] for call in calls] == [
        *[(2_000, 4_100), (4_000, 4_100), (4_001, 4_001)],
        *[(2_000, 3_000), (4_000, 4_001), (4_001, 4_001)],
        *[(2_000, 0), (4_000, 0), (4_001, 4_001)],
    ]


def test_reading_is_shown_from_two_seconds_on_and_its_end_only_when_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    times = chain([0.0, 1.0, 2.1, 2.1, 2.2], repeat(9.0))
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    shown: list[tuple[str, int, int]] = []
    with reading_progress(lambda *step: shown.append(step)) as on_read:
        on_read("topic t", 2_000, 9_000)
        on_read("topic t", 4_000, 9_000)
        on_read("topic t", 6_000, 9_000)
        on_read("topic t", 9_000, 9_000)
        on_read("table t", 1, 1)
    assert shown == [("Reading topic t, rows", 4_000, 9_000), ("Reading topic t, rows", 9_000, 9_000)]
