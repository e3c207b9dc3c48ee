"""Java's syntax of regular expressions, translated for RE2. Pure.

A pattern is parsed into sets of characters, sequences, choices and repetitions, and written for an engine without
backtracking. What such an engine cannot do is refused by name: back references, look-around, atomic groups. Possessive
quantifiers are taken where they mean the same as greedy ones: the next character can never be one of the repeated.
Source: java.util.regex.Pattern of Java 17.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from connectx.values import Value

Ranges = tuple[tuple[int, int], ...]
"""Code points, first and last of each range, sorted and apart."""

_LAST: Final = 0x10FFFF
_LOWER, _UPPER = (0x61, 0x7A), (0x41, 0x5A)
_CASE: Final = 0x20
_DIGITS: Final = ((0x30, 0x39),)
_LETTERS: Final = (_UPPER, _LOWER)
_LINE_ENDS: Final = ((0x0A, 0x0A), (0x0D, 0x0D), (0x85, 0x85), (0x2028, 0x2029))
_WORD: Final = ((0x30, 0x39), _UPPER, (0x5F, 0x5F), _LOWER)
_SPACE: Final = ((0x09, 0x0D), (0x20, 0x20))
_CLASSES: Final[dict[str, Ranges]] = {
    "d": _DIGITS,
    "w": _WORD,
    "s": _SPACE,
    "h": (
        (0x09, 0x09),
        (0x20, 0x20),
        (0xA0, 0xA0),
        (0x1680, 0x1680),
        (0x180E, 0x180E),
        (0x2000, 0x200A),
        (0x202F, 0x202F),
        (0x205F, 0x205F),
        (0x3000, 0x3000),
    ),
    "v": ((0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029)),
}
_POSIX: Final[dict[str, Ranges]] = {
    "Lower": (_LOWER,),
    "Upper": (_UPPER,),
    "ASCII": ((0, 0x7F),),
    "Alpha": _LETTERS,
    "Digit": _DIGITS,
    "Alnum": (*_DIGITS, *_LETTERS),
    "Punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "Graph": ((0x21, 0x7E),),
    "Print": ((0x20, 0x7E),),
    "Blank": ((0x09, 0x09), (0x20, 0x20)),
    "Cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "XDigit": (*_DIGITS, (0x41, 0x46), (0x61, 0x66)),
    "Space": _SPACE,
}
_CONTROLS: Final = {"t": 0x09, "n": 0x0A, "r": 0x0D, "f": 0x0C, "a": 0x07, "e": 0x1B}
_BINARY: Final = {"Letter": "L", "Digit": "Nd", "Titlecase": "Lt", "Punctuation": "P", "Control": "Cc"}
_CATEGORY_KEYS: Final = ("general_category=", "gc=")
_SCRIPT_KEYS: Final = ("script=", "sc=", "Is")
_CASED: Final = ("Lu", "Ll", "Lt")
_CATEGORY: Final = re.compile("L[ultmo]?|M[nce]?|N[dlo]?|Z[slp]?|P[cdseifo]?|S[mcko]?|C[cfo]?")
_ASSERTIONS: Final = {"A": r"\A", "z": r"\z", "Z": r"\z", "b": r"\b", "B": r"\B"}
_MOST_TIMES: Final = 1_000
_TOPIC_NAMES: Final = ((0x2D, 0x2E), (0x30, 0x39), _UPPER, (0x5F, 0x5F), _LOWER)


class PatternSyntaxError(ValueError):
    """Why a pattern cannot be used, in a sentence without its full stop."""


class Chars(Value):
    """One character of a set. `named` is a set that RE2 knows by name, in its syntax, and without ranges here."""

    ranges: Ranges
    named: str = ""
    category: str = ""
    """General category of a named set, whose ranges can be found; it may begin with ^ for all others."""

    def of(self) -> Ranges:
        """The ranges, for calculations."""
        if self.category:
            ranges = _categories()[self.category.removeprefix("^")]
            return _other(ranges) if self.category.startswith("^") else ranges
        if self.named:
            raise PatternSyntaxError(f"{self.named} cannot be combined with other characters here")
        return self.ranges


class Assertion(Value):
    """A position, as RE2 writes it."""

    text: str


class Concatenation(Value):
    """One after the other."""

    parts: tuple[Node, ...]


class Choice(Value):
    """The first that fits."""

    options: tuple[Node, ...]


class Group(Value):
    """A group; `name` is empty for one with a number."""

    inner: Node
    name: str


class Repeat(Value):
    """A repetition; `most` is None without a limit, `mode` is "", "?" (lazy) or "+" (possessive)."""

    inner: Node
    least: int
    most: int | None
    mode: str


Node = Chars | Assertion | Concatenation | Choice | Group | Repeat


def parsed(pattern: str, *, ignore_case: bool = False) -> Node:
    """The tree of a pattern.

    Raises:
        PatternSyntaxError: it is no pattern, or needs an engine with backtracking.
    """
    try:
        tree = _Parser(pattern, ignore_case).whole()
        _check_possessive(tree, ())
    except RecursionError:
        raise PatternSyntaxError("it is nested too deeply") from None
    return tree


def for_re2(node: Node) -> str:
    """The tree in RE2's syntax."""
    match node:
        case Chars(ranges, named):
            return named or _set_text(ranges)
        case Assertion(text):
            return text
        case Concatenation(parts):
            return "".join(map(for_re2, parts))
        case Choice(options):
            return f"(?:{'|'.join(map(for_re2, options))})"
        case Group(inner, name):
            return f"(?P<{name}>{for_re2(inner)})" if name else f"({for_re2(inner)})"
        case Repeat(inner, least, most, mode):
            return f"(?:{for_re2(inner)}){_times(least, most)}{mode.replace('+', '')}"


def for_topics(node: Node) -> str:
    """The tree as an expression that every build of librdkafka understands, for names of topics as a whole."""
    match node:
        case Chars():
            found = _common(node.of(), _TOPIC_NAMES)
            if not found:
                raise PatternSyntaxError("it asks for a character that names of topics cannot have")
            inside = "".join(chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in found if a > 0x2E)
            dots = "".join(chr(code) for code in (0x2E, 0x2D) if any(a <= code <= b for a, b in found))
            return f"[{inside}{dots}]"
        case Assertion(text):
            if text in (r"\A", r"\z"):
                return ""
            raise PatternSyntaxError("boundaries of words are not supported in patterns of topics")
        case Concatenation(parts):
            return "".join(map(for_topics, parts))
        case Choice(options):
            return f"({'|'.join(map(for_topics, options))})"
        case Group(inner, _):
            return f"({for_topics(inner)})"
        case Repeat(inner, least, most, _):
            return f"({for_topics(inner)}){_times(least, most)}"


def _times(least: int, most: int | None) -> str:
    known = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    return known.get((least, most)) or (
        f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
    )


def _set_text(ranges: Ranges) -> str:
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _char(ranges[0][0])
    if not ranges:
        return r"[^\x{0}-\x{10FFFF}]"
    return f"[{''.join(_char(a) if a == b else f'{_char(a)}-{_char(b)}' for a, b in ranges)}]"


def _char(code: int) -> str:
    text = chr(code)
    return text if text.isascii() and text.isalnum() else f"\\x{{{code:X}}}"


class _Parser:
    """Reads one pattern. `i`, `s`, `m`, `x` and `u` are the flags at the place that is read."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self._text = pattern
        self._at = 0
        self._flags = frozenset("i" if ignore_case else "")
        self._names: set[str] = set()

    def whole(self) -> Node:
        """The tree of the whole pattern."""
        tree = self._choice()
        if self._at < len(self._text):
            raise PatternSyntaxError("a closing parenthesis has no opening one")
        return tree

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        found = self._peek(text)
        self._at += len(text) * found
        return found

    def _next(self, within: str) -> str:
        if self._at >= len(self._text):
            raise PatternSyntaxError(f"it ends within {within}")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str, within: str) -> str:
        place = self._text.find(end, self._at)
        if place < 0:
            raise PatternSyntaxError(f"it ends within {within}")
        found, self._at = self._text[self._at : place], place + len(end)
        return found

    def _choice(self) -> Node:
        flags, options = self._flags, [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        self._flags = flags
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._skips_comment():
                continue
            if self._take("\\Q"):
                end = self._text.find("\\E", self._at)
                quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
                self._at = len(self._text) if end < 0 else end + 2
                parts += [self._literal(ord(char)) for char in quoted]
                if parts and quoted:
                    parts.append(self._repeated(parts.pop()))
                continue
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def _skips_comment(self) -> bool:
        if "x" not in self._flags:
            return False
        if self._text[self._at] == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end + 1
            return True
        is_blank = self._text[self._at] in " \t\n\x0b\f\r"
        self._at += is_blank
        return is_blank

    def _atom(self) -> Node | None:
        char = self._next("the pattern")
        match char:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return Chars(
                    _other(() if "s" in self._flags else ((0x0A, 0x0A),) if "d" in self._flags else _LINE_ENDS)
                )
            case "^":
                return Assertion("(?m:^)" if "m" in self._flags else r"\A")
            case "$":
                return Assertion("(?m:$)" if "m" in self._flags else r"\z")
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise PatternSyntaxError(f"{char} follows nothing that it could repeat")
            case "{":
                raise PatternSyntaxError("{ follows nothing that it could repeat; write \\{ for the character")
            case _:
                return self._literal(ord(char))

    def _literal(self, code: int) -> Chars:
        return self._cased(Chars(((code, code),)))

    def _cased(self, chars: Chars) -> Chars:
        """In any case with the flag `i`: of ASCII's letters alone, as in Java, unless `u` is set, too."""
        if "i" not in self._flags:
            return chars
        return Chars(_any_case(chars.ranges, everywhere="u" in self._flags))

    def _group(self) -> Node | None:
        if not self._take("?"):
            return self._closed(Group(self._choice(), ""))
        if self._take("<") and not (self._peek("=") or self._peek("!")):
            name = self._until(">", "the name of a group")
            if not (name.isascii() and name.isalnum() and name[0].isalpha()) or name in self._names:
                raise PatternSyntaxError(f"{name!r} is no name of a group, or the name of two")
            self._names.add(name)
            return self._closed(Group(self._choice(), name))
        if self._peek("=") or self._peek("!"):
            raise PatternSyntaxError("it has look-around, (?=, (?!, (?<= or (?<!")
        if self._peek(">"):
            raise PatternSyntaxError("it has an atomic group, (?>")
        before, on = self._flags, True
        while (char := self._next("a group")) not in ":)":
            if char == "-" and on:
                on = False
            elif char in "idmsux":
                self._flags = self._flags | {char} if on else self._flags - {char}
            else:
                raise PatternSyntaxError(f"a group begins with (?{char}, which is not known here")
        if char == ")":
            return None
        inner = self._closed(self._choice())
        self._flags = before
        return inner

    def _closed(self, node: Node) -> Node:
        if not self._take(")"):
            raise PatternSyntaxError("it ends within a group")
        return node

    def _repeated(self, atom: Node) -> Node:
        while self._at < len(self._text) and self._skips_comment():
            pass
        times = self._quantifier()
        if times is None:
            return atom
        mode = "?" if self._take("?") else "+" if self._take("+") else ""
        if self._quantifier() is not None:
            raise PatternSyntaxError("a quantifier follows another one")
        if max(times[0], times[1] or 0) > _MOST_TIMES or (times[1] is not None and times[1] < times[0]):
            raise PatternSyntaxError(f"it repeats more often than {_MOST_TIMES} times, or a range is empty")
        return Repeat(atom, *times, mode)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return times
        if not self._take("{"):
            return None
        least, comma, most = self._until("}", "a quantifier").partition(",")
        if not _is_count(least) or (most and not _is_count(most)):
            raise PatternSyntaxError("a quantifier in braces is not {n}, {n,} or {n,m}")
        return int(least), int(most) if most else None if comma else int(least)

    def _escape(self) -> Node | None:
        char = self._next("an escape")
        if char in _ASSERTIONS:
            if char in "bB" and self._peek("{"):
                raise PatternSyntaxError("it has a boundary of another kind, \\b{")
            return Assertion(_ASSERTIONS[char])
        if char.isdigit() and char != "0":
            raise PatternSyntaxError(f"it refers back to a group with \\{char}")
        if char == "k":
            raise PatternSyntaxError("it refers back to a group with \\k")
        if char == "E":
            return None
        if char == "R":
            return Choice((Concatenation((Chars(((13, 13),)), Chars(((10, 10),)))), Chars(_CLASSES["v"])))
        return self._set_of_escape(char) or self._literal(self._code_of_escape(char))

    def _set_of_escape(self, char: str) -> Chars | None:
        """The set of \\d, \\p{Lu} and others; None if the escape is one character."""
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return Chars(ranges if char.islower() else _other(ranges))
        if char not in "pP":
            return None
        name = self._until("}", "the name of a property") if self._take("{") else self._next("the name of a property")
        negated, name = char == "P", name.strip()
        if name in _POSIX:
            ranges = _cased_posix(_POSIX[name], "i" in self._flags)
            return Chars(_other(ranges) if negated else ranges)
        for key in (*_CATEGORY_KEYS, "Is", ""):
            category = name.removeprefix(key) if name.startswith(key) else ""
            category = _BINARY.get(category, category) if key == "Is" else category
            if not _CATEGORY.fullmatch(category):
                continue
            if "i" in self._flags and category in _CASED:
                return Chars((), rf"[{'^' * negated}\p{{Lu}}\p{{Ll}}\p{{Lt}}]")
            return Chars((), f"\\{char}{{{category}}}", "^" * negated + category)
        for key in _SCRIPT_KEYS:
            if name.startswith(key):
                script = name.removeprefix(key).replace("_", " ").title().replace(" ", "_")
                return Chars((), f"\\{char}{{{script}}}")
        raise PatternSyntaxError(f"it has the property {name!r}, which is not known here")

    def _code_of_escape(self, char: str) -> int:
        match char:
            case "0":
                digits = self._digits("01234567", 3)
                digits = digits if int(digits, 8) < 256 else self._back(digits)
                return int(digits, 8)
            case "x":
                digits = self._until("}", "an escape") if self._take("{") else self._digits("0123456789abcdefABCDEF", 2)
            case "u":
                digits = self._digits("0123456789abcdefABCDEF", 4)
                if len(digits) == 4 and digits[:2].lower() in ("d8", "d9", "da", "db") and self._take("\\u"):
                    low = self._digits("0123456789abcdefABCDEF", 4)
                    digits = f"{0x10000 + (int(digits, 16) - 0xD800) * 0x400 + _hex(low) - 0xDC00:x}"
            case "c":
                return ord(self._next("an escape")) ^ 64
            case _ if char in _CONTROLS:
                return _CONTROLS[char]
            case _ if char.isascii() and char.isalpha():
                raise PatternSyntaxError(f"it has the escape \\{char}, which is not known here")
            case _:
                return ord(char)
        return _hex(digits)

    def _digits(self, known: str, most: int) -> str:
        start = self._at
        while self._at < min(len(self._text), start + most) and self._text[self._at] in known:
            self._at += 1
        if self._at == start:
            raise PatternSyntaxError("an escape has no digits")
        return self._text[start : self._at]

    def _back(self, digits: str) -> str:
        self._at -= 1
        return digits[:-1]

    def _class(self) -> Chars:
        """A set in brackets, after the opening one: unions, of which && takes what all have."""
        negated = self._take("^")
        common: Ranges | None = None
        union: list[Chars] = []
        is_first = True
        while not (self._peek("]") and not is_first):
            if self._take("&&"):
                if union:
                    common = _all_of(common, _union(union).of())
                union = []
                continue
            is_first = False
            union += self._class_item()
        self._at += 1
        found = _union(union) if union else Chars(common or ())
        if common is not None and union:
            found = Chars(_common(common, found.of()))
        return Chars(_other(found.of())) if negated else found

    def _class_item(self) -> list[Chars]:
        if "x" in self._flags and self._text[self._at : self._at + 1] in tuple(" \t\n\x0b\f\r"):
            self._at += 1
            return []
        if self._take("\\Q"):
            return [self._literal(ord(char)) for char in self._until("\\E", "a quotation")]
        if self._take("["):
            return [self._class()]
        char = self._next("a set of characters")
        if char == "\\":
            char = self._next("an escape")
            found = self._set_of_escape(char)
            if found is not None:
                return [found]
            first = self._code_of_escape(char)
        else:
            first = ord(char)
        if not self._peek("-") or self._text[self._at + 1 : self._at + 2] in ("", "]", "["):
            return [self._literal(first)]
        self._at += 1
        char = self._next("a range")
        last = self._code_of_escape(self._next("an escape")) if char == "\\" else ord(char)
        if last < first:
            raise PatternSyntaxError("a range of characters ends before it begins")
        return [self._cased(Chars(((first, last),)))]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _hex(digits: str) -> int:
    try:
        code = int(digits, 16)
    except ValueError:
        code = -1
    if not 0 <= code <= _LAST or 0xD800 <= code <= 0xDFFF:
        raise PatternSyntaxError("an escape names no character")
    return code


def _sorted(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def _other(ranges: Ranges) -> Ranges:
    """All other characters."""
    found, at = [], 0
    for first, last in _sorted(ranges):
        if first > at:
            found.append((at, first - 1))
        at = last + 1
    return (*found, (at, _LAST)) if at <= _LAST else tuple(found)


def _common(one: Ranges, other: Ranges) -> Ranges:
    return _sorted((max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) <= min(b, d))


def _all_of(one: Ranges | None, other: Ranges) -> Ranges:
    return other if one is None else _common(one, other)


def _union(sets: Sequence[Chars]) -> Chars:
    if len(sets) == 1:
        return sets[0]
    if any(one.named for one in sets):
        return Chars((), f"[{''.join(one.named or _set_text(one.ranges).strip('[]') for one in sets)}]")
    return Chars(_sorted(each for one in sets for each in one.ranges))


def _any_case(ranges: Ranges, *, everywhere: bool) -> Ranges:
    found = list(ranges)
    for case, step in ((_LOWER, -_CASE), (_UPPER, _CASE)):
        found += [(first + step, last + step) for first, last in _common(ranges, (case,))]
    if everywhere:
        codes = (code for first, last in ranges if last - first < _MOST_TIMES for code in range(first, last + 1))
        found += [
            (ord(char), ord(char))
            for code in codes
            for char in (chr(code).lower(), chr(code).upper())
            if len(char) == 1
        ]
    return _sorted(found)


def _cased_posix(ranges: Ranges, ignore_case: bool) -> Ranges:
    return _any_case(ranges, everywhere=False) if ignore_case else ranges


@cache
def _categories() -> dict[str, Ranges]:
    """Characters by general category (Lu, also L for all that begin with it), as this Python knows them."""
    found: dict[str, list[tuple[int, int]]] = {}
    for code in range(_LAST + 1):
        name = unicodedata.category(chr(code))
        ranges = found.setdefault(name, [])
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = ranges[-1][0], code
        else:
            ranges.append((code, code))
    found.pop("Cs")
    letters = {name[0] for name in found}
    whole = {
        letter: _sorted(each for name, of in found.items() if name[0] == letter for each in of) for letter in letters
    }
    return {**{name: tuple(of) for name, of in found.items()}, **whole}


def _check_possessive(node: Node, following: Ranges) -> None:
    """Refuse possessive quantifiers that mean something else than greedy ones; `following` may come after the node."""
    match node:
        case Concatenation(parts):
            for part in reversed(parts):
                _check_possessive(part, following)
                first, may_be_empty = _first(part)
                following = _sorted((*first, *following)) if may_be_empty else first
        case Choice(options):
            for option in options:
                _check_possessive(option, following)
        case Group(inner, _):
            _check_possessive(inner, following)
        case Repeat(inner, _, _, mode):
            if mode == "+" and not (isinstance(inner, Chars) and not _common(inner.of(), following)):
                raise PatternSyntaxError("it has a possessive quantifier that is not the same as a greedy one")
            _check_possessive(inner, _sorted((*_first(inner)[0], *following)))
        case _:
            pass


def _first(node: Node) -> tuple[Ranges, bool]:
    """With which characters a node can begin, and whether it can be empty."""
    match node:
        case Chars(ranges, named):
            return ((0, _LAST),) if named else ranges, False
        case Assertion():
            return (), True
        case Concatenation(parts):
            found: Ranges = ()
            for part in parts:
                first, may_be_empty = _first(part)
                found = _sorted((*found, *first))
                if not may_be_empty:
                    return found, False
            return found, True
        case Choice(options):
            firsts = [_first(option) for option in options]
            return _sorted(each for first, _ in firsts for each in first), any(empty for _, empty in firsts)
        case Group(inner, _):
            return _first(inner)
        case Repeat(inner, least, _, _):
            first, may_be_empty = _first(inner)
            return first, may_be_empty or least == 0
