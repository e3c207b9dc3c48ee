"""Java's SimpleDateFormat, as far as timestamps in UTC need it: letters for numbers, literals and zones of UTC.

Formats and parses whole columns. It does not know names of months and days, weeks and eras, and says so.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.errors import TransformError

_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+")
_NUMBERS: Final = {"y": "year", "M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second", "S": "ms"}
_ZONES: Final = ("X", "Z", "z")
_STRFTIME: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_EPOCH: Final = datetime(1970, 1, 1)


class DateFormat:
    """One pattern.

    Raises:
        ValueError: a letter that is not supported, or an open quote.
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
                if (text[0] not in _NUMBERS and text[0] not in _ZONES) or (text[0] == "M" and len(text) > 2):
                    raise ValueError(f"the letters {text} are not supported")
                self._tokens.append((text, True))
            else:
                self._tokens.append((text, False))
        if end != len(pattern):
            raise ValueError("a quote is not closed")

    def format(self, stamps_ms: pa.Array) -> pa.Array:
        """Milliseconds since 1970 (int64) as text."""
        if all(text in _STRFTIME for text, is_letter in self._tokens if is_letter):
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
        moment = _EPOCH + timedelta(milliseconds=stamp_ms)
        parts = []
        for text, is_letter in self._tokens:
            if not is_letter:
                parts.append(text)
            elif text[0] in _ZONES:
                parts.append({"X": "Z", "Z": "+0000", "z": "UTC"}[text[0]])
            elif text[0] == "y" and len(text) == 2:
                parts.append(f"{moment.year % 100:02d}")
            else:
                number = moment.microsecond // 1000 if text[0] == "S" else getattr(moment, _NUMBERS[text[0]])
                parts.append(str(number).rjust(len(text), "0"))
        return "".join(parts)

    def _expression(self) -> re.Pattern[str]:
        parts = []
        for index, (text, is_letter) in enumerate(self._tokens):
            following = self._tokens[index + 1] if index + 1 < len(self._tokens) else ("", False)
            if not is_letter:
                parts.append(re.escape(text))
            elif text[0] in _ZONES:
                parts.append(r"(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)")
            else:
                adjacent = following[1] and following[0][0] in _NUMBERS
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
            int(given.get(name) or default)
            for name, default in zip(_NUMBERS.values(), (1970, 1, 1, 0, 0, 0, 0), strict=True)
        )
        if "yy" in [token for token, _ in self._tokens] and len(given["year"]) == 2:
            year += 1900 if year + 2000 > datetime.now(UTC).year + 20 else 2000
        year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
        try:
            moment = datetime(year, month, 1) + timedelta(
                days=day - 1, hours=hour, minutes=minute, seconds=second, milliseconds=ms
            )
        except (ValueError, OverflowError) as error:
            raise TransformError(f"Could not parse timestamp: value ({text}) is out of range: {error}") from error
        return (moment - _EPOCH - _zone(given.get("zone"))) // timedelta(milliseconds=1)


def _zone(text: str | None) -> timedelta:
    if text is None or text[0] not in "+-":
        return timedelta()
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -offset if text[0] == "-" else offset
