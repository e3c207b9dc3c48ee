"""The base of values: frozen dataclasses that compare, hash and show themselves by their fields."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value:
    """Base of frozen dataclasses: a subclass needs no decorator."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__doc__ = cls.__doc__ or cls.__name__  # without one, dataclass makes the signature, which is slow
        dataclass(frozen=True, repr=False)(cls)

    def __repr__(self) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)  # type: ignore[arg-type]
        return f"{type(self).__qualname__}({', '.join(shown)})"


class Worded(Value):
    """A value that is a part of a sentence, without a capital letter or a full stop."""

    text: ClassVar[str]
    """That part, with fields in braces."""

    def __str__(self) -> str:
        return self.text.format(**{one.name: getattr(self, one.name) for one in fields(self)})
