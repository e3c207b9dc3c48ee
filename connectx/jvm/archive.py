"""AppCDS archives: classes of a Java program laid out once so that its later starts are faster.

An archive belongs to one Java, one class path and one set of flags; its name has a digest of those, so another Java
or other jars simply do not find it. Java checks the same again and ignores an archive that does not fit: a missing
archive costs time, never correctness (JEP 350, dynamic archives).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from connectx.jvm.cache import cache_dir
from connectx.jvm.java import JavaHome

KEPT_PER_PROGRAM = 3

_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_path(name: str, java: JavaHome, class_path: Iterable[Path]) -> Path:
    """Where the archive of program `name` is, or would be."""
    digest = hashlib.sha256(f"{java.path}\n{java.version}".encode())
    for jar in class_path:
        stat = jar.stat()
        digest.update(f"\n{jar} {stat.st_size} {stat.st_mtime_ns}".encode())
    return cache_dir() / "archives" / f"{name}-{digest.hexdigest()[:16]}.jsa"


def use_options(java: JavaHome, archive: Path) -> list[str]:
    """Java options that use `archive` when it is there, and stay quiet when it does not fit."""
    if not archive.exists() or archive.stat().st_size == 0:
        return []
    base = _base(java)
    both = str(archive) if base is None else f"{base}:{archive}"
    return [f"-XX:SharedArchiveFile={both}", "-Xshare:auto", *_QUIET]


def make_options(java: JavaHome, partial: Path) -> list[str]:
    """Java options that write an archive to `partial` when the program ends in an orderly way.

    An archive of a program builds on one of Java's own classes. A Java that was made without (the wheel's) gets one in
    the cache first.
    """
    base = _base(java)
    if base is None:
        return [f"-XX:ArchiveClassesAtExit={partial}", *_QUIET]
    if not base.exists():
        made = base.with_suffix(".partial")
        dump = [str(java.java), "-Xshare:dump", f"-XX:SharedArchiveFile={made}", *_QUIET]
        subprocess.run(dump, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if made.exists():
            made.rename(base)
    return [f"-XX:SharedArchiveFile={base}", f"-XX:ArchiveClassesAtExit={partial}", *_QUIET]


def _base(java: JavaHome) -> Path | None:
    """Where the archive of Java's own classes is to be, or None when this Java has its own."""
    if (java.path / "lib" / "server" / "classes.jsa").exists():
        return None
    digest = hashlib.sha256(f"{java.path}\n{java.version}".encode()).hexdigest()
    return cache_dir() / "archives" / f"java-{digest[:16]}.jsa"


def partial_path(archive: Path) -> Path:
    """A name beside `archive` to write it under until it is whole; its folder is made, left-overs are removed.

    One process at a time makes archives of a user (`connectx.cli.setup` holds a lock).
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    for left_over in archive.parent.glob("*.partial"):
        left_over.unlink(missing_ok=True)
    return archive.with_suffix(f".{os.getpid()}.partial")


def adopt(partial: Path, archive: Path) -> bool:
    """Move a finished archive into place, and keep only the newest ones of the program.

    Returns:
        False when Java wrote none; an empty file then stands for it, so that it is not tried again and again.
    """
    made = partial.exists()
    if made:
        partial.rename(archive)
    else:
        archive.touch()
    name = archive.name.rpartition("-")[0]
    newest_first = sorted(archive.parent.glob(f"{name}-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in newest_first[KEPT_PER_PROGRAM:]:
        old.unlink(missing_ok=True)
    return made
