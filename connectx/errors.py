"""Every error that connectx raises on purpose.

Each error says in one sentence what happened, carries a stable `code` for programs, tells with `retriable` whether
the same call may succeed later, and names the `next_step` for the person who reads it.
"""

from __future__ import annotations

from typing import ClassVar


class ConnectxError(Exception):
    """Base of all expected failures.

    Args:
        message: what happened, in one sentence that names the cause and, where there is one, the setting.
        next_step: what the reader can do about it, in one sentence.
    """

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}".rstrip()
