"""The boundary where bytes of other programs become values.

Whatever those bytes provoke in the code that reads them, also in libraries, is one refusal: bytes that are nested too
deeply, too large or of another shape raise errors of many types. A decoder whose caller skips what cannot be read
returns `Unreadable`. One whose caller cannot continue raises a single type of error. tests/unit/test_decoders.py
fuzzes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from json import JSONDecodeError
from typing import IO, Final, Generic, ParamSpec, TypeVar

from connectx.errors.base import ConnectxError
from connectx.errors.plugins import MalformedDataError
from connectx.values import Value

_P = ParamSpec("_P")
_T = TypeVar("_T")
_MOST_DIGITS: Final = 19
"""Of numbers of 64 bits."""

_PART_BYTES: Final = 1024 * 1024
_SNAPPY_SIZE_BYTES: Final = 5


class WrongShape(Exception):
    """Raised inside decoders; its text never holds what was read."""


class Unreadable(Value):
    """Why bytes of another program are no value; `reason` is a sentence without its full stop, never their content."""

    reason: str


class Decoder(Generic[_P, _T]):
    """A function that reads bytes of other programs. It returns `Unreadable` in place of raising an error."""

    def __init__(self, function: Callable[_P, _T]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T | Unreadable:
        """Read; never raises."""
        try:
            return self._function(*args, **kwargs)
        except Exception as error:
            return Unreadable(reason_of(error))

    def value(self, what: str, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The value, for callers that cannot continue without it.

        Raises:
            MalformedDataError: it is unreadable; `what` names it.
        """
        decoded = self(*args, **kwargs)
        if isinstance(decoded, Unreadable):
            raise MalformedDataError(what, decoded.reason)
        return decoded


def decoder(function: Callable[_P, _T]) -> Decoder[_P, _T]:
    """Guard a function that reads bytes of other programs."""
    return Decoder(function)


@contextmanager
def refusing(refusal: Callable[[str], ConnectxError]) -> Iterator[None]:
    """Raise `refusal(reason)` for each error in the block or the decorated function that is not typed already."""
    try:
        yield
    except ConnectxError:
        raise
    except Exception as error:
        raise refusal(reason_of(error)) from error


def whole_number(text: str) -> int | None:
    """The number that ASCII digits spell; None for other text, and beyond 64 bits.

    `int` also takes digits of other alphabets, and raises for text of more than 4,300 digits, however it is checked.
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS:
        return None
    number = int(digits)
    return number if number < 2**63 else None


def exceeds(text: str, limit: int) -> bool:
    """Whether a text is a number of ASCII digits above a limit, of any length."""
    number = whole_number(text)
    return text.isascii() and text.isdecimal() and (number is None or number > limit)


def reason_of(error: Exception) -> str:
    """Describe an error that bytes of other programs have provoked, without what they contain."""
    match error:
        case ConnectxError():
            return error.message.rstrip(".")
        case WrongShape():
            return str(error)
        case RecursionError():
            return "it is nested too deeply"
        case MemoryError() | OverflowError():
            return "it is too large"
        case UnicodeError():
            return "it is not UTF-8 text"
        case JSONDecodeError():
            return f"it is not JSON ({error.msg}, character {error.pos})"
        case _:
            return f"it has another shape ({type(error).__name__})"


def read_within(stream: IO[bytes], most_bytes: int) -> bytes:
    """What a stream holds that decompresses; more than `most_bytes` as soon as it holds more.

    It is read in parts, so that memory is taken for what comes and not for the limit.
    """
    parts, size = list[bytes](), 0
    while size <= most_bytes and (part := stream.read(_PART_BYTES)):
        parts.append(part)
        size += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def snappy_size(block: bytes | memoryview) -> int:
    """How many bytes a block of snappy claims to hold: the varint at its head.

    Raises:
        WrongShape: there is none.
    """
    size = 0
    for at, byte in enumerate(block[:_SNAPPY_SIZE_BYTES]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return size
    raise WrongShape("a block of snappy does not begin with its size")
