"""What the classes of a location derive from, by their class files.

Classes outside of the location are known if Kafka Connect brings them; of others nothing is known. Names are internal
ones, with slashes, as class files have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from connectx.model.decoding import WrongShape
from connectx.plugins.java.class_file import ClassFile, parse
from connectx.plugins.java.contents import Contents
from connectx.plugins.java.kafka_classes import KAFKA_CLASSES, KINDS

_HEADS: Final = (b"org/apache/kafka/connect/", b"org/apache/kafka/common/config/provider/")
"""One of these is in every class file that names a class of Kafka which makes a plugin."""


class Hierarchy:
    """Classes of one location: the first jar that has a class wins, as for Java's class loader."""

    def __init__(self, units: list[Contents]) -> None:
        self.where: dict[str, Contents] = {}
        self.twice: dict[str, tuple[Contents, Contents]] = {}
        self._parsed: dict[str, ClassFile | WrongShape] = {}
        for unit in units:
            for entry in unit.names:
                if entry.endswith(".class") and not entry.startswith("META-INF/"):
                    name = entry.removesuffix(".class")
                    if self.where.setdefault(name, unit) is not unit:
                        self.twice.setdefault(name, (self.where[name], unit))

    def class_file(self, name: str) -> ClassFile:
        """The head of a class of the location.

        Raises:
            WrongShape: it cannot be read.
        """
        if name not in self._parsed:
            try:
                self._parsed[name] = self._parse(name, self.where[name].read(f"{name}.class"))
            except WrongShape as error:
                self._parsed[name] = error
        found = self._parsed[name]
        if isinstance(found, WrongShape):
            raise found
        return found

    def bases(self, name: str) -> set[str]:
        """All that a class derives from, itself included; those of Kafka that make a plugin, through others, too."""
        found, waiting = set[str](), [name]
        while waiting:
            each = waiting.pop()
            if each in found:
                continue
            found.add(each)
            if each in self.where:
                try:
                    waiting += self.class_file(each).parents
                except WrongShape:
                    continue
            else:
                waiting += KAFKA_CLASSES.get(each, ())
        return found

    def declares_version(self, name: str) -> bool:
        """Whether a class of the location has a method `version`, or inherits it from another one of the location."""
        return any(base in self.where and self._has_version(base) for base in self.bases(name))

    def _has_version(self, name: str) -> bool:
        try:
            return self.class_file(name).has_version
        except WrongShape:
            return False

    def outside(self, name: str) -> set[str]:
        """Bases of a class of which nothing is known, besides those of Java itself."""
        known = {*KINDS, *KAFKA_CLASSES}
        return {
            base for base in self.bases(name) if base not in self.where and base not in known and base[:5] != "java/"
        }

    def candidates(self) -> Iterator[str]:
        """Classes that may be plugins: those that derive from a class of Kafka that makes one.

        Reads all class files of the location. One that names no class of Kafka can only derive from a plugin through
        another class of the location, so it is read again once such a class is known.
        """
        derived, rest = set[str](), set[str]()
        for name, unit in self.where.items():
            data = self._read(unit, name)
            if not any(head in data for head in _HEADS):
                rest.add(name)
            elif self._derives(name, data, {*KINDS, *KAFKA_CLASSES}):
                derived.add(name)
            else:
                rest.add(name)
        new = derived
        while new:
            extendable = [name for name in new if not self.class_file(name).is_final]
            names = [name.encode() for name in extendable]
            new = set()
            for name in rest if names else ():
                data = self._read(self.where[name], name)
                if any(each in data for each in names) and self._derives(name, data, derived):
                    new.add(name)
            derived |= new
            rest -= new
        yield from sorted(derived)

    def _derives(self, name: str, data: bytes, bases: set[str]) -> bool:
        try:
            found = self._parse(name, data)
        except WrongShape:
            return False
        if bases.isdisjoint(found.parents):
            return False
        self._parsed[name] = found
        return True

    @staticmethod
    def _parse(name: str, data: bytes) -> ClassFile:
        found = parse(data)
        if found.name != name:
            raise WrongShape("it holds a class of another name")
        return found

    @staticmethod
    def _read(unit: Contents, name: str) -> bytes:
        try:
            return unit.read(f"{name}.class")
        except WrongShape:
            return b""
