"""Regular expressions that others write, in configurations, schemas and records: in Java's syntax, in linear time.

RE2 matches them, which takes time in proportion to the text whatever the pattern is, so no pattern holds a worker. The
package `re` is for patterns of this program's code; tests/unit/test_patterns.py holds that. Java's syntax is translated
by `pattern_syntax`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from connectx.errors.plugins import PatternError
from connectx.model.pattern_syntax import Node, PatternSyntaxError, for_re2, for_topics, parsed

if TYPE_CHECKING:
    from collections.abc import Iterable

_KEPT: Final = 256
_MOST_CHARACTERS: Final = 10_000
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}|([\\$])", re.DOTALL)


class Pattern:
    """One expression.

    Args:
        tree: what `parsed` made of it.
        compiled: RE2's object.
    """

    def __init__(self, tree: Node, compiled: Any) -> None:
        self._tree = tree
        self._compiled = compiled

    def matches(self, text: str) -> bool:
        """Whether it matches the whole text (Java's `matches`)."""
        return self._compiled.fullmatch(_valid(text)) is not None

    def is_in(self, text: str) -> bool:
        """Whether it matches a part of the text (Java's `find`)."""
        return self._compiled.search(_valid(text)) is not None

    def replacement(self, template: str) -> Replacement:
        """A replacement in Java's syntax: $1, ${name}, and a backslash before what is meant as it stands.

        Raises:
            PatternError: it refers to a group that there is not.
        """
        parts: list[str | int] = []
        at = 0
        for found in _REFERENCE.finditer(template):
            parts.append(template[at : found.start()])
            at = found.end()
            literal, number, name, wrong = found.groups()
            if wrong is not None:
                raise PatternError("Illegal group reference")
            if literal is not None:
                parts.append(literal)
            elif name is not None:
                if name not in self._compiled.groupindex:
                    raise PatternError(f"No group with name {{{name}}}")
                parts.append(self._compiled.groupindex[name])
            else:
                digits = number
                while len(digits) > 1 and int(digits[:10]) > self._compiled.groups:
                    digits = digits[:-1]
                if int(digits) > self._compiled.groups:
                    raise PatternError(f"No group {digits}")
                parts += (int(digits), number[len(digits) :])
        return Replacement(self._compiled, [*parts, template[at:]])

    @property
    def of_topics(self) -> str:
        """The expression for librdkafka, whose syntax differs between platforms; it matches whole names.

        Raises:
            PatternError: it needs what librdkafka cannot do.
        """
        try:
            return f"^({for_topics(self._tree)})$"
        except PatternSyntaxError as error:
            raise PatternError(str(error)) from error


class Replacement:
    """Replaces the first part of a text that an expression matches.

    Args:
        compiled: RE2's object.
        parts: texts, and numbers of groups.
    """

    def __init__(self, compiled: Any, parts: list[str | int]) -> None:
        self._compiled = compiled
        self._parts = parts

    def first_in(self, text: str) -> str:
        """The text with its first match replaced (Java's `replaceFirst`)."""
        found = self._compiled.search(_valid(text))
        if found is None:
            return text
        made = "".join(part if isinstance(part, str) else found[part] or "" for part in self._parts)
        return f"{text[: found.start()]}{made}{text[found.end() :]}"


@lru_cache(_KEPT)
def compiled(pattern: str, *, ignore_case: bool = False) -> Pattern:
    """The expression of a text in Java's syntax.

    Args:
        pattern: what others wrote.
        ignore_case: as Java's CASE_INSENSITIVE, which is about ASCII's letters.

    Raises:
        PatternError: it is none, or needs backtracking: back references, look-around, atomic groups.
    """
    import re2  # executors may lack it, and need it only for transformations of topics

    if len(pattern) > _MOST_CHARACTERS:
        raise PatternError(f"it has more than {_MOST_CHARACTERS} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        tree = parsed(pattern, ignore_case=ignore_case)
        return Pattern(tree, re2.compile(for_re2(tree), options))
    except PatternSyntaxError as error:
        raise PatternError(str(error)) from error
    except re2.error as error:
        raise PatternError(f"RE2 refuses it ({_text(error.args[0])})") from error


def matches_any(patterns: Iterable[str], text: str, *, ignore_case: bool = False) -> bool:
    """Whether one of the expressions matches the whole text. Raises PatternError as `compiled`."""
    return any(compiled(pattern, ignore_case=ignore_case).matches(text) for pattern in patterns)


def problem_of(pattern: str) -> str | None:
    """Why a text is no expression that can be used; None if it is one."""
    try:
        compiled(pattern)
    except PatternError as error:
        return error.reason
    return None


def _text(message: str | bytes) -> str:
    return message.decode(errors="replace") if isinstance(message, bytes) else message


def _valid(text: str) -> str:
    """The text in valid Unicode, of the same length: RE2 reads UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()
