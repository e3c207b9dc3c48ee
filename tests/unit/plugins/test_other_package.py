"""A connector of another package, installed as a wheel, gets everything that one that ships has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.other_package import answers, installed


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Answers about the package in an environment over this one."""
    folder = tmp_path_factory.mktemp("other-package")
    shelf = folder / "shelf"
    shelf.mkdir()
    return {**answers(installed(folder), "use.py", shelf), "shelf": str(shelf)}


def test_it_is_listed_and_found_by_the_names_that_its_class_has(found: dict[str, Any]) -> None:
    assert found["listed"] == [
        ["acme_shelf.FarShelfSink", "sink", "7.1"],
        ["acme_shelf.ShelfSink", "sink", "7.1"],
        ["org.acme.shelf.ShelfSourceConnector", "source", "7.1"],
    ]
    assert found["named"] == ["ShelfSource", "ShelfSource"]


def test_its_keys_are_validated(found: dict[str, Any]) -> None:
    assert list(found["validated"]) == ["shelf"]


def test_an_audit_finds_connectors_at_one_of_its_places(found: dict[str, Any]) -> None:
    read, written = found["audited"]
    shelf = f"shelf {found['shelf']}"
    assert ("a and b" in read, shelf in read) == (True, True)
    assert ("c and d" in written, shelf in written) == (True, True)


def test_executors_write_for_it_and_a_check_reads_its_target(found: dict[str, Any]) -> None:
    assert found["stored"] == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_its_row_of_the_overview_is_made_of_its_class(found: dict[str, Any]) -> None:
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in found["rows"]]
    assert cells[1:] == [["`ShelfSink`", "at least once", "rows of a shelf"], ["`ShelfSource`", "numbers"]]
