"""Writes the table of REST operations in docs/rest.md from their declarations.

python -m tests.support.rest_table
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from connectx.rest.operations import OPERATIONS

PAGE: Final = Path(__file__).parents[2] / "docs/rest.md"
HEAD: Final = "| operation | what it does |\n| --- | --- |\n"


def table() -> str:
    """Every operation with its parameters and summary; internal ones are for workers alone."""
    return HEAD + "".join(
        f"| `{one.method} {one.path}`{_parameters([query.name for query in one.query])} | {one.summary} |\n"
        for one in OPERATIONS
        if not one.internal
    )


def _parameters(names: list[str]) -> str:
    return f" ({', '.join(f'`{name}`' for name in names)})" if names else ""


def table_in(page: str) -> str:
    """The table that a page has."""
    rows = page[page.index(HEAD) + len(HEAD) :].splitlines(keepends=True)
    end = next((number for number, row in enumerate(rows) if not row.startswith("|")), len(rows))
    return HEAD + "".join(rows[:end])


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(table_in(text), table()), encoding="utf-8")
