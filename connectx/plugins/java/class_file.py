"""Reads the head of a Java class file: its name, what it derives from, and whether an instance can be made.

Mirrors chapter 4 of the Java Virtual Machine Specification, as far as finding plugins needs it. Bytes that are no
class file raise WrongShape.
"""

from __future__ import annotations

import struct
from typing import Final

from connectx.model.decoding import WrongShape
from connectx.values import Value

_MAGIC: Final = b"\xca\xfe\xba\xbe"
_UTF8, _CLASS = 1, 7
_SIZES: Final = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
_TWO_SLOTS: Final = (5, 6)
_CONSTRUCTOR: Final = (b"<init>", b"()V")
_VERSION: Final = (b"version", b"()Ljava/lang/String;")
_PUBLIC, _FINAL, _INTERFACE, _ABSTRACT = 0x0001, 0x0010, 0x0200, 0x0400


class ClassFile(Value):
    """A class; names are internal ones, with slashes.

    Attributes:
        name: its own.
        parents: its superclass and interfaces.
        is_final: no class can derive from it.
        makeable: it is public and concrete, and has a public constructor without arguments.
        has_version: it has the method `version` of Kafka Connect's Versioned.
    """

    name: str
    parents: tuple[str, ...]
    is_final: bool
    makeable: bool
    has_version: bool


def parse(data: bytes) -> ClassFile:
    """Read a class file.

    Raises:
        WrongShape: it is none, or it is cut off.
    """
    try:
        return _parse(data)
    except (struct.error, IndexError, KeyError) as error:
        raise WrongShape("it is cut off, or no class file") from error


def _parse(data: bytes) -> ClassFile:
    if data[:4] != _MAGIC:
        raise WrongShape("it does not begin as a class file")
    texts: dict[int, bytes] = {}
    classes: dict[int, int] = {}
    (count,) = struct.unpack_from(">H", data, 8)
    at, index = 10, 1
    while index < count:
        tag = data[at]
        if tag == _UTF8:
            length = data[at + 1] << 8 | data[at + 2]
            texts[index] = data[at + 3 : at + 3 + length]
            at += 3 + length
        else:
            if tag == _CLASS:
                classes[index] = data[at + 1] << 8 | data[at + 2]
            at += 1 + _SIZES[tag]
        index += 2 if tag in _TWO_SLOTS else 1
    flags, this, parent, interface_count = struct.unpack_from(">4H", data, at)
    at += 8
    interfaces = struct.unpack_from(f">{interface_count}H", data, at)
    at += 2 * interface_count
    names = [_text(texts[classes[each]]) for each in (this, parent, *interfaces) if each]
    at, _ = _members(data, at)
    _, methods = _members(data, at)
    public = {(texts[name], texts[kind]) for access, name, kind in methods if access & _PUBLIC}
    concrete = flags & _PUBLIC and not flags & (_INTERFACE | _ABSTRACT)
    makeable = bool(concrete) and _CONSTRUCTOR in public
    return ClassFile(names[0], tuple(names[1:]), bool(flags & _FINAL), makeable, _VERSION in public)


def _members(data: bytes, at: int) -> tuple[int, list[tuple[int, int, int]]]:
    """Fields or methods, as (access flags, name, descriptor), and where they end."""
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    members = list[tuple[int, int, int]]()
    for _ in range(count):
        access, name, descriptor, attributes = struct.unpack_from(">4H", data, at)
        members.append((access, name, descriptor))
        at += 8
        for _ in range(attributes):
            (length,) = struct.unpack_from(">I", data, at + 2)
            at += 6 + length
    return at, members


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
