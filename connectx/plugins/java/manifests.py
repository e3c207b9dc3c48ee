"""Reads what jars say of themselves: service manifests (KIP-898) and versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from connectx.model.decoding import WrongShape
from connectx.plugins.java.contents import Contents

_NEW_LINE: Final = re.compile(r"\r\n|\r|\n")
_SERVICES: Final = "META-INF/services/"
_CLASS_NAME: Final = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)*")
_IMPLEMENTATION: Final = "Implementation-Version:"
_FILE_VERSION: Final = re.compile(r"-([0-9][\w.+-]*)\.(?:jar|zip)\Z", re.IGNORECASE)
_POM: Final = re.compile(r"META-INF/maven/[^/]+/([^/]+)/pom\.properties")
_POM_VERSION: Final = re.compile(r"^version\s*[=:]\s*(\S+)\s*$", re.MULTILINE)
_MOST_CHARACTERS: Final = 100


def services(unit: Contents, service: str) -> Iterator[str | WrongShape]:
    """Class names that a service manifest of a jar has, without comments; a refusal in place of what is none."""
    entry = f"{_SERVICES}{service}"
    if entry not in unit.names:
        return
    try:
        text = unit.read(entry).decode()
    except (WrongShape, UnicodeDecodeError) as error:
        reason = str(error) if isinstance(error, WrongShape) else "it is not UTF-8 text"
        yield WrongShape(f"its service manifest of {service} is unreadable: {reason}")
        return
    for number, line in enumerate(_NEW_LINE.split(text.removeprefix("\ufeff")), 1):
        name = line.partition("#")[0].strip()
        if name and _CLASS_NAME.fullmatch(name):
            yield name
        elif name:
            yield WrongShape(f"line {number} of its service manifest of {service} is no class name")


def version_of(unit: Contents) -> str | None:
    """Version of a jar: its own `pom.properties`, `Implementation-Version`, or the end of its file's name."""
    file = unit.path.name
    poms = [match for match in map(_POM.fullmatch, unit.names) if match]
    own = [match for match in poms if file.startswith(f"{match[1]}-") or file.startswith(f"{match[1]}.")]
    best = max(own, key=lambda match: len(match[1]), default=poms[0] if len(poms) == 1 else None)
    found = None
    if best is not None and (match := _POM_VERSION.search(_text(unit, best[0]))):
        found = match[1]
    found = found or _implementation_version(_text(unit, "META-INF/MANIFEST.MF"))
    if not found and (match := _FILE_VERSION.search(file)):
        found = match[1]
    return found if found and len(found) <= _MOST_CHARACTERS and found.isprintable() else None


def _implementation_version(manifest: str) -> str | None:
    """Of the main attributes, which end with the first empty line; a line that begins with a space continues one."""
    main = _NEW_LINE.sub("\n", manifest).partition("\n\n")[0]
    for line in main.replace("\n ", "").split("\n"):
        if line.startswith(_IMPLEMENTATION):
            return line.removeprefix(_IMPLEMENTATION).strip() or None
    return None


def _text(unit: Contents, name: str) -> str:
    if name not in unit.names:
        return ""
    try:
        return unit.read(name).decode(errors="replace")
    except WrongShape:
        return ""
