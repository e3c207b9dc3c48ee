"""Rules of `response.http.headers.config`: headers that REST adds to its responses. Mirrors Jetty's HeaderFilter."""

from __future__ import annotations

import re
from typing import Any, Final

from connectx.model.configdef import Validator
from connectx.values import Value

_RULE: Final = re.compile(r"(set|add)(Date)?\s+([!#$%&'*+.^`|~\w-]+)\s*:\s*([\x20-\x7e]*)", re.ASCII)

_COMMA: Final = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""A comma outside of quotes."""


class HeaderRule(Value):
    """A header of each response.

    Attributes:
        value: its text; with `is_date` the milliseconds from the response to the date that it has.
        replaces: whether it replaces a header of that name, or comes beside it.
    """

    name: str
    value: str
    replaces: bool
    is_date: bool


def header_rules(text: str) -> tuple[HeaderRule, ...]:
    """Rules separated by commas; one that has a comma is in double quotes.

    Raises:
        ValueError: a rule is none.
    """
    return tuple(_rule(one.strip().strip('"').strip()) for one in _COMMA.split(text) if one.strip())


def _rule(text: str) -> HeaderRule:
    found = _RULE.fullmatch(text)
    if found is None or (found[2] and not re.fullmatch(r"-?\d+", found[4])):
        raise ValueError(
            f"Invalid format of header config '{text}'. Expected: '[action] [header name]:[header value]', with one of "
            "the actions set, add, setDate and addDate; the value of a date is a number of milliseconds"
        )
    return HeaderRule(found[3], found[4].strip(), replaces=found[1] == "set", is_date=bool(found[2]))


def _problem(value: Any) -> str | None:
    try:
        header_rules(value or "")
    except ValueError as error:
        return str(error)
    return None


HEADER_RULES: Final = Validator(
    _problem,
    "Comma-separated header rules, where each header rule is of the form '[action] [header name]:[header value]' and "
    "optionally surrounded by double quotes if any part of a header rule contains a comma",
)
