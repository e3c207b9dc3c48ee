"""Plugins as lists of them show them."""

from __future__ import annotations

from typing import Any

from connectx.model.class_names import public_name
from connectx.values import Value


class PluginDescription(Value):
    """One plugin as `GET /connector-plugins` shows it. `type` is source, sink, converter, transformation, ..."""

    cls: type
    name: str
    type: str
    version: str | None

    @classmethod
    def of(cls, plugin: Any, plugin_type: str) -> PluginDescription:
        """Of a class, which may lack a version."""
        return cls(plugin, public_name(plugin), plugin_type, getattr(plugin, "version", None))
