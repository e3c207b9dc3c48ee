"""Names of classes that configurations, REST and metrics show."""

from __future__ import annotations


def path_of(cls: type) -> str:
    """Module and name, with dots."""
    return f"{cls.__module__}.{cls.__qualname__}"


def public_name(cls: type) -> str:
    """The Java class that a plugin replaces, otherwise its path. A subclass is another plugin."""
    return vars(cls).get("java_class") or path_of(cls)
