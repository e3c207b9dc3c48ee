"""SimpleDateFormat: what Java 17 prints and parses with its locale en_US, pattern by pattern."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectx.data.transforms.date_format import DateFormat

STAMPS_MS = [1_766_925_296_789, 0, 43_200_000, -1, 1_757_000_000_000]

# (pattern, what Java prints of STAMPS_MS, what it parses of that)
PRINTED = [
    (
        "EEE, d MMM yyyy HH:mm:ss Z",
        ["Sun, 28 Dec 2025 12:34:56 +0000", "Thu, 1 Jan 1970 00:00:00 +0000", "Thu, 1 Jan 1970 12:00:00 +0000",
         "Wed, 31 Dec 1969 23:59:59 +0000", "Thu, 4 Sep 2025 15:33:20 +0000"],
        [1_766_925_296_000, 0, 43_200_000, -1_000, 1_757_000_000_000],
    ),
    (
        "EEEE dd-MMMM-yyyy hh:mm a",
        ["Sunday 28-December-2025 12:34 PM", "Thursday 01-January-1970 12:00 AM", "Thursday 01-January-1970 12:00 PM",
         "Wednesday 31-December-1969 11:59 PM", "Thursday 04-September-2025 03:33 PM"],
        [1_766_925_240_000, 0, 43_200_000, -60_000, 1_756_999_980_000],
    ),
    (
        "yyyyMMMdd",
        ["2025Dec28", "1970Jan01", "1970Jan01", "1969Dec31", "2025Sep04"],
        [1_766_880_000_000, 0, 0, -86_400_000, 1_756_944_000_000],
    ),
    ("KK a", ["00 PM", "00 AM", "00 PM", "11 PM", "03 PM"], [43_200_000, 0, 43_200_000, 82_800_000, 54_000_000]),
    ("kk:mm", ["12:34", "24:00", "12:00", "23:59", "15:33"], [45_240_000, 0, 43_200_000, 86_340_000, 55_980_000]),
    (
        "LLL yy",
        ["Dec 25", "Jan 70", "Jan 70", "Dec 69", "Sep 25"],
        [1_764_547_200_000, 0, 0, -2_678_400_000, 1_756_684_800_000],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "texts", "parsed"), PRINTED)
def test_a_pattern_prints_and_parses_what_java_does(pattern: str, texts: list[str], parsed: list[int]) -> None:
    form = DateFormat(pattern)
    assert form.format(pa.array([*STAMPS_MS, None])).to_pylist() == [*texts, None]
    assert form.parse(pa.array([*texts, None])).to_pylist() == [*parsed, None]


@pytest.mark.parametrize(
    ("pattern", "text", "stamp_ms"),
    [
        ("d MMMM yyyy h:mm a", "5 jan 2026 12:30 am", 1_767_573_000_000),
        ("d MMMM yyyy h:mm a", "5 JANUARY 2026 12:30 PM", 1_767_616_200_000),
        ("EEE d MMM yyyy", "Mon 6 Jan 2026", 1_767_657_600_000),  # it is a Tuesday
        ("d MMM yyyy EEE", "6 Jan 2026 Mon", 1_767_657_600_000),
        ("hh:mm", "13:00", 46_800_000),
        ("KK:mm a", "13:00 PM", 90_000_000),
    ],
)
def test_text_is_parsed_as_leniently_as_by_java(pattern: str, text: str, stamp_ms: int) -> None:
    assert DateFormat(pattern).parse(pa.array([text])).to_pylist() == [stamp_ms]


@pytest.mark.parametrize("pattern", ["ww", "G", "DDD", "YYYY"])
def test_weeks_and_eras_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=f"the letters {pattern} are not supported"):
        DateFormat(pattern)


@pytest.mark.parametrize(
    ("stamp_ms", "text"),
    [
        (-12_219_292_800_000, "Fri 1582-10-15"),
        (-12_219_292_800_001, "Thu 1582-10-04"),
        (-62_135_769_600_000, "Sat 0001-01-01"),
        (-62_135_769_600_001, "Fri 0001-12-31"),
        (253_402_300_800_000, "Sat 10000-01-01"),
        (2**63 - 1, "Sun 292278994-08-17"),
    ],
)
def test_days_before_1582_10_15_are_julian_and_years_may_be_long(stamp_ms: int, text: str) -> None:
    assert DateFormat("EEE yyyy-MM-dd").format(pa.array([stamp_ms])).to_pylist() == [text]
    assert DateFormat("yyyy-MM-dd").format(pa.array([stamp_ms])).to_pylist() == [text[4:]]


def test_a_text_before_1582_10_15_is_a_julian_day() -> None:
    texts = pa.array(["1582-10-15", "1582-10-04", "0001-01-01"])
    assert DateFormat("yyyy-MM-dd").parse(texts).to_pylist() == [
        -12_219_292_800_000,
        -12_219_379_200_000,
        -62_135_769_600_000,
    ]
