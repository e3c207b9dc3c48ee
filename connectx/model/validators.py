"""Checks for configuration values, with Kafka's texts (ConfigDef.Range, ValidString, NonEmptyString, ...)."""

from __future__ import annotations

import re
from typing import Any

from connectx.model.configdef import Validator
from connectx.model.patterns import compiled, problem_of

_ADDRESS = re.compile(r"([\w.%-]*://)?(\[[0-9A-Fa-f:%.]+\]|[\w.%-]+):[0-9]+", re.ASCII)
_MAX_PORT = 65_535


def at_least(minimum: float) -> Validator:
    """A number, not below `minimum`."""
    return _range(minimum, None, f"[{minimum},...]")


def between(minimum: float, maximum: float) -> Validator:
    """A number, from `minimum` to `maximum`, both included."""
    return _range(minimum, maximum, f"[{minimum},...,{maximum}]")


def _range(minimum: float, maximum: float | None, text: str) -> Validator:
    def check(value: Any) -> str | None:
        if value is None:
            return "Value must be non-null"
        if value < minimum:
            return f"Value must be at least {minimum}"
        if maximum is not None and value > maximum:
            return f"Value must be no more than {maximum}"
        return None

    return Validator(check, text)


def one_of(*allowed: str, ignore_case: bool = False) -> Validator:
    """One of these texts; with `ignore_case` in any case."""
    listed = ", ".join(text.upper() if ignore_case else text for text in allowed)
    folded = {text.upper() for text in allowed}

    def check(value: Any) -> str | None:
        if ignore_case:
            known = value is not None and value.upper() in folded
            return None if known else f"String must be one of (case insensitive): {listed}"
        return None if value in allowed else f"String must be one of: {listed}"

    return Validator(check, f"(case insensitive) [{listed}]" if ignore_case else f"[{listed}]")


def non_empty() -> Validator:
    """A text that is not empty; null passes."""
    return Validator(lambda value: "String must be non-empty" if value == "" else None, "non-empty string")


def non_null() -> Validator:
    """Any value but null."""
    return Validator(lambda value: "entry must be non null" if value is None else None, "non-null string")


def distinct_list(key: str, *, filled: bool = False) -> Validator:
    """The list of different texts of a key, none of them empty, not null; with `filled` of at least one."""

    def check(value: Any) -> str | None:
        if value is None:
            return f"Configuration '{key}' values must not be null."
        if filled and not value:
            return f"Configuration '{key}' must not be empty. Valid values include: any non-empty value"
        if len(set(value)) < len(value):
            return f"Configuration '{key}' values must not be duplicated."
        return None if all(value) else f"Configuration '{key}' values must not be empty."

    return Validator(check, "[]" if filled else "[] (optional)", whole_message=True, distinct=True)


def table_name_format() -> Validator:
    """A text that is not empty, with no other variable than ${topic}; null passes."""

    def check(value: Any) -> str | None:
        if value == "":
            return non_empty().check(value)
        other = [name for name in re.findall(r"\$\{[^}]*}?", value or "") if name != "${topic}"]
        return f"{other[0]} is not known; the only variable is ${{topic}}" if other else None

    return Validator(check, "non-empty string with ${topic}")


def valid_regex(*, filled: bool = False) -> Validator:
    """A text that is a regular expression; null passes. With `filled` it must not be empty."""

    def check(value: Any) -> str | None:
        if filled and value == "":
            return non_empty().check(value)
        problem = problem_of(value or "")
        return problem and f"Invalid regex: {problem}"

    return Validator(check, "non-empty string, valid regex" if filled else "valid regex")


def valid_regexes() -> Validator:
    """A list of regular expressions; null passes."""
    one = valid_regex()
    return Validator(
        lambda value: next((problem for text in value or () if (problem := one.check(text))), None),
        "list of regular expressions",
    )


def matching(pattern: str) -> Validator:
    """A text that the whole regular expression matches; null passes."""
    return Validator(
        lambda value: None if value is None or compiled(pattern).matches(value) else f"String must match {pattern}",
        pattern,
    )


def is_port(digits: str) -> bool:
    """Whether digits are a port of TCP, 0 to 65535."""
    number = digits.lstrip("0") or "0"
    return len(number) <= len(str(_MAX_PORT)) and int(number) <= _MAX_PORT


def addresses() -> Validator:
    """A list of `host:port`, not empty, as Kafka's clients take it (ClientUtils.parseAndValidateAddresses)."""

    def check(value: Any) -> str | None:
        given = [entry for entry in value or () if entry]
        wrong = [entry for entry in given if not _ADDRESS.fullmatch(entry)]
        if wrong:
            return f"{wrong[0]} is not host:port"
        for entry in given:
            if not is_port(entry.rpartition(":")[2]):
                return f"Invalid port in {entry}"
        return None if given else "No host:port is given"

    return Validator(check, "non-empty list of host:port")


def unique_list(what: str) -> Validator:
    """A list of different entries, not null; `what` names them in the plural."""

    def check(value: Any) -> str | None:
        if value is None:
            return "entry must be non null"
        if len(value) != len(set(value)):
            return "Duplicate alias provided."
        return None

    return Validator(check, f"non-null string, unique {what}")
