"""Misspelled keys are found by their likeness."""

from __future__ import annotations

from connectx.model.spelling import misspelled

KNOWN = ("connector.class", "batch.size", "flush.interval.ms")


def test_a_key_that_resembles_a_missing_key_is_misspelled() -> None:
    given = ("connector.class", "flush.interval", "bacth.size", "other")
    assert list(misspelled(given, KNOWN)) == [("bacth.size", "batch.size"), ("flush.interval", "flush.interval.ms")]


def test_a_key_whose_likeness_is_set_too_is_not_misspelled() -> None:
    assert list(misspelled(("bacth.size", "batch.size"), KNOWN)) == []
    assert list(misspelled(("bacth.size",), ())) == []


def test_a_key_below_a_known_one_may_be_of_a_plugin() -> None:
    assert list(misspelled(("iceberg.catalog.uri",), ("iceberg.catalog",))) == []
