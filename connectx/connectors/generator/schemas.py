"""Schemas by name for the key `quickstart`: tables with the fields of Confluent's Datagen connector."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Quickstart:
    """A schema (JSON) and the field of the key."""

    schema: str
    key: str


def _field(name: str, kind: str, **properties: Any) -> Mapping[str, Any]:
    return {"name": name, "type": {"type": kind, "arg.properties": properties} if properties else kind}


def _table(name: str, key: str, fields: Sequence[Mapping[str, Any]]) -> Quickstart:
    return Quickstart(json.dumps({"type": "record", "name": name, "fields": fields}), key)


_YEAR_2017_MS: Final = {"min": 1_487_715_775_521, "max": 1_519_273_364_600}

QUICKSTARTS: Final[Mapping[str, Quickstart]] = {
    "orders": _table(
        "orders",
        "orderid",
        [
            _field("ordertime", "long", range=_YEAR_2017_MS),
            _field("orderid", "int", iteration={"start": 0}),
            _field("itemid", "string", regex="Item_[1-9][0-9]{0,2}"),
            _field("orderunits", "double", range={"min": 0.1, "max": 10.0}),
            {
                "name": "address",
                "type": {
                    "type": "record",
                    "name": "address",
                    "fields": [
                        _field("city", "string", regex="City_[1-9][0-9]?"),
                        _field("state", "string", regex="State_[1-9][0-9]?"),
                        _field("zipcode", "long", range={"min": 10_000, "max": 100_000}),
                    ],
                },
            },
        ],
    ),
    "pageviews": _table(
        "pageviews",
        "viewtime",
        [
            _field("viewtime", "long", iteration={"start": 1, "step": 10}),
            _field("userid", "string", regex="User_[1-9]"),
            _field("pageid", "string", regex="Page_[1-9][0-9]?"),
        ],
    ),
    "users": _table(
        "users",
        "userid",
        [
            _field("registertime", "long", range=_YEAR_2017_MS),
            _field("userid", "string", regex="User_[1-9]"),
            _field("regionid", "string", regex="Region_[1-9]"),
            _field("gender", "string", options=["MALE", "FEMALE", "OTHER"]),
        ],
    ),
}
"""By name, in alphabetical order."""
