"""The base class of all errors: a message, a next step, and a code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from connectx.views import Form, masked_text


class ConnectxError(Exception):
    """Base of all expected failures.

    Args:
        message: what happened, in one sentence that names the cause and, where there is one, the setting.
        next_step: what the reader can do about it, in one sentence.
    """

    code: ClassVar[str] = "error"
    """For programs: words of the class's name without Error, joined by underscores, unless the class names another."""

    retriable: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors of executors are pickled, whatever arguments their classes take."""
        return _restored, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        end = "" if self.message.endswith((".", "!", "?", ":")) or not self.next_step else "."
        return f"{self.message}{end} {self.next_step}".rstrip()

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {masked_text(str(self))}"

    def _repr_html_(self) -> str:
        parts = {"what": masked_text(self.message), "next step": masked_text(self.next_step)}
        return Form(type(self).__name__, {name: text for name, text in parts.items() if text}).html


def _restored(cls: type[ConnectxError], args: tuple[Any, ...]) -> ConnectxError:
    return cls.__new__(cls, *args)


class MissingExtraError(ConnectxError, ImportError):
    """A feature needs packages of an extra that is not installed; `extra` is its name."""

    def __init__(self, feature: str, extra: str, modules: Sequence[str]) -> None:
        super().__init__(f"{feature} needs {' and '.join(modules)}: run pip install 'connectx[{extra}]'.")
        self.extra = extra
