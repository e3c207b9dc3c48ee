"""AppCDS archives: classes of a Java program laid out once so that its later starts are faster.

An archive belongs to one Java, one class path and one set of flags; its name has a digest of those, so another Java
or other jars simply do not find it. Java checks the same again and ignores an archive that does not fit: a missing
archive costs time, never correctness (JEP 350, dynamic archives).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from connectx.jvm.cache import cache_dir
from connectx.jvm.java import JavaHome

KEPT_PER_PROGRAM = 3


def archive_path(name: str, java: JavaHome, class_path: Iterable[Path]) -> Path:
    """Where the archive of program `name` is, or would be."""
    digest = hashlib.sha256(f"{java.path}\n{java.version}".encode())
    for jar in class_path:
        stat = jar.stat()
        digest.update(f"\n{jar} {stat.st_size} {stat.st_mtime_ns}".encode())
    return cache_dir() / "archives" / f"{name}-{digest.hexdigest()[:16]}.jsa"


def use_options(archive: Path) -> list[str]:
    """Java options that use `archive` when it is there, and stay quiet when it does not fit."""
    if not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def make_options(partial: Path) -> list[str]:
    """Java options that write an archive to `partial` when the program ends in an orderly way."""
    return [f"-XX:ArchiveClassesAtExit={partial}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def partial_path(archive: Path) -> Path:
    """A name beside `archive` to write it under until it is whole; its folder is made, left-overs are removed.

    One process at a time makes archives of a user (`connectx.setup` holds a lock).
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    for left_over in archive.parent.glob("*.partial"):
        left_over.unlink(missing_ok=True)
    return archive.with_suffix(f".{os.getpid()}.partial")


def adopt(partial: Path, archive: Path) -> bool:
    """Move a finished archive into place, and keep only the newest ones of the program; False when none was written."""
    if not partial.exists():
        return False
    partial.rename(archive)
    name = archive.name.rpartition("-")[0]
    newest_first = sorted(archive.parent.glob(f"{name}-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in newest_first[KEPT_PER_PROGRAM:]:
        old.unlink(missing_ok=True)
    return True
