"""docs/connectors/ lists every connector that ships, with the keys of its definition."""

from __future__ import annotations

import re

import pytest

from connectx.plugins.registry import Plugins
from tests.support.connector_keys import PAGES, described, written

KEYS = re.compile(r"<!-- keys of \w+: begin -->\n(.*?)<!--", re.DOTALL)
PAGE_NAMES = sorted(path.name for path in PAGES.glob("*.md"))


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_the_tables_of_keys_are_those_of_the_definitions(name: str) -> None:
    page = (PAGES / name).read_text(encoding="utf-8")
    assert page == written(page, Plugins()), "run python -m tests.support.connector_keys"
    rows = [row for table in KEYS.findall(page) for row in table.splitlines()]
    assert [row for row in rows if len(re.findall(r"(?<!\\)\|", row)) != 5] == []


def test_every_connector_that_ships_has_its_keys_on_a_page_and_a_row_in_the_overview() -> None:
    shipped = {plugin.cls.__name__ for plugin in Plugins().describe() if plugin.cls.__module__.startswith("connectx.")}
    pages = {name: (PAGES / name).read_text(encoding="utf-8") for name in PAGE_NAMES}
    assert {connector for page in pages.values() for connector in described(page)} == shipped
    assert {name for name in shipped if f"[`{name}`]" not in pages["index.md"]} == set()
    nav = (PAGES.parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name for name in PAGE_NAMES if f"connectors/{name}" not in nav] == []
