"""Connectors for Kafka Connect that ours are compared with: jars from Maven Central, locked as Kafka's are."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

from connectx.jvm import jars
from connectx.jvm.java import find_java


def plugin_folder(parent: Path, name: str) -> Path:
    """A plugin path for Kafka Connect with one connector and all that it needs.

    Args:
        parent: where the folder is made.
        name: of a set of jars in a `*.lock.json` beside this module.
    """
    locks = [json.loads(path.read_text()) for path in Path(__file__).parent.glob("*.lock.json")]
    wanted = tuple(jars.Jar(**entry) for lock in locks for entry in lock.get(name, ()))
    locked = jars.locked
    with patch.object(jars, "locked", lambda other: wanted if other == name else locked(other)):
        found = jars.fetch(name, find_java())
    folder = parent / "plugins" / name
    folder.mkdir(parents=True)
    for jar in found:
        (folder / jar.name).symlink_to(jar)
    return folder.parent
