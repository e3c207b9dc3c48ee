"""Writes the tables of keys in docs/connectors/ from the definitions of the connectors.

    python -m tests.support.connector_keys

A page marks the place of a table by two comments that name the connector. Text outside of them stays.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Final

from connectx.model.configdef import ConfigKey
from connectx.plugins.registry import Plugins

PAGES: Final = Path(__file__).parents[2] / "docs/connectors"
_TABLE: Final = re.compile(r"(<!-- keys of (\w+): begin -->\n).*?(<!-- keys of \2: end -->)", re.DOTALL)


def described(page: str) -> list[str]:
    """Return the names of the connectors whose keys the page lists."""
    return [match[2] for match in _TABLE.finditer(page)]


def written(page: str, plugins: Plugins) -> str:
    """Return the page with its tables written again."""
    return _TABLE.sub(lambda match: match[1] + _table(match[2], plugins) + match[3], page)


def _table(connector: str, plugins: Plugins) -> str:
    keys = plugins.connector_class(connector).config.keys.values()
    lines = ["| key | type | default | |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *map(_row, keys)]) + "\n"


def _row(key: ConfigKey) -> str:
    default = key.row()["default"]
    shown = "required" if key.required else "" if default in (None, "") else f"`{default}`"
    if "|" in shown:  # GitHub ends the cell there, and mkdocs shows the backslash of \|
        shown = f"<code>{escape(str(default)).replace('|', '&#124;')}</code>"
    doc = re.sub(r"\s+", " ", key.doc).replace("|", "\\|")
    return f"| `{key.name}` | {key.type.lower()} | {shown} | {doc} |"


def main() -> None:
    """Write all pages."""
    plugins = Plugins()
    for path in sorted(PAGES.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        path.write_text(written(page, plugins), encoding="utf-8")


if __name__ == "__main__":
    main()
