"""Compiles the program that runs Java connectors: `connectx/jvm/connect_host/connect-host.jar`.

python -m tests.support.connect_host

The same sources and compiler give the same bytes: entries are sorted, dated alike and not compressed. A manifest entry
has the digest of the sources, so that a test without a compiler notices sources that were changed without the jar.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Final

from connectx.jvm import jars
from connectx.jvm.java import find_java

FOLDER: Final = Path(__file__).parents[2] / "connectx/jvm/connect_host"
JAR: Final = FOLDER / "connect-host.jar"
RELEASE: Final = 17
"""The oldest Java that runs it, and the compiler that makes it."""
_DATE: Final = (1980, 1, 1, 0, 0, 0)


def sources() -> list[Path]:
    """All sources, sorted."""
    return sorted((FOLDER / "java").rglob("*.java"))


def digest() -> str:
    """SHA-256 of the sources with their names."""
    content = hashlib.sha256()
    for source in sources():
        content.update(f"{source.relative_to(FOLDER)}\n".encode() + source.read_bytes())
    return content.hexdigest()


def compiler() -> str | None:
    """Java's compiler of the release, if this machine has it."""
    program = shutil.which("javac")
    if program is None:
        return None
    version = subprocess.run([program, "-version"], capture_output=True, text=True, check=True)
    return program if f"javac {RELEASE}." in version.stdout + version.stderr else None


def compiled(program: str) -> bytes:
    """The jar."""
    class_path = os.pathsep.join(map(str, jars.fetch(jars.KAFKA_CONNECT, find_java())))
    with tempfile.TemporaryDirectory(prefix="connectx-host-") as folder:
        command = [program, "--release", str(RELEASE), "-Xlint:all,-path,-classfile,-processing", "-Werror"]
        subprocess.run(
            [*command, "-proc:none", "-d", folder, "-cp", class_path, *map(str, sources())], check=True, cwd=FOLDER
        )
        manifest = f"Manifest-Version: 1.0\nSources: {digest()[:56]}\n\n".encode()
        classes = {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*.class")}
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as jar:
            for name, content in [("META-INF/MANIFEST.MF", manifest), *sorted(classes.items())]:
                jar.writestr(zipfile.ZipInfo(name, _DATE), content)
        return packed.getvalue()


if __name__ == "__main__":
    found = compiler()
    if found is None:
        raise SystemExit(f"No javac {RELEASE} is on PATH; Debian's package openjdk-{RELEASE}-jdk-headless has it.")
    JAR.write_bytes(compiled(found))
    print(f"{JAR.name}: {JAR.stat().st_size:,} bytes")
