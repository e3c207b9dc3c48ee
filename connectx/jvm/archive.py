"""AppCDS archives: classes of a Java program laid out once so that its later starts are faster.

An archive belongs to one Java, one class path and one set of flags; its name has a digest of those, so another Java
or other jars simply do not find it. Java checks the same again and ignores an archive that does not fit: a missing
archive costs time, never correctness.

A program that ends soon after its start writes its own archive at its end (JEP 350, dynamic archives). One that users
wait for records the classes that it loads, and a later `Dump` writes them in a separate process (JEP 310).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from connectx.jvm.cache import cache_dir
from connectx.jvm.java import JavaHome
from connectx.jvm.process import ChildProcess

KEPT_PER_PROGRAM = 3

_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_path(name: str, java: JavaHome, class_path: Iterable[Path]) -> Path:
    """Where the archive of program `name` is, or would be."""
    digest = hashlib.sha256(f"{java.path}\n{java.version}".encode())
    for jar in class_path:
        stat = jar.stat()
        digest.update(f"\n{jar} {stat.st_size} {stat.st_mtime_ns}".encode())
    return cache_dir() / "archives" / f"{name}-{digest.hexdigest()[:16]}.jsa"


def use_options(java: JavaHome, archive: Path, *, static: bool = False) -> list[str]:
    """Java options that use `archive` when it is there, and stay quiet when it does not fit; `static`: by `Dump`."""
    if not archive.exists() or archive.stat().st_size == 0:
        return []
    base = None if static else _base(java)
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


def archives_lock() -> FileLock:
    """Held by the one process of a user that makes archives."""
    return FileLock(cache_dir() / "archives.lock")


def class_list(archive: Path) -> Path:
    """Where the names of the classes are kept that `archive` is to have, one program's earlier run."""
    return archive.with_suffix(".classes")


def record_options(target: Path) -> list[str]:
    """Java options that write the names of all loaded classes to `target`."""
    return [f"-XX:DumpLoadedClassList={target}", *_QUIET]


def keep_class_list(recorded: Path, archive: Path) -> None:
    """Keep what a program recorded for a later `Dump`; nothing when it recorded nothing."""
    if recorded.exists() and recorded.stat().st_size:
        archive.parent.mkdir(parents=True, exist_ok=True)
        partial = archive.with_suffix(f".{os.getpid()}.classes-partial")
        shutil.copyfile(recorded, partial)
        partial.rename(class_list(archive))


class Dump:
    """Lays the recorded classes of a program out as its archive: a child process of low priority.

    It ends with its owner, and an archive that is not whole by then is dropped. One process of a user at a time makes
    archives.

    Args:
        java: the Java that the program runs on.
        options: the program's Java options that change its modules.
        class_path: the program's jars, in its order.
        archive: what to make; its class list is there.
    """

    def __init__(self, java: JavaHome, options: Sequence[str], class_path: Iterable[Path], archive: Path) -> None:
        self._archive = archive
        self._command = [
            "nice",
            "-n",
            "19",
            str(java.java),
            *options,
            "-XX:+UseSerialGC",
            "-Xshare:dump",
            *_QUIET,
            f"-XX:SharedClassListFile={class_list(archive)}",
            "-cp",
            os.pathsep.join(map(str, class_path)),
        ]
        self._lock = archives_lock()
        self._partial: Path | None = None
        self._child: ChildProcess | None = None

    def start(self) -> bool:
        """Begin; False when another process makes an archive."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        self._partial = partial_path(self._archive)
        self._child = ChildProcess([*self._command, f"-XX:SharedArchiveFile={self._partial}"], log=Path(os.devnull))
        return True

    def wait(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds until the archive is made."""
        if self._child is not None:
            self._child.wait(timeout_s)

    def close(self) -> bool:
        """End it, whole or not; True when the archive is there. A second call does nothing."""
        child, self._child = self._child, None
        if child is None or self._partial is None:
            return False
        code = child.poll()
        child.kill()
        if code is None:
            self._partial.unlink(missing_ok=True)
        made = code is not None and adopt(self._partial, self._archive)
        self._lock.release()
        return made


def _base(java: JavaHome) -> Path | None:
    """Where the archive of Java's own classes is to be, or None when this Java has its own."""
    if (java.path / "lib" / "server" / "classes.jsa").exists():
        return None
    digest = hashlib.sha256(f"{java.path}\n{java.version}".encode()).hexdigest()
    return cache_dir() / "archives" / f"java-{digest[:16]}.jsa"


def partial_path(archive: Path) -> Path:
    """A name beside `archive` to write it under until it is whole; its folder is made, left-overs are removed.

    One process of a user at a time makes archives: it holds the lock `archives.lock` of the cache.
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
        class_list(old).unlink(missing_ok=True)
    return made
