"""The program that runs Java connectors in a child JVM, as a jar; its sources are in `java/`.

`python -m tests.support.connect_host` compiles them. The jar is part of the package, because a user's machine may have
no compiler.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

MAIN_CLASS: Final = "connectx.host.Host"
_FOLDER: Final = "connectx.jvm.connect_host"
_JAR: Final = "connect-host.jar"


def copy_jar(folder: Path) -> Path:
    """Put the jar into `folder`, also out of a zipped package; returns its path there."""
    copy = folder / _JAR
    with as_file(files(_FOLDER).joinpath(_JAR)) as jar:
        copy.write_bytes(jar.read_bytes())
    return copy
