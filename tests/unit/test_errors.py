"""Programs tell errors apart by their codes, so codes are of one style and each belongs to one class."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import connectx
from connectx.errors.base import ConnectxError

ROOT = Path(connectx.__file__).parent
FILES = [path.relative_to(ROOT.parent) for path in ROOT.rglob("*.py") if "Error(" in path.read_text(encoding="utf-8")]
LOADED = [importlib.import_module(".".join(path.with_suffix("").parts)) for path in FILES if path.stem != "__main__"]


def all_errors(base: type[ConnectxError] = ConnectxError) -> list[type[ConnectxError]]:
    return [base, *(found for cls in base.__subclasses__() for found in all_errors(cls))]


def of_connectx() -> list[type[ConnectxError]]:
    return [cls for cls in all_errors() if cls.__module__.startswith("connectx.")]


def test_codes_are_words_joined_by_underscores() -> None:
    assert [cls for cls in of_connectx() if not re.fullmatch(r"[a-z]+(_[a-z]+)*", cls.code)] == []


def test_each_error_has_a_code_of_its_own() -> None:
    counts = Counter(cls.code for cls in of_connectx())
    assert [code for code, count in counts.items() if count > 1] == []


def test_each_error_says_what_it_is() -> None:
    assert [cls for cls in of_connectx() if not cls.__doc__] == []
