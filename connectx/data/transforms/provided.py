"""The transformations and predicates that connectx provides, by the names of the Java classes that they replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connectx.data.transforms.api import Predicate, Transform
from connectx.data.transforms.casts import Cast
from connectx.data.transforms.fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SideTransform,
    ValueToKey,
)
from connectx.data.transforms.headers import (
    DropHeaders,
    HasHeaderKey,
    HeaderFrom,
    InsertHeader,
    RecordIsTombstone,
    TopicNameMatches,
)
from connectx.data.transforms.routing import Filter, RegexRouter, TimestampConverter, TimestampRouter
from connectx.data.transforms.schema_metadata import SetSchemaMetadata

PACKAGE: Final = "org.apache.kafka.connect.transforms."
_SIDED: Final[tuple[type[SideTransform], ...]] = (
    Cast,
    ExtractField,
    Flatten,
    HeaderFrom,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
)
_WHOLE: Final[tuple[type[Transform], ...]] = (
    DropHeaders,
    Filter,
    InsertHeader,
    RegexRouter,
    TimestampRouter,
    ValueToKey,
)
_PREDICATES: Final[tuple[type[Predicate], ...]] = (HasHeaderKey, RecordIsTombstone, TopicNameMatches)


def _variant(cls: type[SideTransform], side: str) -> type[SideTransform]:
    name = f"{cls.__name__}${side.title()}"
    reads = (side,)
    return type(name, (cls,), {"side": side, "reads": reads, "java_class": PACKAGE + name, "__doc__": cls.__doc__})


TRANSFORMS: Final[Mapping[str, type[Transform]]] = {
    **{PACKAGE + cls.__name__: cls for cls in _WHOLE},
    **{f"{PACKAGE}{cls.__name__}${side.title()}": _variant(cls, side) for cls in _SIDED for side in ("key", "value")},
}
"""Transformations by Java class name, each variant with its own class."""

PREDICATES: Final[Mapping[str, type[Predicate]]] = {f"{PACKAGE}predicates.{cls.__name__}": cls for cls in _PREDICATES}
"""Predicates by Java class name."""

ABSTRACT: Final[Mapping[str, tuple[str, str]]] = {
    PACKAGE + cls.__name__: (f"{PACKAGE}{cls.__name__}$Key", f"{PACKAGE}{cls.__name__}$Value") for cls in _SIDED
}
"""Java class names that need a variant, and their variants."""
