"""The plugin framework: base classes, configuration keys, class lookup and validation.

For notebooks it also has the verbs of `connectx plugins`, for plugins that are written in Java: `install`, `installed`
and `remove`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectx.plugins.java.installed import install, installed, remove

__all__ = ["install", "installed", "remove"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from connectx.plugins.java import installed as home  # imported when it is needed: every connector imports this one

    return getattr(home, name)
