"""Writes the tables in docs/connectors/ from the classes of the connectors: their keys, and the overview.

    python -m tests.support.connector_keys

A page marks the place of a table by two comments that name the connector, or `sources` and `sinks` in the overview.
Text outside of them stays.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any, Final

from connectx.model.configdef import ConfigKey
from connectx.model.states import ConnectorType
from connectx.plugins.registry import Plugins, task_class, type_of

PAGES: Final = Path(__file__).parents[2] / "docs/connectors"
_TABLE: Final = re.compile(r"(<!-- keys of (\w+): begin -->\n).*?(<!-- keys of \2: end -->)", re.DOTALL)
_OVERVIEW: Final = re.compile(r"(<!-- (source|sink)s: begin -->\n).*?(<!-- \2s: end -->)", re.DOTALL)
_HEADS: Final = {
    "source": "| `connector.class` | what it reads |\n| --- | --- |\n",
    "sink": "| `connector.class` | delivery | what it writes |\n| --- | --- | --- |\n",
}


def described(page: str) -> list[str]:
    """Return the names of the connectors whose keys the page lists."""
    return [match[2] for match in _TABLE.finditer(page)]


def written(page: str, plugins: Plugins) -> str:
    """Return the page with its tables written again."""
    page = _TABLE.sub(lambda match: match[1] + _table(match[2], plugins) + match[3], page)
    return _OVERVIEW.sub(lambda match: match[1] + _overview(match[2], plugins) + match[3], page)


def overview_row(connector: Any, page: str = "") -> str:
    """Return the row of a connector class in the overview, with a link if it has a page."""
    name = f"[`{connector.__name__}`]({page})" if page else f"`{connector.__name__}`"
    if type_of(connector) is ConnectorType.SOURCE:
        return f"| {name} | {connector.summary} |"
    task: Any = task_class(connector)
    return f"| {name} | {'exactly' if task.exactly_once else 'at least'} once | {connector.summary} |"


def _overview(kind: str, plugins: Plugins) -> str:
    pages = {name: path.name for path in PAGES.glob("*.md") for name in described(path.read_text(encoding="utf-8"))}
    classes = [plugin.cls for plugin in plugins.describe() if plugin.type == kind]
    shipped = sorted((cls for cls in classes if cls.__module__.startswith("connectx.")), key=lambda cls: cls.__name__)
    return _HEADS[kind] + "".join(f"{overview_row(cls, pages[cls.__name__])}\n" for cls in shipped)


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
