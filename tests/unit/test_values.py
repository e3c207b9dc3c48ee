"""Values compare, hash and show themselves by all their fields, those of their bases included."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, field
from typing import ClassVar

import pytest

from connectx.errors.base import ConnectxError
from connectx.values import Value, Worded


class Place(Value):
    """Where something is."""

    shelf: int


class Book(Place):
    title: str
    secret: str = field(default="", repr=False)


class Missing(Worded):
    text: ClassVar = "{title} is not on shelf {shelf}"
    title: str
    shelf: int


def test_a_value_of_a_derived_class_has_the_fields_of_its_base() -> None:
    book = Book(3, "Emma", secret="x")
    assert repr(book) == "Book(shelf=3, title='Emma')"
    assert {book, Book(3, "Emma", "x")} == {book}
    assert book != Book(3, "Emma", "y")
    assert Place(3) != book
    assert pickle.loads(pickle.dumps(book)) == book


def test_a_value_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Place(3).shelf = 4  # type: ignore[misc]


def test_a_worded_value_is_its_text_with_its_fields() -> None:
    assert str(Missing("Emma", 3)) == "Emma is not on shelf 3"


def test_the_code_of_an_error_is_its_own_or_follows_from_its_name() -> None:
    class ShelfGoneError(ConnectxError):
        """A shelf is gone."""

    class ShelfError(ShelfGoneError):
        """Another code."""

        code = "bad_shelf"

    assert (ShelfGoneError.code, ShelfError.code) == ("shelf_gone", "bad_shelf")
