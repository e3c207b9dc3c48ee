"""Java's SimpleDateFormat, as far as timestamps in UTC need it: numbers, English names, literals and zones of UTC.

Formats and parses whole columns. Names of months and days are those of Java's locale en_US; in text that is parsed they
may be short or long, in any case, and the day of the week is not compared with the date. Weeks and eras are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from connectx.errors.plugins import TransformError

_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+")
_NUMBERS: Final = {
    "y": "year",
    "M": "month",
    "d": "day",
    "H": "hour",
    "m": "minute",
    "s": "second",
    "S": "ms",
    "h": "hour_12",
    "K": "hour_0",
    "k": "hour_24",
}
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_HALVES: Final = ("AM", "PM")
_SHORT: Final = 3
_DEFAULTS: Final = {"year": 1970, "month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0, "ms": 0}
_LETTERS: Final = "GyMwWDdFEuaHhKkmsSzZXYL"
"""The letters that Java knows."""
_ZONES: Final = ("X", "Z", "z")
_STRFTIME: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_DAY_MS: Final = 86_400_000
_GREGORIAN_FROM: Final = -141_427
"""1582-10-15, in days since 1970: earlier days are Julian, as in Java's GregorianCalendar."""
_NEXT_MILLENNIUM_MS: Final = 253_402_300_800_000
"""The year 10000."""


class _Moment(NamedTuple):
    """Fields of a calendar; years before Christ count from 1, too."""

    year: int
    month: int
    day: int
    weekday: int
    hour: int
    minute: int
    second: int
    ms: int

    @classmethod
    def of(cls, stamp_ms: int) -> _Moment:
        """Of milliseconds since 1970."""
        days, ms = divmod(stamp_ms, _DAY_MS)
        year, month, day = _date_of(days)
        hour, ms = divmod(ms, 3_600_000)
        minute, ms = divmod(ms, 60_000)
        second, ms = divmod(ms, 1_000)
        return cls(year if year > 0 else 1 - year, month, day, (days + 3) % 7, hour, minute, second, ms)


def _date_of(days: int) -> tuple[int, int, int]:
    """Year, month and day of days since 1970. Years begin in March here, so that leap days are last."""
    days += 719_468
    century = 0
    if days >= _GREGORIAN_FROM + 719_468:
        era, days = divmod(days, 146_097)
        century = min(days // 36_524, 3)
        days -= century * 36_524
        century += 4 * era
    else:
        days += 2
    cycle, days = divmod(days, 1_461)
    year = min(days // 365, 3)
    days -= year * 365
    month = (5 * days + 2) // 153
    day = days - (153 * month + 2) // 5 + 1
    year += 100 * century + 4 * cycle + (month >= 10)
    return year, month + 3 if month < 10 else month - 9, day


def _days_of(year: int, month: int, day: int) -> int:
    """Days since 1970; months and days beyond their ends run over into the next larger unit."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    year, month = (year - 1, month + 9) if month <= 2 else (year, month - 3)
    julian = 365 * year + year // 4 + (153 * month + 2) // 5 + day - 1 - 719_470
    gregorian = julian + 2 - year // 100 + year // 400
    return gregorian if gregorian >= _GREGORIAN_FROM else julian


class DateFormat:
    """One pattern.

    Raises:
        ValueError: a letter that is unknown or not supported, or an open quote.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._tokens: list[tuple[str, bool]] = []  # (text, is a letter's)
        end = 0
        for found in _TOKEN.finditer(pattern):
            if found.start() != end:
                break
            end, text = found.end(), found.group()
            if text[0] == "'":
                literal = "'" if text == "''" else text[1:-1].replace("''", "'")
                self._tokens.append((literal, False))
            elif found.group(1):
                if text[0] == "L":
                    text = text.replace("L", "M")  # months that stand alone have the same names in English
                if text[0] not in _LETTERS:
                    raise ValueError(f"Illegal pattern character '{text[0]}'")
                if text[0] not in (*_NUMBERS, *_ZONES, "E", "a"):
                    raise ValueError(f"the letters {text} are not supported")
                self._tokens.append((text, True))
            else:
                self._tokens.append((text, False))
        if end != len(pattern):
            raise ValueError("Unterminated quote")

    def format(self, stamps_ms: pa.Array) -> pa.Array:
        """Milliseconds since 1970 (int64) as text."""
        ends = pc.min_max(stamps_ms)
        first, last = ends["min"].as_py(), ends["max"].as_py()
        is_plain = first is None or (first >= _GREGORIAN_FROM * _DAY_MS and last < _NEXT_MILLENNIUM_MS)
        if is_plain and all(text in _STRFTIME for text, is_letter in self._tokens if is_letter):
            pattern = "".join(_STRFTIME[text] if letter else text.replace("%", "%%") for text, letter in self._tokens)
            return pc.strftime(
                pc.floor_temporal(stamps_ms.cast(pa.timestamp("ms")), unit="second").cast("timestamp[s]"), pattern
            )
        return pa.array([None if ms is None else self._one(ms) for ms in stamps_ms.to_pylist()], pa.string())

    def parse(self, texts: pa.Array) -> pa.Array:
        """Text as milliseconds since 1970 (int64).

        Raises:
            TransformError: a text does not match the pattern.
        """
        compiled = self._expression()
        return pa.array(
            [None if text is None else self._read(compiled, text) for text in texts.to_pylist()], pa.int64()
        )

    def _one(self, stamp_ms: int) -> str:
        moment = _Moment.of(stamp_ms)
        parts = []
        for text, is_letter in self._tokens:
            if not is_letter:
                parts.append(text)
            elif text[0] in _ZONES:
                parts.append({"X": "Z", "Z": "+0000", "z": "UTC"}[text[0]])
            elif names := _names(text):
                place = {"M": moment.month - 1, "E": moment.weekday, "a": moment.hour // 12}[text[0]]
                parts.append(names[place] if len(text) > _SHORT else names[place][:_SHORT])
            elif text[0] == "y" and len(text) == 2:
                parts.append(f"{moment.year % 100:02d}")
            else:
                parts.append(str(_number(moment, text[0])).rjust(len(text), "0"))
        return "".join(parts)

    def _expression(self) -> re.Pattern[str]:
        parts = []
        for index, (text, is_letter) in enumerate(self._tokens):
            following = self._tokens[index + 1] if index + 1 < len(self._tokens) else ("", False)
            if not is_letter:
                parts.append(re.escape(text))
            elif text[0] in _ZONES:
                parts.append(r"(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)")
            elif names := _names(text):
                either = "|".join((*names, *(name[:_SHORT] for name in names)))
                group = {"M": "month_name", "E": "weekday", "a": "half"}[text[0]]
                parts.append(f"(?P<{group}>(?i:{either}))")
            else:
                adjacent = following[1] and following[0][0] in _NUMBERS and not _names(following[0])
                parts.append(
                    rf"(?P<{_NUMBERS[text[0]]}>\d{{{len(text)}}})" if adjacent else rf"(?P<{_NUMBERS[text[0]]}>\d+)"
                )
        return re.compile("".join(parts))

    def _read(self, compiled: re.Pattern[str], text: str) -> int:
        """Numbers out of their range run over into the next larger unit, as Java's lenient calendar has it."""
        found = compiled.match(text)
        if found is None:
            raise TransformError(f"Could not parse timestamp: value ({text}) does not match pattern ({self.pattern})")
        given = found.groupdict()
        year, month, day, hour, minute, second, ms = (
            int(given.get(name) or default) for name, default in _DEFAULTS.items()
        )
        month = _place(given.get("month_name"), _MONTHS, month - 1) + 1
        hour = _hour(given, hour)
        if "yy" in [token for token, _ in self._tokens] and len(given["year"]) == 2:
            year += 1900 if year + 2000 > datetime.now(UTC).year + 20 else 2000
        clock_ms = ((hour * 60 + minute) * 60 + second) * 1_000 + ms
        stamp_ms = _days_of(year, month, day) * _DAY_MS + clock_ms - _zone_ms(given.get("zone"))
        if not -(2**63) <= stamp_ms < 2**63:
            raise TransformError(f"Could not parse timestamp: value ({text}) is out of range")
        return stamp_ms


def _names(token: str) -> tuple[str, ...]:
    """Names that a token stands for; none where it is a number or a zone."""
    if token[0] == "M" and len(token) >= _SHORT:
        return _MONTHS
    return {"E": _DAYS, "a": _HALVES}.get(token[0], ())


def _number(moment: _Moment, letter: str) -> int:
    match letter:
        case "h":
            return moment.hour % 12 or 12
        case "K":
            return moment.hour % 12
        case "k":
            return moment.hour or 24
        case _:
            return int(getattr(moment, _NUMBERS[letter]))


def _place(text: str | None, names: tuple[str, ...], default: int) -> int:
    if text is None:
        return default
    return next(place for place, name in enumerate(names) if name[:_SHORT].lower() == text[:_SHORT].lower())


def _hour(given: Mapping[str, str | None], hour: int) -> int:
    """The hour of a day, of the letters h and K with AM and PM, or k from 1 to 24."""
    half = 12 * _place(given.get("half"), _HALVES, 0)
    if (of_half := given.get("hour_12")) is not None:
        return half + (0 if int(of_half) == 12 else int(of_half))
    if (of_half := given.get("hour_0")) is not None:
        return half + int(of_half)
    if (of_day := given.get("hour_24")) is not None:
        return 0 if int(of_day) == 24 else int(of_day)
    return hour


def _zone_ms(text: str | None) -> int:
    if text is None or text[0] not in "+-":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset_ms = (int(digits[:2]) * 60 + int(digits[2:])) * 60_000
    return -offset_ms if text[0] == "-" else offset_ms
