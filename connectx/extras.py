"""Optional dependencies: the check before their first import, and the extra that brings them.

A module counts as installed wherever it comes from: a Databricks runtime brings pyspark and pandas without the extras
of this package. Imports none of them.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Literal

from connectx.errors.base import MissingExtraError

Extra = Literal[
    "spark",
    "embedded",
    "notebook",
    "postgres",
    "duckdb",
    "mysql",
    "lake",
    "registry",
    "avro",
    "jsonschema",
    "protobuf",
    "tls",
    "demo",
]
"""Extras of the package, as in pyproject.toml; `lab` and `all` bring nothing that is imported here."""


def require(feature: str, extra: Extra, *modules: str) -> None:
    """Check that optional modules are installed.

    Args:
        feature: what needs them; begins the sentence of the error, for example "The embedded Kafka".
        extra: what brings them.

    Raises:
        MissingExtraError: one of them cannot be found.
    """
    if missing := [module for module in modules if sys.modules.get(module) is None and find_spec(module) is None]:
        raise MissingExtraError(feature, extra, missing)
