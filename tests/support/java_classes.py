"""Class files and jars for tests of the plugin path, made without a compiler: a JVM cannot run them."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from connectx.plugins.java.plugin import SERVICES, PluginKind

OBJECT = "java.lang.Object"
SOURCE = SERVICES[PluginKind.SOURCE]
SINK = SERVICES[PluginKind.SINK]
CONVERTER = SERVICES[PluginKind.CONVERTER]
TRANSFORMATION = SERVICES[PluginKind.TRANSFORMATION]

_PUBLIC, _FINAL, _SUPER, _ABSTRACT = 0x0001, 0x0010, 0x0020, 0x0400


def class_file(
    name: str,
    parent: str = OBJECT,
    interfaces: Sequence[str] = (),
    *,
    flags: int = _PUBLIC | _SUPER,
    constructor: bool = True,
    version: bool = False,
) -> bytes:
    """A class with a constructor without arguments, and the method `version` if wanted."""
    pool: list[bytes] = []

    def text(value: str) -> int:
        encoded = value.encode()
        pool.append(b"\x01" + struct.pack(">H", len(encoded)) + encoded)
        return len(pool)

    def class_of(value: str) -> int:
        pool.append(b"\x07" + struct.pack(">H", text(value.replace(".", "/"))))
        return len(pool)

    this, above = class_of(name), class_of(parent)
    others = [class_of(each) for each in interfaces]
    pool += [b"\x05" + bytes(8), b""]  # a long takes two places
    methods = [("<init>", "()V")] * constructor + [("version", "()Ljava/lang/String;")] * version
    members = b"".join(struct.pack(">4H", _PUBLIC, text(method), text(kind), 0) for method, kind in methods)
    head = struct.pack(">IHHH", 0xCAFEBABE, 0, 61, len(pool) + 1) + b"".join(pool)
    body = struct.pack(">4H", flags, this, above, len(others)) + b"".join(struct.pack(">H", each) for each in others)
    return head + body + struct.pack(">HH", 0, len(methods)) + members + struct.pack(">H", 0)


def abstract_class(name: str, parent: str = OBJECT, interfaces: Sequence[str] = ()) -> bytes:
    return class_file(name, parent, interfaces, flags=_PUBLIC | _SUPER | _ABSTRACT, version=True)


def jar(
    path: Path,
    *classes: bytes,
    services: Mapping[str, str | bytes] | None = None,
    files: Mapping[str, str | bytes] | None = None,
) -> Path:
    """A jar with classes, service manifests by interface, and other files by entry."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for service, content in (services or {}).items():
            archive.writestr(f"META-INF/services/{service}", content)
        for name, content in (files or {}).items():
            archive.writestr(name, content)
        for each in classes:
            archive.writestr(f"{_name_of(each)}.class", each)
    return path


def _name_of(content: bytes) -> str:
    length = struct.unpack_from(">H", content, 11)[0]
    return content[13 : 13 + length].decode()
