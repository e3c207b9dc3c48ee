"""A plugin path with Kafka's own file connectors, as a user would have it, and the JVM that runs Java's connectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

import connectx as cx
from connectx.jvm import jars
from connectx.jvm.java import find_java


def file_plugins(folder: Path) -> Path:
    """Make the path in `folder`."""
    (jar,) = (one for one in jars.fetch(jars.KAFKA_CONNECT, find_java()) if one.name.startswith("connect-file-"))
    plugin = folder / "plugins" / "connect-file"
    plugin.mkdir(parents=True)
    (plugin / jar.name).symlink_to(jar)
    return folder / "plugins"


def jvm_of(cluster: cx.Cluster, worker: str) -> int | None:
    """Process id of a worker's JVM, as an operator finds it: a child of the process that has the worker."""
    handle: Any = cluster.workers[worker]._handle
    if handle.isolation == "thread":
        return handle.jvm.pid  # type: ignore[no-any-return]
    children = psutil.Process(handle.pid).children(recursive=True)
    return next((child.pid for child in children if child.name() == "java"), None)
