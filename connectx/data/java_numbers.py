"""Fractions as Java spells them, on whole columns.

`Double.toString` and `Float.toString` as of JDK 19 (JDK-4511638, Raffaello Giulietti's algorithm): the shortest decimal
that reads back as the same number. Java 17 writes more digits, or other ones, for a few numbers in a thousand.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7
_ONE_DIGIT_IS_INEXACT: Final = {pa.float32(): 1e-43, pa.float64(): 1e-321}
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def java_text(values: pa.Array) -> pa.Array:
    """Text of a float32 or float64 array; null stays null."""
    texts = values.cast(pa.string())
    size = pc.abs(values)
    plain = pc.or_(pc.and_(pc.greater_equal(size, _PLAIN_FROM), pc.less(size, _PLAIN_TO)), pc.equal(size, 0))
    whole = pc.and_(plain, pc.invert(pc.match_substring(texts, ".")))
    texts = pc.if_else(whole, _joined(texts, ".0"), texts)
    rest = pc.fill_null(pc.invert(plain), False)
    if not pc.any(rest).as_py():
        return texts
    return pc.replace_with_mask(texts, rest, _exponential(values.filter(rest), texts.filter(rest)))


def _exponential(values: pa.Array, texts: pa.Array) -> pa.Array:
    """Arrow's text of numbers that Java spells with an exponent, or that are not finite."""
    if pc.any(pc.less(pc.abs(values), _ONE_DIGIT_IS_INEXACT[values.type])).as_py():
        texts = pa.array(map(_two_digits, values.to_pylist(), texts.to_pylist(), [values.type] * len(values)))
    sign = pc.if_else(pc.less(values, 0), "-", "")
    size = pc.utf8_ltrim(texts, "-")
    point = pc.find_substring(size, ".")
    before = pc.if_else(pc.less(point, 0), pc.binary_length(size), point)
    digits = pc.utf8_ltrim(pc.replace_substring(size, ".", ""), "0")
    leading = pc.subtract(pc.binary_length(size), pc.binary_length(digits))  # of 0.00012: the point and four zeros
    exponent = pc.if_else(pc.less(pc.abs(values), 1), pc.subtract(1, leading), pc.subtract(before, 1))
    digits = pc.utf8_rtrim(digits, "0")
    rest = pc.utf8_slice_codeunits(digits, 1)
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    spelled = _joined(sign, pc.utf8_slice_codeunits(digits, 0, 1), ".", rest, "E", exponent.cast(pa.string()))
    with_point = pc.if_else(pc.match_substring(texts, "."), texts, pc.replace_substring(texts, "e", ".0e"))
    exponential = pc.replace_substring(pc.replace_substring(with_point, "e+", "E"), "e", "E")
    texts = pc.if_else(pc.match_substring(texts, "e"), exponential, spelled)
    for arrow, java in _NOT_FINITE.items():
        texts = pc.if_else(_same_kind(values, arrow), java, texts)
    return texts


def _same_kind(values: pa.Array, name: str) -> pa.Array:
    if name == "nan":
        return pc.is_nan(values)
    return pc.equal(values, pa.scalar(float(name), values.type))


def _two_digits(value: float, text: str, kind: pa.DataType) -> str:
    """Java prefers the nearest of two digits to the shortest of one: 4.9E-324, not 5E-324."""
    if not 0 < abs(value) < _ONE_DIGIT_IS_INEXACT[kind] or "." in text:
        return text
    return f"{Decimal(value):.1e}"


def _joined(*parts: object) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")
