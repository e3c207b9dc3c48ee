"""A plugin path with Kafka's own file connectors, as a user would have it: a folder with their jar."""

from __future__ import annotations

from pathlib import Path

from connectx.jvm import jars
from connectx.jvm.java import find_java


def file_plugins(folder: Path) -> Path:
    """Make the path in `folder`."""
    (jar,) = (one for one in jars.fetch(jars.KAFKA_CONNECT, find_java()) if one.name.startswith("connect-file-"))
    plugin = folder / "plugins" / "connect-file"
    plugin.mkdir(parents=True)
    (plugin / jar.name).symlink_to(jar)
    return folder / "plugins"
